// scaled_dot_product_attention without a mask or a causal one, and its gradient: a head at a time, some queries at a
// time, so that their scores stay in the cache. The gradient computes the weights again (Dao et al., 2022). Scores lie
// key by key: what is summed over the keys of a query is then summed for a vector of queries.
#include <algorithm>
#include <cmath>
#include <vector>

#include "common/layout.h"
#include "elementwise/functions.h"
#include "elementwise/loop.h"
#include "matmul/gemm_tile.h"
#include "matmul/transpose.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::nn {
namespace {

using matmul::TILE_VECTORS, matmul::TileInput, matmul::TileKernel;

constexpr int64_t QUERIES = 64;  // queries whose scores are in the cache together
constexpr int L = SIMD_WIDTH<float>;

int64_t whole_vectors(int64_t n) { return (n + L - 1) / L * L; }

/// Rows of contiguous elements, or with `column` those of a transposed matrix.
struct Matrix {
    float* data;
    int64_t row, column = 1;
};

struct Range {
    int64_t begin, end;
};

/// c (+)= a @ b. For the rows from i to j, columns(i) is where c's begin (a whole number of vectors), and steps(i, j) what
/// of a's columns counts. `width` is that of c and b, in whole vectors.
template <class Columns, class Steps>
void multiply(Matrix c, bool add, Matrix a, Matrix b, int64_t rows, int64_t width, const Columns& columns,
              const Steps& steps) {
    alignas(64) static constexpr float zeros[TILE_VECTORS * L] = {};
    const int64_t whole = width / (TILE_VECTORS * L) * (TILE_VECTORS * L);
    matmul::for_tiles(rows, matmul::tile_kernel<float, L, TILE_VECTORS>, [&](int64_t i, TileKernel<float> kernel, int64_t count) {
        const Range p = steps(i, i + count);
        TileInput<float> in{a.data + i * a.row + p.begin * a.column, a.row, a.column, nullptr, b.row, p.end - p.begin,
                            zeros, 0};
        for (int64_t j = columns(i), next; j < width; j = next) {
            const bool one = j >= whole || width - j < TILE_VECTORS * L;
            next = j + (one ? L : TILE_VECTORS * L);
            in.b = b.data + p.begin * b.row + j;
            float* out = c.data + i * c.row + j;
            if (add) in.start = out, in.start_row = c.row;
            (one ? matmul::tile_kernel<float, L, 1>(count) : kernel)(in, out, c.row);
        }
    });
}

/// Parts of a head's memory, one after the other.
struct Room {
    float* next;
    float* take(int64_t count) {
        float* taken = next;
        next += whole_vectors(count);
        return taken;
    }
};

/// x with rows of whole vectors: itself, or a copy.
Matrix in_vectors(Matrix x, int64_t rows, int64_t n, Room& room) {
    const int64_t width = whole_vectors(n);
    if (width == n) return x;
    const Matrix copy{room.take(rows * width), width};
    for (int64_t i = 0; i < rows; ++i) {
        std::copy_n(x.data + i * x.row, n, copy.data + i * width);
        std::fill(copy.data + i * width + n, copy.data + (i + 1) * width, 0.0f);
    }
    return copy;
}

/// Where a result with rows of whole vectors is computed: at its place, or beside.
Matrix place_for(Matrix out, int64_t rows, int64_t n, Room& room) {
    const int64_t width = whole_vectors(n);
    return width == n ? out : Matrix{room.take(rows * width), width};
}

void bring(Matrix out, Matrix from, int64_t rows, int64_t n) {
    if (out.data == from.data) return;
    for (int64_t i = 0; i < rows; ++i) std::copy_n(from.data + i * from.row, n, out.data + i * out.row);
}

void clear(Matrix out, int64_t rows, int64_t n) {
    for (int64_t i = 0; i < rows; ++i) std::fill_n(out.data + i * out.row, n, 0.0f);
}

class Attention {
public:
    /// `query` is query's place among the operands; key and value come after it.
    Attention(const Request& request, int query)
        : causal_(request.attrs.flag("is_causal")), scale_(float(request.attrs.number("scale"))) {
        const Operand &q = request.operands[query], &v = request.operands[query + 2];
        const int nd = q.ndim();
        queries_ = q.shape[nd - 2];
        keys_ = v.shape[nd - 2];
        size_ = q.shape[nd - 1];
        values_ = v.shape[nd - 1];
        width_ = whole_vectors(std::min(QUERIES, queries_));
        loops_ = collapse(request.operands, dims_but(nd - 2));
        for (const Operand& o : request.operands) rows_.push_back(o.strides[nd - 2]);
    }

    double head_ns() const {
        return double(queries_ * keys_) * (double(size_ + values_) / (5 * L) + 4.0 / L) * (causal_ ? 0.6 : 1);
    }
    int64_t heads() const { return loops_.numel; }

