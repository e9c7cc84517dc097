// What logcumsumexp computes between loading and storing. It is compiled for AVX-512 too, scans are not: those of AVX2 call
// what the module that is loaded has.
#pragma once

#include <cstdint>

namespace norch::reduction {

/// x[k] becomes the logarithm of the sum of the exponentials up to it. `most` is the largest number before x, and `sum` what
/// the exponentials add up to over that of `most`; both go on from call to call. Where numbers are at most `range` apart, the
/// exponential of the largest stands for that of each while they are added up.
[[gnu::visibility("default")]] void log_sums_along(double* x, int64_t n, double range, double& most, double& sum);

/// The same for the next number of each of n sums.
[[gnu::visibility("default")]] void log_sums_across(double* x, int64_t n, double* most, double* sum);

}  // namespace norch::reduction
