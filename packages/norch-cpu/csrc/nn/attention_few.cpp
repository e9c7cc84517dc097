// Attention of few queries, as in decoding: scores lie query by query, and heads that share keys and values are more
// queries of one head, so that these are read once. Of few heads the keys are in parts, which threads share.
#include "elementwise/functions.h"
#include "matmul/gemv.h"
#include "nn/attention.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::nn {
namespace {

constexpr int64_t KEYS = 64;
constexpr int64_t ITEMS = 16, LEAST_KEYS = 4 * KEYS;  // parts of all heads, and keys of a part

/// Heads that share keys and values: how many, and the bytes from one to the next.
struct Group {
    int64_t heads = 1, out = 0, query = 0, mask = 0;
};

/// Takes out of a call's loops one along which the key and the value repeat themselves.
Group take_group(Loops& loops) {
    for (int d = 0; d < loops.ndim(); ++d) {
        const auto at = size_t(d);
        auto& s = loops.strides;
        if (s[2][at] || s[3][at]) continue;
        const Group group{loops.shape[at], s[0][at], s[1][at], s.size() > 4 ? s[4][at] : 0};
        loops.numel /= group.heads;
        loops.shape.erase(loops.shape.begin() + d);
        for (auto& strides : s) strides.erase(strides.begin() + d);
        return group;
    }
    return {};
}

/// The softmax of one query as its keys become known.
struct Softmax {
    float largest = -HUGE_VALF, sum = 0;

    /// Takes in another's. Returns what sums of its own and of the other are multiplied by.
    std::pair<float, float> add(const Softmax& other) {
        const float most = std::max(largest, other.largest), shift = most == -HUGE_VALF ? 0.0f : most;
        const float own = math::exp_normal(largest - shift), others = math::exp_normal(other.largest - shift);
        *this = {most, sum * own + other.sum * others};
        return {own, others};
    }

    /// Scores become exponentials. Returns what sums of those before are multiplied by.
    float add(float* row, int64_t n) {
        const int64_t width = whole_vectors(n);
        std::fill(row + n, row + width, -HUGE_VALF);
        vector_t<float, L> most = load_vector<L>(row);
        for (int64_t i = L; i < width; i += L) {
            const auto next = load_vector<L>(row + i);
            most = next > most ? next : most;
        }
        float found = largest;
        for (int i = 0; i < L; ++i) found = most[i] > found ? most[i] : found;
        const float shift = found == -HUGE_VALF ? 0.0f : found;
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < width; ++i) row[i] = math::exp_normal(row[i] - shift);
        vector_t<float, L> sums = {};
        for (int64_t i = 0; i < width; i += L) sums += load_vector<L>(row + i);
        const float factor = math::exp_normal(largest - shift);
        float total = 0;
        for (int i = 0; i < L; ++i) total += sums[i];
        sum = sum * factor + total;
        largest = found;
        return factor;
    }
};

struct Few {
    Attention a;
    Group group;
    int64_t size, values;  // in whole vectors

    int64_t rows() const { return group.heads * a.queries; }
    int64_t room() const { return rows() * size + KEYS * (size + values) + rows() * 2 * KEYS + 4 * L; }
    int64_t seen() const { return a.is_causal ? std::min(a.keys, a.queries) : a.keys; }
    /// Keys of a part: however many threads there are, since they say how sums are rounded.
    int64_t part() const {
        const int64_t parts = std::clamp<int64_t>(seen() / LEAST_KEYS, 1, (ITEMS + a.heads() - 1) / std::max<int64_t>(1, a.heads()));
        return std::max(KEYS, (seen() + parts * KEYS - 1) / (parts * KEYS) * KEYS);
    }

    /// For each row f(row, head of the group, query).
    template <class F>
    void for_rows(const F& f) const {
        for (int64_t h = 0, r = 0; h < group.heads; ++h)
            for (int64_t i = 0; i < a.queries; ++i, ++r) f(r, h, i);
    }

    /// weights[row][key] = q[row] . keys[key], of keys as they lie unless they are shorter than whole vectors.
    void multiply_keys(Matrix q, const Rows& keys, int64_t count, float* key_room, Matrix weights) const {
        const auto multiply = [&]<class S>(const S* rows_of, int64_t row) {
            matmul::multiply_dots(q.data, size, rows(), rows_of, row, count, size, weights.data, KEYS, 1);
        };
        if (size == a.size && a.dtype == DType::bf16) return multiply(reinterpret_cast<const bfloat16*>(keys.data), keys.row / 2);
        if (size == a.size && a.dtype == DType::f16) return multiply(reinterpret_cast<const half*>(keys.data), keys.row / 2);
        const Matrix k = in_vectors(keys, count, a.size, key_room);
        multiply(static_cast<const float*>(k.data), k.row);
    }

