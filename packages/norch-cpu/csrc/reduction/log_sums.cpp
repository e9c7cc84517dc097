#include "reduction/log_sums.h"

#include "elementwise/exponential.h"
#include "elementwise/logarithm.h"
#include "runtime/simd.h"

namespace norch::reduction {
namespace {

NORCH_INLINE double add(double x, double& most, double& sum) {
    const double now = most > x ? most : x;
    sum = sum * math::exp(most == now ? 0.0 : most - now) + math::exp(x == now ? 0.0 : x - now);
    most = now;
    return now + math::log(sum);
}

}  // namespace

void log_sums_along(double* x, int64_t n, double range, double& most, double& sum) {
    double highest = most, least = sum == 0 ? math::infinity<double> : most;
    for (int64_t k = 0; k < n; ++k) {
        highest = highest > x[k] ? highest : x[k] == x[k] ? x[k] : highest;
        least = least < x[k] ? least : x[k];
    }
    if (highest - highest != 0 || (highest != most && !(highest - least <= range))) {
        for (int64_t k = 0; k < n; ++k) x[k] = add(x[k], most, sum);
        return;
    }
    for (int64_t k = 0; k < n; ++k) x[k] = math::exp(x[k] - highest);
    double total = sum * math::exp(most - highest);
    for (int64_t k = 0; k < n; ++k) x[k] = total += x[k];
    most = highest, sum = total;
    for (int64_t k = 0; k < n; ++k) x[k] = highest + math::log(x[k]);
}

void log_sums_across(double* x, int64_t n, double* most, double* sum) {
    NORCH_INDEPENDENT
    for (int64_t k = 0; k < n; ++k) x[k] = add(x[k], most[k], sum[k]);
}

}  // namespace norch::reduction
