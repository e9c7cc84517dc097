// scaled_dot_product_attention and its gradient. Scores of some queries with some keys stay in the cache, key by key: what
// is summed over the keys of a query is then summed for a vector of queries.
#include "nn/attention.h"

#include "matmul/transpose.h"
#include "runtime/allocator.h"

namespace norch::nn {
namespace {

/// An operand with the batch dims of another: broadcast dims have stride 0. Nothing where it has more than that.
std::optional<Operand> with_batch_of(const Operand& o, const Operand& first) {
    const int missing = first.ndim() - o.ndim(), batch = first.ndim() - 2;
    if (o.ndim() < 2 || missing < 0) return std::nullopt;
    Operand out{o.dtype, first.shape, std::vector<int64_t>(size_t(missing), 0)};
    for (int d = 0; d < o.ndim(); ++d) {
        const bool is_batch = d + missing < batch;
        if (is_batch && o.shape[size_t(d)] != 1 && o.shape[size_t(d)] != first.shape[size_t(d + missing)]) return std::nullopt;
        if (!is_batch) out.shape[size_t(d + missing)] = o.shape[size_t(d)];
        out.strides.push_back(is_batch && o.shape[size_t(d)] == 1 ? 0 : o.strides[size_t(d)]);
    }
    return out;
}

/// A mask of any dims as one of at least two.
Operand with_rows(Operand mask) {
    while (mask.ndim() < 2) {
        mask.shape.insert(mask.shape.begin(), 1);
        mask.strides.insert(mask.strides.begin(), 0);
    }
    return mask;
}

template <int RESULTS>
[[gnu::cold]] KernelPtr gradient(const Request& request) {
    const auto attention = Attention::of(request, RESULTS + 1);
    if (!attention || (RESULTS > 3 && (attention->is_causal || !attention->has_mask))) return nullptr;
    return attention_grad(*attention, RESULTS);
}

}  // namespace

Matrix in_vectors(const Rows& x, int64_t rows, int64_t n, float* room) {
    const int64_t width = whole_vectors(n);
    if (x.dtype == DType::f32 && width == n) return {reinterpret_cast<float*>(x.data), x.row / 4};
    const Matrix copy{room, width};
    visit_floating(x.dtype, [&]<class S>(Tag<S>) {
        if constexpr (sizeof(S) < 8)
            for (int64_t i = 0; i < rows; ++i) widen_row(reinterpret_cast<const S*>(x.data + i * x.row), n, room + i * width);
    });
    for (int64_t i = 0; i < rows && n < width; ++i) std::fill(room + i * width + n, room + (i + 1) * width, 0.0f);
    return copy;
}

std::optional<Attention> Attention::of(const Request& request, int query) {
    const size_t count = request.operands.size(), at = size_t(query);
    if (count != at + 3 && count != at + 4) return std::nullopt;
    Attention a;
    const Operand& first = request.operands[0];
    a.dtype = first.dtype;
    if (a.dtype != DType::f32 && !is_half(a.dtype)) return std::nullopt;
    std::vector<Operand> operands;
    for (size_t i = 0; i < count; ++i) {
        const bool is_mask = i == at + 3;
        const Operand& o = request.operands[i];
        if (o.is_scalar || !o.numel() || (o.dtype != a.dtype && !(is_mask && o.dtype == DType::boolean))) return std::nullopt;
        const auto found = with_batch_of(is_mask ? with_rows(o) : o, first);
        if (!found || (!is_mask && found->strides.back() != 1 && found->shape.back() != 1)) return std::nullopt;
        operands.push_back(*found);
        a.row.push_back(found->strides[size_t(first.ndim() - 2)] * size_of(o.dtype));
    }
    const Operand &q = operands[at], &v = operands[at + 2];
    a.queries = q.shape[size_t(q.ndim() - 2)];
    a.keys = v.shape[size_t(v.ndim() - 2)];
    a.size = q.shape.back();
    a.values = v.shape.back();
    a.is_causal = request.attrs.flag("is_causal");
    a.in_blocks = a.dtype == DType::bf16 && matmul::multiplies_blocks(matmul::Parts::one) && a.size >= matmul::BLOCK_STEPS &&
                  a.values >= matmul::BLOCK_LINES && a.keys >= matmul::BLOCK_STEPS && a.queries >= matmul::BLOCK_LINES;
    a.scale = float(request.attrs.number("scale"));
    if (count == at + 4) {
        const Operand& mask = operands.back();
        a.has_mask = true;
        a.mask_dtype = mask.dtype;
        a.mask_row = mask.shape[size_t(mask.ndim() - 2)] == 1 ? 0 : a.row.back();
        a.mask_column = mask.shape.back() == 1 ? 0 : mask.strides.back() * size_of(mask.dtype);
    }
    a.loops = collapse(operands, dims_but(first.ndim() - 2));
    return a;
}

#ifdef NORCH_TILES
/// Blocks of `lines` x `steps` of a factor, in the order of their product.
static void pack(const Factor& x, int64_t first, int64_t line, int64_t step, int64_t lines, int64_t steps, matmul::PairOrder order,
                 uint32_t* out, int64_t out_line) {
    const auto pack_as = [&]<class S>(const S* data) {
        matmul::pack_blocks(data + first, line, step, lines, steps, matmul::Parts::one, order, out, out_line);
    };
    if (x.is_half) pack_as(reinterpret_cast<const bfloat16*>(x.data));
    else pack_as(reinterpret_cast<const float*>(x.data));
}

int64_t block_line(int64_t rows) { return (rows + matmul::BLOCK_STEPS - 1) / matmul::BLOCK_STEPS * matmul::BLOCK; }

void pack_columns(const Factor& b, int64_t rows, int64_t width, uint32_t* out) {
    pack(b, 0, b.column, b.row, std::min(width, b.columns), rows, matmul::PairOrder::by_pair, out, block_line(rows));
}

void multiply_in_blocks(Matrix c, bool add, const Factor& a, const Factor& b, int64_t rows, int64_t width,
                        const std::function<Range(int64_t, int64_t)>& steps, const uint32_t* packed) {
    using namespace matmul;
    constexpr int64_t LINES = 2 * BLOCK_LINES;
    const int64_t all = steps(0, rows).end, line = block_line(all);
    const Scratch<uint32_t> own(packed ? 0 : (width + BLOCK_LINES - 1) / BLOCK_LINES * line), lines(2 * line);
    if (!packed) pack_columns(b, all, width, own.data());
    const uint32_t* const columns = packed ? packed : own.data();
    alignas(64) float edge[LINES * LINES];
    const TileRegisters registers;
    for (int64_t i = 0; i < rows; i += LINES) {
        const int64_t height = std::min(LINES, rows - i);
        const Range p = steps(i, i + height);
        const int64_t first = p.begin / BLOCK_STEPS, count = (p.end + BLOCK_STEPS - 1) / BLOCK_STEPS - first;
        pack(a, i * a.row + first * BLOCK_STEPS * a.column, a.row, a.column, height,
             std::min(all, (first + count) * BLOCK_STEPS) - first * BLOCK_STEPS, PairOrder::by_line, lines.data(), line);
        for (int64_t j = 0; j < width; j += LINES) {
            const int64_t across = std::min(LINES, width - j);
            const bool is_whole = height % BLOCK_LINES == 0 && across % BLOCK_LINES == 0;
            float *const to = c.data + i * c.row + j, *const sums = is_whole ? to : edge;
            multiply_blocks({lines.data(), columns + j / BLOCK_LINES * line + first * BLOCK, line, line, count, Parts::one,
                             height > BLOCK_LINES ? 2 : 1, across > BLOCK_LINES ? 2 : 1},
                            add && is_whole, sums, is_whole ? c.row : LINES);
            for (int64_t r = 0; r < height && !is_whole; ++r) {
                const float* from = edge + r * LINES;
                for (int64_t k = 0; k < across; ++k) to[r * c.row + k] = add ? to[r * c.row + k] + from[k] : from[k];
            }
        }
    }
}

#endif

void Mask::load(int64_t query, int64_t key, int64_t queries, int64_t keys, float* out, int64_t out_row) const {
    const Plane from{data + query * row + key * column, row, column};
    const Plane to{reinterpret_cast<char*>(out), out_row * 4, 4};
    if (dtype != DType::boolean) return load_tile(to, from, queries, keys, size_of(dtype), conversion_of(dtype));
    for (int64_t i = 0; i < queries; ++i, out += out_row) {
        const char* looks = from.data + i * row;
        if (column == 1)
            for (int64_t j = 0; j < keys; ++j) out[j] = looks[j] ? 0.0f : -HUGE_VALF;
        else
            for (int64_t j = 0; j < keys; ++j) out[j] = looks[j * column] ? 0.0f : -HUGE_VALF;
    }
}

void turn(Matrix to, const Rows& x, int64_t queries, int64_t n, float scale, float* room) {
    const int64_t width = to.row;
    if (queries < width) std::fill_n(to.data, n * width, 0.0f);
    const Matrix rows = x.dtype == DType::f32 ? Matrix{reinterpret_cast<float*>(x.data), x.row / 4}
                                              : in_vectors(x, queries, n, room);
    matmul::transpose(rows.data, rows.row, queries, n, to.data, width);
    if (scale == 1.0f) return;
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n * width; ++i) to.data[i] *= scale;
}

