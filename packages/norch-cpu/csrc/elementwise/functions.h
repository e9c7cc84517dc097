// The elementary functions as inline functions without branches, so that loops over them vectorise: float by formulas
// of our own, within 2 ulp over the whole range (log2 within 2.2), double by the C library.
#pragma once

#include "elementwise/error_function.h"
#include "elementwise/exponential.h"
#include "elementwise/logarithm.h"
#include "elementwise/power.h"
#include "elementwise/trigonometric.h"
