// The elementary functions as inline functions without branches, so that loops over them vectorise: float by formulas
// of our own, within 2 ulp over the whole range (log2 within 2.2), double by the C library.
#pragma once

#include "error_function.h"
#include "exponential.h"
#include "logarithm.h"
#include "power.h"
#include "trigonometric.h"
