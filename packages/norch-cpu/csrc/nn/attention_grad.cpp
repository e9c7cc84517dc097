// The gradient of attention. It computes the weights again (Dao et al., 2022): those of a block of queries for all keys.
#include "elementwise/functions.h"
#include "matmul/transpose.h"
#include "nn/attention.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::nn {
namespace {

enum Results { FOR_QUERY, FOR_KEY, FOR_VALUE, FOR_MASK };
enum Operands { GRAD, QUERY, KEY, VALUE };  // behind the results

int64_t width_of(const Attention& a) { return whole_vectors(std::min(QUERIES, a.queries)); }

/// Elements of memory for one head.
int64_t room_for(const Attention& a) {
    const int64_t size = whole_vectors(a.size), values = whole_vectors(a.values), most = std::max(QUERIES, a.queries);
    return ((a.has_mask ? 4 : 2) * whole_vectors(a.keys) + size + values) * width_of(a) + (2 * a.keys + 2 * most) * (size + values);
}

/// Where a result is summed: at its place, or in float32 beside.
Matrix place_for(const Rows& out, int64_t rows, int64_t n, Room& room) {
    const int64_t width = whole_vectors(n);
    if (out.dtype == DType::f32 && width == n) return {reinterpret_cast<float*>(out.data), out.row / 4};
    return {room.take(rows * width), width};
}

Matrix taken(const Rows& x, int64_t rows, int64_t n, Room& room) {
    const Matrix found = in_vectors(x, rows, n, room.next);
    if (found.data == room.next) room.take(rows * found.row);
    return found;
}

void clear(Matrix out, int64_t rows, int64_t n) {
    for (int64_t i = 0; i < rows; ++i) std::fill_n(out.data + i * out.row, n, 0.0f);
}

Matrix from(Matrix x, int64_t row) { return {x.data + row * x.row, x.row}; }

/// From scores their softmax, key by key; 0 where a query may not look.
void softmax(Matrix weights, const Seen& seen) {
    const int64_t n = weights.row;
    const Range all{0, seen.keys};
    alignas(64) float largest[QUERIES], sums[QUERIES] = {};
    std::fill_n(largest, QUERIES, -HUGE_VALF);
    for_keys(weights, seen, all, [&](float* row, int64_t first, int64_t h) {
        std::fill(row, row + first, 0.0f);
        std::fill(row + first, row + h, -HUGE_VALF);
        NORCH_INDEPENDENT
        for (int64_t i = first; i < n; ++i) largest[i] = row[i] > largest[i] ? row[i] : largest[i];
    });
    for (int64_t i = 0; i < n; ++i) largest[i] = largest[i] == -HUGE_VALF ? 0.0f : largest[i];
    for_keys(weights, seen, all, [&](float* row, int64_t first, int64_t) {
        NORCH_INDEPENDENT
        for (int64_t i = first; i < n; ++i) {
            row[i] = math::exp_normal(row[i] - largest[i]);
            sums[i] += row[i];
        }
    });
    for (int64_t i = 0; i < n; ++i) sums[i] = sums[i] == 0 ? 0.0f : 1.0f / sums[i];
    for_keys(weights, seen, all, [&](float* row, int64_t first, int64_t) {
        NORCH_INDEPENDENT
        for (int64_t i = first; i < n; ++i) row[i] *= sums[i];
    });
}

/// From the gradient of the weights that of the scores, scale included. `for_mask`: where they go without it, or null.
void slope(Matrix slopes, Matrix weights, const Seen& seen, float scale, const Rows* for_mask, float* room) {
    const int64_t n = slopes.row, ahead = weights.data - slopes.data;
    const Range all{0, seen.keys};
    alignas(64) float sums[QUERIES] = {};
    for_keys(slopes, seen, all, [&](float* row, int64_t first, int64_t h) {
        const float* weight = row + ahead;
        std::fill(row, row + h, 0.0f);
        NORCH_INDEPENDENT
        for (int64_t i = first; i < n; ++i) sums[i] += row[i] * weight[i];
    });
    for_keys(slopes, seen, all, [&](float* row, int64_t first, int64_t) {
        const float* weight = row + ahead;
        NORCH_INDEPENDENT
        for (int64_t i = first; i < n; ++i) row[i] = (row[i] - sums[i]) * weight[i] * (for_mask ? 1.0f : scale);
    });
    if (!for_mask) return;
    const int64_t width = whole_vectors(seen.keys);
    matmul::transpose(slopes.data, n, seen.keys, n, room, width);
    bring(*for_mask, {room, width}, seen.queries, seen.keys);
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < seen.keys * n; ++i) slopes.data[i] *= scale;
}

