// scaled_dot_product_attention and its gradient, but for that of a mask, without the matrix of scores in memory: the softmax is taken as its parts become known (Dao et al., "FlashAttention", 2022).
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "nn/attention.h"
#include "runtime/allocator.h"
#include "runtime/families.h"

namespace norch::nn {
namespace {

constexpr int64_t MAX_LENGTH = (int64_t(1) << 31) - 4096;
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

/// Whether dims d of some operands are one dim of rows: as the rows of each lie, or, where there is one, anyhow.
bool are_rows(const Operand& o, int d, int64_t queries) {
    const int row = o.ndim() - 2;
    return queries == 1 || o.strides[d] == queries * o.strides[row];
}

/// Queries of several heads that see the same keys and values, as one head's. A forward pass whose queries all see all.
void fold_groups(std::vector<Operand>& operands, const Attrs& attrs) {
    const Operand &out = operands[F_OUT], &key = operands[F_KEY], &value = operands[F_VALUE];
    const int dims = out.ndim() - 2;
    const int64_t queries = out.shape[size_t(dims)];
    auto is_shared = [](const Operand& o, int d) { return o.shape[size_t(d)] == 1 || o.strides[size_t(d)] == 0; };
    for (const Operand& o : operands)
        if (o.ndim() != out.ndim()) return;
    for (int d = dims - 1; d >= 0 && !attrs.flag("is_causal"); --d) {
        if (out.shape[d] == 1 || !is_shared(key, d) || !is_shared(value, d)) continue;
        if (out.shape[d] * queries > 64 || operands[F_QUERY].shape[d] != out.shape[d]) continue;
        bool fits = true;
        for (int k : {F_OUT, F_QUERY, F_SUMS, F_MASK}) fits &= are_rows(operands[size_t(k)], d, queries);
        if (!fits) continue;
        const int64_t count = out.shape[size_t(d)];
        for (Operand& o : operands) o.shape[size_t(d)] = 1;
        for (int k : {F_OUT, F_QUERY, F_SUMS, F_MASK}) {
            Operand& o = operands[size_t(k)];
            if (queries == 1) o.strides[size_t(dims)] = o.strides[size_t(d)];
            o.shape[size_t(dims)] = count * queries;
        }
        return;
    }
}

/// Fills `a` for operands whose query is number `query` and of which the last are sums and a mask; false where these
/// kernels cannot do it.
template <int N>
bool describe(const std::vector<Operand>& operands, const Attrs& attrs, int query, Attention<N>& a) {
    const DType dtype = operands[0].dtype;
    if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16) return false;
    for (int k = 0; k < N; ++k) {
        const Operand& o = operands[k];
        if (o.is_scalar || !o.numel() || o.ndim() < 2 || o.ndim() > operands[0].ndim()) return false;
        if (k + 2 < N && o.dtype != dtype) return false;
        if (k + 2 == N && o.dtype != DType::f32) return false;
    }
    const int64_t most = dtype == DType::f32 ? 128 : 256;
    const Operand &q = operands[query], &v = operands[query + 2];
    const int64_t queries = q.shape[q.ndim() - 2], keys = v.shape[v.ndim() - 2];
    const double scale = attrs.number("scale");
    if (std::max(queries, keys) > MAX_LENGTH || std::max(q.shape.back(), v.shape.back()) > most) return false;
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

/// The mask as an operand of (…, queries, keys), with as many dims as `like`.
Operand broadcast(Operand mask, const Operand& like, int64_t queries, int64_t keys) {
    const size_t missing = size_t(like.ndim() - mask.ndim());
    mask.shape.insert(mask.shape.begin(), missing, 1);
    mask.strides.insert(mask.strides.begin(), missing, 0);
    const size_t dims = mask.shape.size() - 2;
    for (size_t d = 0; d < dims + 2; ++d)
        if (mask.shape[d] == 1) mask.strides[d] = 0;
    mask.shape[dims] = queries;
    mask.shape[dims + 1] = keys;
    return mask;
}

/// `places`: which operand of the request each operand is, -1 for none; a mask is the request's last.
template <int N>
KernelPtr make(const Request& request, int query, std::array<int, N> places,
               void (*run_by_tiles)(const Attention<N>&, DType), void (*run_hopper)(const Attention<N>&, DType)) {
    constexpr int SUMS = N - 2, MASK = N - 1;
    const auto& given = request.operands;
    const int64_t without_mask = N - std::count(places.begin(), places.end(), -1);
    const bool has_mask = int64_t(given.size()) == without_mask + 1;
    if (!has_mask && int64_t(given.size()) != without_mask) return nullptr;
    if (has_mask) places[MASK] = int(given.size()) - 1;
    const Operand& first = given[0];
    if (first.ndim() < 2) return nullptr;
    std::vector<Operand> operands;
    for (int place : places) operands.push_back(place < 0 ? first : given[size_t(place)]);
    const int64_t queries = operands[query].shape[operands[query].ndim() - 2];
    if (places[SUMS] < 0) {
        operands[SUMS] = column(first, queries);
    } else {
        operands[SUMS].shape.push_back(1);
        operands[SUMS].strides.push_back(1);
    }
    const DType dtype = first.dtype;
    Attention<N> a = {};
    MaskBits bits = {};
    if (!has_mask) {
        operands[MASK] = column(first, queries);
    } else {
        const int64_t keys = operands[query + 1].shape[operands[query + 1].ndim() - 2];
        if (operands[MASK].is_scalar || operands[MASK].ndim() > first.ndim() || !operands[MASK].numel()) return nullptr;
        if (operands[MASK].dtype != DType::boolean && operands[MASK].dtype != dtype) return nullptr;
        operands[MASK] = broadcast(operands[MASK], first, queries, keys);
    }
    if constexpr (N == FORWARD) fold_groups(operands, request.attrs);
    if (has_mask) {
        const Operand mask = operands[MASK];
        const int64_t rows = mask.shape[mask.ndim() - 2], keys = mask.shape.back(), itemsize = size_of(mask.dtype);
        const Side side = {mask.strides[mask.ndim() - 2] * itemsize, mask.strides.back() * itemsize};
        a.mask = {side, {side.column, side.row}, 0, false};
        if (mask.dtype == DType::boolean &&
            !describe_bits(mask, rows, keys, N == BACKWARD, bits, operands[MASK], a.mask))
            return nullptr;
    }
    if (!describe(operands, request.attrs, query, a)) return nullptr;
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        Attention<N> b = with_data<N>(a, places, data);
        std::optional<Scratch<char>> packed;
        if (bits.bytes) {
            packed.emplace(size_t(bits.bytes));
            pack_bits(bits, b.data[MASK], packed->data());
            b.data[MASK] = packed->data();
        }
        if (dtype != DType::f32 && suits_hopper(b)) run_hopper(b, dtype);
        else run_by_tiles(b, dtype);
    });
}

KernelPtr make_forward(const Request& request, const std::array<int, FORWARD>& places) {
    return make<FORWARD>(request, F_QUERY, places, attend_by_tiles, attend_hopper);
}
KernelPtr make_backward(const Request& request, const std::array<int, BACKWARD>& places) {
    return make<BACKWARD>(request, B_QUERY, places, attend_grad_by_tiles, attend_hopper_grad);
}

}  // namespace

void add_attention(Registry& registry) {
    registry["scaled_dot_product_attention"] = [](const Request& r) { return make_forward(r, {0, 1, 2, 3, -1, -1}); };
    registry["scaled_dot_product_attention_sums"] = [](const Request& r) { return make_forward(r, {0, 2, 3, 4, 1, -1}); };
    registry["scaled_dot_product_attention_grad"] = [](const Request& r) {
        return make_backward(r, {0, 1, 2, 3, 4, 5, 6, -1, -1, -1});
    };
    registry["scaled_dot_product_attention_sums_grad"] = [](const Request& r) {
        return make_backward(r, {0, 1, 2, 3, 4, 5, 6, 7, 8, -1});
    };
}

}  // namespace norch::nn
