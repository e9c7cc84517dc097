// The elementary functions that are ops, with what an element of float32 and of float64 costs a core of a CPU, in
// picoseconds.
#pragma once

/// The common ones.
#define NORCH_EXPONENTIAL_OPS(F) \
    F(exp, 300, 4000)            \
    F(expm1, 300, 8000)          \
    F(log, 400, 4000)            \
    F(log1p, 500, 8000)          \
    F(log2, 400, 4000)           \
    F(log10, 400, 8000)          \
    F(tanh, 600, 10000)          \
    F(sigmoid, 500, 5000)        \
    F(erf, 600, 8000)

#define NORCH_PERIODIC_OPS(F) \
    F(sin, 700, 8000)         \
    F(cos, 700, 8000)         \
    F(tan, 2000, 12000)

#define NORCH_INVERSE_OPS(F) \
    F(asin, 500, 8000)       \
    F(acos, 500, 8000)       \
    F(atan, 600, 8000)       \
    F(sinh, 1500, 12000)     \
    F(cosh, 1500, 10000)     \
    F(asinh, 2500, 15000)    \
    F(acosh, 2500, 12000)    \
    F(atanh, 2500, 12000)
