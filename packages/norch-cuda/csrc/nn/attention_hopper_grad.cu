// The launches of the gradient of attention on compute capability 9.0.
#include "nn/attention_hopper_grad.cuh"
#include "runtime/allocator.h"

namespace norch {
namespace hopper {
namespace {

template <class T, int D>
void attend_grad(const Attention<BACKWARD>& a, DType dtype) {
    constexpr int GROUPS = 2, KEYS = D == 64 ? 128 : 64, QUERIES = D == 64 ? 128 : 64, STAGES = 2;
    constexpr int AHEAD = D == 64 ? 2 : 1;  // shared memory has no room for more
    const int32_t padded = int32_t(ceil_div(a.queries, BOX_ROWS)) * BOX_ROWS;
    const size_t count = size_t(a.heads()) * size_t(padded) + QUERIES;
    const Scratch<float> scratch(2 * count);
    const Facts facts = {scratch.data(), scratch.data() + count, padded};
    const GradProblem problem = problem_of(a, dtype, B_QUERY);
    launch_shared<&query_kernel<T, D, GROUPS, KEYS, STAGES, AHEAD>, GROUPS, QueryShared<T, D, GROUPS, KEYS, STAGES, AHEAD>>(
        problem, a.queries, facts);
    launch_shared<&key_kernel<T, D, GROUPS, QUERIES, STAGES, AHEAD>, GROUPS, KeyShared<T, D, GROUPS, QUERIES, STAGES, AHEAD>>(
        problem, a.keys, facts);
}

}  // namespace
}  // namespace hopper

namespace nn {

void attend_hopper_grad(const Attention<BACKWARD>& a, DType dtype) {
    const bool is_narrow = std::max(a.size, a.values) <= 64;
    if (dtype == DType::f16)
        is_narrow ? hopper::attend_grad<__half, 64>(a, dtype) : hopper::attend_grad<__half, 128>(a, dtype);
    else is_narrow ? hopper::attend_grad<__nv_bfloat16, 64>(a, dtype) : hopper::attend_grad<__nv_bfloat16, 128>(a, dtype);
}

}  // namespace nn
}  // namespace norch
