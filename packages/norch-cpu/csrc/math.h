// The elementary functions as inline functions without branches, so that loops over them vectorise: float by the formulas
// here, within 2 ulp unless said otherwise and over the whole range, double mostly by the C library.
#pragma once

#include "error_function.h"
#include "exponential.h"
#include "logarithm.h"
#include "power.h"
#include "trigonometric.h"