    template <class Body>
    void for_each_head(char* const* data, double ns, const Body& body) const {
        parallel_for(heads(), ns, [&](int64_t begin, int64_t end) {
            const Scratch<float> scratch(room());
            Walker walker(loops_, loops_.ndim(), data, begin);
            for (int64_t i = begin; i < end; ++i, walker.next()) body(walker.pointers(), Room{scratch.data()});
        });
    }

    void forward(char* const* p, Room room) const {
        const Matrix out = at(p, 0), q = at(p, 1), k = at(p, 2), v = in_vectors(at(p, 3), keys_, values_, room);
        const Matrix turned = block(size_, room), weights = block(keys_, room);
        const Matrix sums = place_for(out, std::min(QUERIES, queries_), values_, room);
        for (int64_t i = 0; i < queries_; i += QUERIES) {
            const Seen seen = seen_from(i);
            turn(turned, from(q, i), seen.queries, size_, scale_);
            weigh(weights, k, turned, seen);
            const Matrix here = from(out, i), result = sums.data == out.data ? here : sums;
            by_queries(result, weights, v, seen, values_);
            bring(here, result, seen.queries, values_);
        }
    }

    /// p: for query, for key, for value, grad, query, key, value.
    void backward(char* const* p, Room room) const {
        const Matrix g = at(p, 3), q = at(p, 4), k = at(p, 5), v = at(p, 6);
        const Matrix for_query = at(p, 0), for_key = at(p, 1), for_value = at(p, 2);
        const Matrix turned_query = block(size_, room), turned_grad = block(values_, room);
        const Matrix weights = block(keys_, room), slopes = block(keys_, room);
        const Matrix float_g = in_vectors(g, queries_, values_, room), float_q = in_vectors(q, queries_, size_, room);
        const Matrix float_k = in_vectors(k, keys_, size_, room), sums = place_for(for_query, QUERIES, size_, room);
        const Matrix key_sums = place_for(for_key, keys_, size_, room);
        const Matrix value_sums = place_for(for_value, keys_, values_, room);
        clear(key_sums, keys_, whole_vectors(size_));
        clear(value_sums, keys_, whole_vectors(values_));
        for (int64_t i = 0; i < queries_; i += QUERIES) {
            const Seen seen = seen_from(i);
            turn(turned_query, from(q, i), seen.queries, size_, scale_);
            turn(turned_grad, from(g, i), seen.queries, values_, 1.0f);
            weigh(weights, k, turned_query, seen);
            by_keys(value_sums, weights, from(float_g, i), seen, values_);
            scores(slopes, v, turned_grad, seen, values_);
            slope(slopes, weights, seen);
            const Matrix here = from(for_query, i), result = sums.data == for_query.data ? here : sums;
            by_queries(result, slopes, float_k, seen, size_);
            bring(here, result, seen.queries, size_);
            by_keys(key_sums, slopes, from(float_q, i), seen, size_);
        }
        bring(for_key, key_sums, keys_, size_);
        bring(for_value, value_sums, keys_, values_);
    }

private:
    /// Some queries, and how many keys one of them looks at.
    struct Seen {
        int64_t first, queries, keys;
    };

    Seen seen_from(int64_t first) const {
        const int64_t count = std::min(QUERIES, queries_ - first);
        return {first, count, causal_ ? std::min(keys_, first + count) : keys_};
    }

    /// How many of the queries do not look at a key.
    int64_t hidden(const Seen& seen, int64_t key) const {
        return causal_ ? std::max<int64_t>(0, key - seen.first) : 0;
    }

    Matrix at(char* const* p, int operand) const { return {reinterpret_cast<float*>(p[operand]), rows_[operand]}; }
    static Matrix from(Matrix x, int64_t row) { return {x.data + row * x.row, x.row}; }
    Matrix block(int64_t rows, Room& room) const { return {room.take(rows * width_), width_}; }

    int64_t room() const {
        const int64_t size = whole_vectors(size_), values = whole_vectors(values_), most = std::max(QUERIES, queries_);
        return (2 * keys_ + size_ + values_) * width_ + (keys_ + most) * 2 * (size + values);
    }

    /// Queries, or gradients, as columns; those that there are not are 0.
    void turn(Matrix to, Matrix x, int64_t queries, int64_t n, float scale) const {
        if (queries < width_) std::fill_n(to.data, n * width_, 0.0f);
        matmul::transpose(x.data, x.row, queries, n, to.data, width_);
        if (scale == 1.0f) return;
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n * width_; ++i) to.data[i] *= scale;
    }

    /// out[key][query] = rows[key] . turned[query] where the query looks at the key.
    void scores(Matrix out, Matrix rows, Matrix turned, const Seen& seen, int64_t n) const {
        multiply(
            out, false, rows, turned, seen.keys, width_, [&](int64_t i) { return hidden(seen, i) / L * L; },
            [=](int64_t, int64_t) { return Range{0, n}; });
    }

    /// out[query] = the sum over keys of factors[key][query] * rows[key]
    void by_queries(Matrix out, Matrix factors, Matrix rows, const Seen& seen, int64_t n) const {
        multiply(
            out, false, {factors.data, 1, width_}, rows, seen.queries, whole_vectors(n), [](int64_t) { return 0; },
            [&](int64_t, int64_t j) { return Range{0, causal_ ? std::min(seen.keys, seen.first + j) : seen.keys}; });
    }

