// The launches of the gradient of attention on compute capability 9.0.
#include "nn/attention_hopper_grad.cuh"
#include "runtime/allocator.h"

namespace norch {
namespace hopper {
namespace {

template <class T, int D, bool HAS_MASK>
void attend_grad(const Attention<BACKWARD>& a, DType dtype) {
    constexpr int KEYS = D == 64 ? 128 : 64, QUERIES = KEYS, STAGES = 2;
    constexpr int AHEAD = D == 64 ? 2 : 1, VALUES = D == 256 ? 1 : STAGES;  // shared memory has no room for more
    using OfQueries = QueryShared<T, D, KEYS, STAGES, VALUES, AHEAD>;
    using OfKeys = KeyShared<T, D, QUERIES, STAGES, AHEAD>;
    const int32_t padded = int32_t(ceil_div(a.queries, BOX_ROWS)) * BOX_ROWS;
    const size_t count = size_t(a.heads()) * size_t(padded);
    const Scratch<float> scratch(2 * count);
    const Facts facts = {scratch.data(), scratch.data() + count, padded};
    const CUtensorMap table = table_map(scratch.data(), padded, 2 * a.heads(), QUERIES);
    const GradProblem problem = problem_of(a, dtype, B_QUERY);
    launch_shared<&query_kernel<T, D, KEYS, STAGES, VALUES, AHEAD, HAS_MASK>, GROUPS, OfQueries>(problem, a.queries, facts);
    launch_shared<&key_kernel<T, D, QUERIES, STAGES, AHEAD, HAS_MASK>, GROUPS, OfKeys, ROWS / PARTS<D>>(problem, a.keys,
                                                                                                       table);
}

template <class T>
void attend_grad(const Attention<BACKWARD>& a, DType dtype) {
    const int width = std::max(a.size, a.values);
    const bool is_wide = width > 64;
    if (width > 128 && a.data[B_MASK]) attend_grad<T, 256, true>(a, dtype);
    else if (width > 128) attend_grad<T, 256, false>(a, dtype);
    else if (a.data[B_MASK] && is_wide) attend_grad<T, 128, true>(a, dtype);
    else if (a.data[B_MASK]) attend_grad<T, 64, true>(a, dtype);
    else if (is_wide) attend_grad<T, 128, false>(a, dtype);
    else attend_grad<T, 64, false>(a, dtype);
}

}  // namespace
}  // namespace hopper

namespace nn {

void attend_hopper_grad(const Attention<BACKWARD>& a, DType dtype) {
    if (dtype == DType::f16) hopper::attend_grad<__half>(a, dtype);
    else hopper::attend_grad<__nv_bfloat16>(a, dtype);
}

}  // namespace nn
}  // namespace norch