/// out[query] = the sum over keys of factors[key][query] * rows[key]
void by_queries(Matrix out, Matrix factors, Matrix rows, const Seen& seen, int64_t n) {
    const auto steps = [&](int64_t, int64_t j) {
        return Range{0, seen.is_causal ? std::min(seen.keys, seen.first + j) : seen.keys};
    };
    multiply(out, false, Matrix{factors.data, 1, factors.row}, rows, seen.queries, whole_vectors(n), [](int64_t) { return 0; }, steps,
             seen.in_blocks);
}

/// out[key] += the sum over queries of factors[key][query] * rows[query]
void by_keys(Matrix out, Matrix factors, Matrix rows, const Seen& seen, int64_t n) {
    const auto steps = [&](int64_t i, int64_t) { return Range{seen.hidden(i), seen.queries}; };
    multiply(out, true, factors, rows, seen.keys, whole_vectors(n), [](int64_t) { return 0; }, steps,
             seen.in_blocks);
}

void head_grad(const Attention& a, int results, char* const* p, Room room) {
    const int64_t width = width_of(a);
    const auto given = [&](Operands o) { return a.rows(p, results + o); };
    const Rows for_query = a.rows(p, FOR_QUERY), for_key = a.rows(p, FOR_KEY), for_value = a.rows(p, FOR_VALUE);
    const Matrix turned_query{room.take(a.size * width), width}, turned_grad{room.take(a.values * width), width};
    const Matrix weights{room.take(a.keys * width), width}, slopes{room.take(a.keys * width), width};
    const Matrix g = taken(given(GRAD), a.queries, a.values, room), q = taken(given(QUERY), a.queries, a.size, room);
    const Matrix k = taken(given(KEY), a.keys, a.size, room), v = taken(given(VALUE), a.keys, a.values, room);
    const Matrix query_sums = place_for(for_query, a.queries, a.size, room);
    const Matrix key_sums = place_for(for_key, a.keys, a.size, room);
    const Matrix value_sums = place_for(for_value, a.keys, a.values, room);
    clear(key_sums, a.keys, whole_vectors(a.size));
    clear(value_sums, a.keys, whole_vectors(a.values));
    const auto rows_of = [](Matrix x, int64_t first) {
        return Rows{reinterpret_cast<char*>(x.data + first * x.row), x.row * 4, DType::f32};
    };
    for (int64_t i = 0; i < a.queries; i += QUERIES) {
        const Seen seen = Seen::from(a, i);
        const Range all{0, seen.keys};
        turn(turned_query, rows_of(q, i), seen.queries, a.size, a.scale, nullptr);
        turn(turned_grad, rows_of(g, i), seen.queries, a.values, 1.0f, nullptr);
        scores(weights, k, turned_query, seen, all, a.size);
        if (a.has_mask) add_mask(weights, a.mask(p), seen, all, room.next);
        softmax(weights, seen);
        by_keys(value_sums, weights, from(g, i), seen, a.values);
        scores(slopes, v, turned_grad, seen, all, a.values);
        const Rows for_mask = a.rows(p, results - 1).from(i);
        slope(slopes, weights, seen, a.scale, results > FOR_MASK ? &for_mask : nullptr, room.next);
        by_queries(from(query_sums, i), slopes, k, seen, a.size);
        by_keys(key_sums, slopes, from(q, i), seen, a.size);
    }
    bring(for_query, query_sums, a.queries, a.size);
    bring(for_key, key_sums, a.keys, a.size);
    bring(for_value, value_sums, a.keys, a.values);
}

}  // namespace

[[gnu::cold]] KernelPtr attention_grad(const Attention& a, int results) {
    const double ns = 2.5 * a.head_ns();
    return make_kernel(double(a.heads()) * ns, [=](char* const* data, const Scalar*) {
        parallel_for(a.heads(), ns, [&](int64_t begin, int64_t end) {
            const Scratch<float> scratch(room_for(a));
            Walker walker(a.loops, a.loops.ndim(), data, begin);
            for (int64_t i = begin; i < end; ++i, walker.next()) head_grad(a, results, walker.pointers(), {scratch.data()});
        });
    });
}

}  // namespace norch::nn
