// Which attention runs on the kernels for compute capability 9.0, and their forward launch.
#include "nn/attention_hopper_forward.cuh"

namespace norch {
namespace hopper {
namespace {

template <class T, int D, int GROUPS, bool HAS_MASK = false>
void attend(const Attention<FORWARD>& a, DType dtype) {
    constexpr int KEYS = D == 256 ? 64 : 128, STAGES = 2;
    using Shared = ForwardShared<T, D, GROUPS, KEYS, STAGES>;
    launch_shared<&forward_kernel<T, D, GROUPS, KEYS, STAGES, HAS_MASK>, GROUPS, Shared>(problem_of(a, dtype, F_QUERY),
                                                                                        a.queries);
}

template <class T>
void attend(const Attention<FORWARD>& a, DType dtype) {
    const int width = std::max(a.size, a.values);
    const bool is_wide = width > 64;
    if (width > 128 && a.data[F_MASK]) attend<T, 256, 2, true>(a, dtype);
    else if (width > 128) attend<T, 256, 2>(a, dtype);
    else if (a.data[F_MASK] && is_wide) attend<T, 128, 2, true>(a, dtype);
    else if (a.data[F_MASK]) attend<T, 64, 2, true>(a, dtype);  // three groups have no registers for it
    else if (is_wide) attend<T, 128, 2>(a, dtype);
    else if (a.is_causal && a.queries <= 2048) attend<T, 64, 2>(a, dtype);  // less of a tile is hidden
    else attend<T, 64, 3>(a, dtype);
}

/// Whether tensor maps can describe the first `count` operands, and tiles would not be mostly empty.
template <int N>
bool suits(const Attention<N>& a, int count) {
    const uint32_t all = (1u << count) - 1;
    bool suits = properties(launch_stream().device).major == 9 && (a.packets & all) == all && a.batch.ndim <= 3;
    for (int k = 0; k < count; ++k) suits &= a.side[k].row > 0;
    const int width = std::max(a.size, a.values);
    return suits && width > 32 && width <= 256 && a.queries >= 64;
}

}  // namespace
}  // namespace hopper

namespace nn {

bool suits_hopper(const Attention<FORWARD>& a) { return hopper::suits(a, F_SUMS); }
bool suits_hopper(const Attention<BACKWARD>& a) { return a.data[B_SUMS] && hopper::suits(a, B_SUMS); }

void attend_hopper(const Attention<FORWARD>& a, DType dtype) {
    if (dtype == DType::f16) hopper::attend<__half>(a, dtype);
    else hopper::attend<__nv_bfloat16>(a, dtype);
}

}  // namespace nn
}  // namespace norch
