// Which attention runs on the kernels for compute capability 9.0, and their forward launch.
#include "nn/attention_hopper_forward.cuh"

namespace norch {
namespace hopper {
namespace {

template <class T, int D>
void attend(const Attention<FORWARD>& a, DType dtype) {
    constexpr int GROUPS = D == 64 ? 3 : 2, KEYS = 128, STAGES = 2;
    launch_shared<&forward_kernel<T, D, GROUPS, KEYS, STAGES, D != 64>, GROUPS, ForwardShared<T, D, GROUPS, KEYS, STAGES>>(
        problem_of(a, dtype, F_QUERY, a.queries, GROUPS * BOX_ROWS));
}

/// Whether tensor maps can describe the first `count` operands, and the tiles are not mostly empty.
template <int N>
bool suits(const Attention<N>& a, int count) {
    const uint32_t all = (1u << count) - 1;
    return properties(launch_stream().device).major == 9 && (a.packets & all) == all && a.batch.ndim <= 3 &&
           std::max(a.size, a.values) > 32 && a.queries >= 64;
}

}  // namespace
}  // namespace hopper

namespace nn {

bool suits_hopper(const Attention<FORWARD>& a, DType) { return hopper::suits(a, F_SUMS); }
bool suits_hopper(const Attention<BACKWARD>& a, DType) { return a.data[B_SUMS] && hopper::suits(a, B_SUMS); }

void attend_hopper(const Attention<FORWARD>& a, DType dtype) {
    const bool is_narrow = std::max(a.size, a.values) <= 64;
    if (dtype == DType::f16) is_narrow ? hopper::attend<__half, 64>(a, dtype) : hopper::attend<__half, 128>(a, dtype);
    else is_narrow ? hopper::attend<__nv_bfloat16, 64>(a, dtype) : hopper::attend<__nv_bfloat16, 128>(a, dtype);
}

}  // namespace nn
}  // namespace norch