    /// out[key] += the sum over queries of factors[key][query] * rows[query]
    void by_keys(Matrix out, Matrix factors, Matrix rows, const Seen& seen, int64_t n) const {
        multiply(
            out, true, factors, rows, seen.keys, whole_vectors(n), [](int64_t) { return 0; },
            [&](int64_t i, int64_t) { return Range{hidden(seen, i), seen.queries}; });
    }

    /// Calls f(row, first, hidden) for each key: from `first` on, whole vectors have a query that looks at it.
    template <class F>
    void for_keys(Matrix x, const Seen& seen, const F& f) const {
        for (int64_t j = 0; j < seen.keys; ++j) {
            const int64_t h = hidden(seen, j);
            f(x.data + j * width_, h / L * L, h);
        }
    }

    /// softmax(scale * k @ q), key by key; 0 where a query may not look.
    void weigh(Matrix weights, Matrix k, Matrix turned, const Seen& seen) const {
        const int64_t n = width_;
        scores(weights, k, turned, seen, size_);
        alignas(64) float largest[QUERIES], sums[QUERIES] = {};
        std::fill_n(largest, QUERIES, -HUGE_VALF);
        for_keys(weights, seen, [&](float* row, int64_t first, int64_t h) {
            std::fill(row, row + first, 0.0f);
            std::fill(row + first, row + h, -HUGE_VALF);  // its weight will be 0
            NORCH_INDEPENDENT
            for (int64_t i = first; i < n; ++i) largest[i] = row[i] > largest[i] ? row[i] : largest[i];
        });
        for_keys(weights, seen, [&](float* row, int64_t first, int64_t) {
            NORCH_INDEPENDENT
            for (int64_t i = first; i < n; ++i) {
                row[i] = math::exp(row[i] - largest[i]);
                sums[i] += row[i];
            }
        });
        for (int64_t i = 0; i < n; ++i) sums[i] = 1.0f / sums[i];
        for_keys(weights, seen, [&](float* row, int64_t first, int64_t) {
            NORCH_INDEPENDENT
            for (int64_t i = first; i < n; ++i) row[i] *= sums[i];
        });
    }

    /// From the gradient of the weights that of the scores, scale included.
    void slope(Matrix slopes, Matrix weights, const Seen& seen) const {
        const int64_t n = width_, ahead = weights.data - slopes.data;
        const float scale = scale_;
        alignas(64) float sums[QUERIES] = {};
        for_keys(slopes, seen, [&](float* row, int64_t first, int64_t h) {
            const float* weight = row + ahead;
            std::fill(row, row + h, 0.0f);
            NORCH_INDEPENDENT
            for (int64_t i = first; i < n; ++i) sums[i] += row[i] * weight[i];
        });
        for_keys(slopes, seen, [&](float* row, int64_t first, int64_t) {
            const float* weight = row + ahead;
            NORCH_INDEPENDENT
            for (int64_t i = first; i < n; ++i) row[i] = (row[i] - sums[i]) * weight[i] * scale;
        });
    }

    bool causal_;
    float scale_;
    int64_t queries_, keys_, size_, values_, width_;
    Loops loops_;
    std::vector<int64_t> rows_;  // each operand's stride, in elements
};

/// Whether operands from `first` on (query, key, value, and the outputs and gradient before) are float32, have one batch
/// shape and contiguous rows, and there is no mask.
bool is_plain(const Request& request, size_t first) {
    if (request.operands.size() != first + 3) return false;
    const Operand& query = request.operands[first];
    for (const Operand& o : request.operands) {
        if (o.dtype != DType::f32 || o.ndim() != query.ndim() || !o.numel()) return false;
        if (!std::equal(o.shape.begin(), o.shape.end() - 2, query.shape.begin())) return false;
        if (o.strides.back() != 1 && o.shape.back() != 1) return false;
    }
    return true;
}

KernelPtr forward(const Request& request) {
    if (!is_plain(request, 1)) return nullptr;
    Attention attention(request, 1);
    double ns = attention.head_ns();
    return make_kernel(double(attention.heads()) * ns, [=](char* const* data, const Scalar*) {
        attention.for_each_head(data, ns, [&](char* const* p, Room room) { attention.forward(p, room); });
    });
}

KernelPtr backward(const Request& request) {
    if (!is_plain(request, 4)) return nullptr;
    Attention attention(request, 4);
    double ns = 2.5 * attention.head_ns();
    return make_kernel(double(attention.heads()) * ns, [=](char* const* data, const Scalar*) {
        attention.for_each_head(data, ns, [&](char* const* p, Room room) { attention.backward(p, room); });
    });
}

}  // namespace

void add_attention(Registry& registry) {
    registry["scaled_dot_product_attention"] = forward;
    registry["scaled_dot_product_attention_grad"] = backward;
}

}  // namespace norch::nn
