// scaled_dot_product_attention without a mask or a causal one, and its gradient, without the matrix of scores in
// memory: the softmax is taken as its parts become known (Dao et al., "FlashAttention", 2022).
#include <algorithm>
#include <array>
#include <cmath>

#include "nn/attention.h"
#include "runtime/families.h"

namespace norch::nn {
namespace {

constexpr int64_t MAX_LENGTH = (int64_t(1) << 31) - 4096;
constexpr int64_t MAX_WIDTH = 128;
constexpr int SMALLEST_TILE = 32;

/// An operand's batch dims as those of the first operand: broadcast dims get stride 0.
Operand batch_of(const Operand& o, const Operand& first) {
    const int dims = first.ndim() - 2, missing = first.ndim() - o.ndim();
    Operand out{o.dtype, {first.shape.begin(), first.shape.begin() + dims}, std::vector<int64_t>(size_t(dims), 0)};
    for (int d = std::max(missing, 0); d < dims; ++d)
        if (o.shape[d - missing] != 1) out.strides[d] = o.strides[d - missing];
    return out;
}

/// Whether 16 bytes of a row of an operand can be accessed at once, as far as that is known before there are addresses.
template <int N>
bool allows_16_bytes(const Attention<N>& a, const Operand& o, int k) {
    const int64_t itemsize = size_of(o.dtype);
    bool allows = a.side[k].column == itemsize && a.side[k].row % 16 == 0 && o.shape.back() * itemsize % 16 == 0;
    for (int d = 0; d < a.batch.ndim; ++d) allows &= a.batch.stride[k][d] % 16 == 0;
    return allows;
}

/// A column of `count` rows, in the place of one that is not there.
Operand column(const Operand& first, int64_t count) {
    std::vector<int64_t> shape(first.shape.begin(), first.shape.end() - 2);
    shape.insert(shape.end(), {count, 1});
    return {DType::f32, shape, std::vector<int64_t>(shape.size(), 0)};
}

/// Fills `a` for operands whose query is number `query` and of which the last are columns; false where these kernels
/// cannot do it.
template <int N>
bool describe(const std::vector<Operand>& operands, const Attrs& attrs, int query, Attention<N>& a) {
    const DType dtype = operands[0].dtype;
    if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16) return false;
    for (int k = 0; k < N; ++k) {
        const Operand& o = operands[k];
        if (o.is_scalar || !o.numel() || o.ndim() < 2 || o.ndim() > operands[0].ndim()) return false;
        if (o.dtype != (k + 1 == N ? DType::f32 : dtype)) return false;
    }
    const Operand &q = operands[query], &v = operands[query + 2];
    const int64_t queries = q.shape[q.ndim() - 2], keys = v.shape[v.ndim() - 2];
    const double scale = attrs.number("scale");
    if (std::max(queries, keys) > MAX_LENGTH || std::max(q.shape.back(), v.shape.back()) > MAX_WIDTH) return false;
    if (!(scale > 0) || std::isinf(scale)) return false;  // the largest score must stay so when scaled
    if (properties(current_device()).shared_bytes < ATTENTION_SHARED_BYTES) return false;

    std::vector<Operand> batches;
    for (const Operand& o : operands) batches.push_back(batch_of(o, operands[0]));
    const auto pieces = cut<N>(collapse(batches));
    if (pieces.size() != 1) return false;
    a.batch = pieces[0].layout;
    if (int64_t(a.heads()) * ceil_div(std::max(queries, keys), SMALLEST_TILE) >= MAX_LENGTH) return false;
    for (int k = 0; k < N; ++k) {
        const Operand& o = operands[k];
        const int64_t itemsize = size_of(o.dtype);
        a.side[k] = {o.strides[o.ndim() - 2] * itemsize, o.strides[o.ndim() - 1] * itemsize};
        a.packets |= uint32_t(allows_16_bytes(a, o, k)) << k;
    }
    a.queries = int32_t(queries);
    a.keys = int32_t(keys);
    a.size = int32_t(q.shape.back());
    a.values = int32_t(v.shape.back());
    a.scale = float(scale);
    a.is_causal = attrs.flag("is_causal");
    return true;
}

template <int N>
Attention<N> with_data(const Attention<N>& described, const std::array<int, N>& places, char* const* data) {
    Attention<N> a = described;
    for (int k = 0; k < N; ++k) {
        a.data[k] = places[k] < 0 ? nullptr : data[places[k]];
        if (!is_aligned(a.data[k], 16)) a.packets &= ~(1u << k);
    }
    return a;
}

/// `places`: which operand of the request each operand is, -1 for none.
template <int N>
KernelPtr make(const Request& request, int query, const std::array<int, N>& places,
               void (*run_float)(const Attention<N>&), void (*run_half)(const Attention<N>&, DType),
               void (*run_hopper)(const Attention<N>&, DType)) {
    const auto& given = request.operands;
    if (int64_t(given.size()) != N - std::count(places.begin(), places.end(), -1)) return nullptr;
    if (given[0].ndim() < 2) return nullptr;
    std::vector<Operand> operands;
    for (int place : places) operands.push_back(place < 0 ? given[0] : given[size_t(place)]);
    Operand& sums = operands.back();
    if (places[N - 1] < 0) {
        sums = column(given[0], given[0].shape[given[0].ndim() - 2]);
    } else {
        sums.shape.push_back(1);
        sums.strides.push_back(1);
    }
    Attention<N> a = {};
    if (!describe(operands, request.attrs, query, a)) return nullptr;
    const DType dtype = given[0].dtype;
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        const Attention<N> b = with_data<N>(a, places, data);
        if (dtype == DType::f32) run_float(b);
        else if (suits_hopper(b)) run_hopper(b, dtype);
        else run_half(b, dtype);
    });
}

KernelPtr make_forward(const Request& request, const std::array<int, FORWARD>& places) {
    return make<FORWARD>(request, F_QUERY, places, attend_float, attend_half, attend_hopper);
}
KernelPtr make_backward(const Request& request, const std::array<int, BACKWARD>& places) {
    return make<BACKWARD>(request, B_QUERY, places, attend_float_grad, attend_half_grad, attend_hopper_grad);
}

}  // namespace

void add_attention(Registry& registry) {
    registry["scaled_dot_product_attention"] = [](const Request& r) { return make_forward(r, {0, 1, 2, 3, -1}); };
    registry["scaled_dot_product_attention_sums"] = [](const Request& r) { return make_forward(r, {0, 2, 3, 4, 1}); };
    registry["scaled_dot_product_attention_grad"] = [](const Request& r) {
        return make_backward(r, {0, 1, 2, 3, 4, 5, 6, -1, -1});
    };
    registry["scaled_dot_product_attention_sums_grad"] = [](const Request& r) {
        return make_backward(r, {0, 1, 2, 3, 4, 5, 6, 7, 8});
    };
}

}  // namespace norch::nn