void scores(Matrix out, const Factor& rows, Matrix turned, const Seen& seen, Range keys, int64_t n, const uint32_t* packed) {
    const auto steps = [=](int64_t, int64_t) { return Range{0, n}; };
    if (matmul::HAS_BLOCKS && packed) return multiply_in_blocks(out, false, rows, turned, keys.end - keys.begin, turned.row, steps, packed);
    multiply(
        out, false, rows, turned, keys.end - keys.begin, turned.row,
        [&](int64_t i) { return seen.hidden(keys.begin + i) / L * L; }, steps, seen.in_blocks);
}

void add_mask(Matrix scores, const Mask& mask, const Seen& seen, Range keys, float* room) {
    const int64_t count = keys.end - keys.begin, width = scores.row;
    float *rows = room, *columns = room + width * whole_vectors(count);
    mask.load(seen.first, keys.begin, seen.queries, count, rows, whole_vectors(count));
    matmul::transpose(rows, whole_vectors(count), seen.queries, count, columns, width);
    for (int64_t j = 0; j < count; ++j) {
        float* to = scores.data + j * width;
        const float* added = columns + j * width;
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < seen.queries; ++i) to[i] = masked(to[i], added[i]);
    }
}

void add_attention(Registry& registry) {
    registry["scaled_dot_product_attention"] = [](const Request& r) -> KernelPtr {
        const auto attention = Attention::of(r, 1);
        if (!attention) return nullptr;
        return attention->queries < L ? attend_few(*attention) : attend(*attention);
    };
    registry["scaled_dot_product_attention_grad"] = gradient<3>;
    registry["scaled_dot_product_attention_mask_grad"] = gradient<4>;
}

}  // namespace norch::nn
