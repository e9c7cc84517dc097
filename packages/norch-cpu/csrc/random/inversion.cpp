// poisson_of_uniform: counts by inversion, block by block until every element has its own.
#include <algorithm>

#include "common/staging.h"
#include "runtime/families.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"

namespace norch::random {
namespace {

constexpr int64_t BLOCK = 256;
constexpr int MOST = 120;  // as in norch.ops.sampling

void count(double* out, const double* drawn, const double* mass, const double* rate, int64_t n) {
    double of_count[BLOCK], below[BLOCK];
    std::copy_n(mass, n, of_count);
    std::copy_n(mass, n, below);
    std::fill_n(out, n, 0.0);
    for (int k = 1; k < MOST; ++k) {
        double left = 0;
        for (int64_t i = 0; i < n; ++i) left = std::max(left, drawn[i] >= below[i] ? 1.0 : 0.0);
        if (left == 0) return;
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) {
            out[i] += drawn[i] >= below[i] ? 1.0 : 0.0;
            of_count[i] *= rate[i] / double(k);
            below[i] += of_count[i];
        }
    }
}

[[gnu::cold]] KernelPtr poisson_of_uniform(const Request& request) {
    for (const Operand& operand : request.operands)
        if (operand.dtype != DType::f64) return nullptr;
    const int64_t n = request.operands[0].numel();
    constexpr double ns = 12;
    KernelPtr body = make_kernel(ns * double(n), [=](char* const* data, const Scalar*) {
        parallel_for(n, ns, [&](int64_t begin, int64_t end) {
            const auto at = [&](int operand, int64_t i) { return reinterpret_cast<double*>(data[operand]) + i; };
            for (int64_t i = begin; i < end; i += BLOCK)
                count(at(0, i), at(1, i), at(2, i), at(3, i), std::min(BLOCK, end - i));
        });
    });
    return Staged::make(request, 1, {DType::f64, DType::f64, DType::f64, DType::f64}, std::move(body));
}

}  // namespace

void add_inversion(Registry& registry) {
    registry["poisson_of_uniform"] = poisson_of_uniform;
}

}  // namespace norch::random