    /// Sums of the values of the keys [first, last), not yet divided by those of their exponentials.
    void attend(char* const* p, int64_t first, int64_t last, Softmax* softmax, Matrix sums, Room room) const {
        const Matrix q{room.take(rows() * size), size};
        const Matrix weights{room.take(rows() * KEYS), KEYS};
        float *key_room = room.take(KEYS * size), *value_room = room.take(KEYS * values), *added = room.next;
        for_rows([&](int64_t r, int64_t h, int64_t i) {
            const Rows from{p[1] + h * group.query + i * a.row[1], 0, a.dtype};
            const float* x = in_vectors(from, 1, a.size, q.data + r * size).data;
            for (int64_t c = 0; c < size; ++c) q.data[r * size + c] = x[c] * a.scale;
            softmax[r] = {};
        });
        for (int64_t key = first; key < last; key += KEYS) {
            const int64_t count = std::min(KEYS, last - key);
            multiply_keys(q, a.rows(p, 2).from(key), count, key_room, weights);
            for_rows([&](int64_t r, int64_t h, int64_t i) {
                float* row = weights.data + r * KEYS;
                if (a.has_mask) {
                    Mask mask = a.mask(p);
                    mask.data += h * group.mask;
                    mask.load(i, key, 1, count, added, KEYS);
                    for (int64_t j = 0; j < count; ++j) row[j] = masked(row[j], added[j]);
                }
                if (a.is_causal)
                    for (int64_t j = std::max<int64_t>(0, i + 1 - key); j < count; ++j) row[j] = -HUGE_VALF;
                const float factor = softmax[r].add(row, count);
                for (int64_t c = 0; c < values && key > first; ++c) sums.data[r * values + c] *= factor;
            });
            const Matrix v = in_vectors(a.rows(p, 3).from(key), count, a.values, value_room);
            multiply(
                sums, key > first, weights, v, rows(), values, [](int64_t) { return 0; },
                [=](int64_t, int64_t) { return Range{0, count}; });
        }
    }

    void bring_sums(char* const* p, const Softmax* softmax, Matrix sums) const {
        for_rows([&](int64_t r, int64_t h, int64_t i) {
            float* row = sums.data + r * values;
            const float scale = softmax[r].sum > 0 ? 1 / softmax[r].sum : softmax[r].sum;
            for (int64_t c = 0; c < values; ++c) row[c] *= scale;
            bring({p[0] + h * group.out + i * a.row[0], 0, a.dtype}, {row, values}, 1, a.values);
        });
    }
};

}  // namespace

[[gnu::cold]] KernelPtr attend_few(const Attention& attention) {
    Few few{attention, {}, whole_vectors(attention.size), whole_vectors(attention.values)};
    few.group = take_group(few.a.loops);
    const int64_t bytes = few.a.keys * (few.a.size + few.a.values) * size_of(few.a.dtype);
    const double ns = std::max(few.a.head_ns() * double(few.group.heads), double(bytes) / 10);
    const int64_t part = few.part(), parts = std::max<int64_t>(1, (few.seen() + part - 1) / part);
    return make_kernel(double(few.a.heads()) * ns, [=](char* const* data, const Scalar*) {
        const int64_t items = few.a.heads() * parts, rows = few.rows(), area = rows * few.values;
        const int64_t kept = parts > 1 ? items : 0;
        const Scratch<float> sums(kept * area);
        std::vector<Softmax> softmax(static_cast<size_t>(kept * rows));
        parallel_for(items, ns / double(parts), [&](int64_t begin, int64_t end) {
            const Scratch<float> scratch(few.room()), own(area);
            std::vector<Softmax> own_softmax(static_cast<size_t>(rows));
            Walker walker(few.a.loops, few.a.loops.ndim(), data, begin / parts);
            for (int64_t i = begin; i < end; ++i) {
                const int64_t first = i % parts * part, last = std::min(few.seen(), first + part);
                const Matrix to{kept ? sums.data() + i * area : own.data(), few.values};
                Softmax* const state = kept ? softmax.data() + i * rows : own_softmax.data();
                few.attend(walker.pointers(), first, last, state, to, {scratch.data()});
                if (!kept) few.bring_sums(walker.pointers(), state, to);
                if (last == few.seen()) walker.next();
            }
        });
        Walker walker(few.a.loops, few.a.loops.ndim(), data, 0);
        for (int64_t i = 0; i < kept; i += parts, walker.next()) {
            const Matrix all{sums.data() + i * area, few.values};
            Softmax* const state = softmax.data() + i * rows;
            for (int64_t r = rows; r < parts * rows; ++r) {
                const auto [factor, others] = state[r % rows].add(state[r]);
                float* const row = all.data + r % rows * few.values;
                for (int64_t c = 0; c < few.values; ++c) row[c] = row[c] * factor + all.data[r * few.values + c] * others;
            }
            few.bring_sums(walker.pointers(), state, all);
        }
    });
}

}  // namespace norch::nn
