// Attention of many queries: those of a block are the columns of a matrix of scores, some keys of which are in the first
// cache together. The softmax is taken as its parts become known (Milakov & Gimelshein, 2018).
#include "elementwise/functions.h"
#include "nn/attention.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::nn {
namespace {

constexpr int64_t KEYS = 128;

/// What is known of the softmax of some queries: their largest scores, and the sums of exp(score - largest).
struct Softmax {
    alignas(64) float largest[QUERIES], sums[QUERIES], factors[QUERIES];

    Softmax() { std::fill_n(largest, QUERIES, -HUGE_VALF), std::fill_n(sums, QUERIES, 0.0f); }

    /// Scores of a range of keys become their exponentials; `factors` is what sums of those before are multiplied by.
    void add(Matrix scores, const Seen& seen, Range keys) {
        const int64_t n = scores.row;
        alignas(64) float most[QUERIES];
        std::copy_n(largest, n, most);
        for_keys(scores, seen, keys, [&](float* row, int64_t first, int64_t h) {
            std::fill(row, row + first, 0.0f);
            std::fill(row + first, row + h, -HUGE_VALF);  // its weight will be 0
            NORCH_INDEPENDENT
            for (int64_t i = first; i < n; ++i) most[i] = row[i] > most[i] ? row[i] : most[i];
        });
        for (int64_t i = 0; i < n; ++i) {
            const float shift = most[i] == -HUGE_VALF ? 0.0f : most[i];  // of a query that has seen no key yet
            factors[i] = math::exp_normal(largest[i] - shift);
            sums[i] *= factors[i];
            largest[i] = most[i];
            most[i] = shift;
        }
        for_keys(scores, seen, keys, [&](float* row, int64_t first, int64_t) {
            NORCH_INDEPENDENT
            for (int64_t i = first; i < n; ++i) {
                row[i] = math::exp_normal(row[i] - most[i]);
                sums[i] += row[i];
            }
        });
    }
};

void scale_row(float* row, int64_t n, float factor) {
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) row[i] *= factor;
}

/// Elements of memory for one block of queries.
int64_t room_for(const Attention& a) {
    const int64_t width = whole_vectors(std::min(QUERIES, a.queries)), keys = whole_vectors(std::min(KEYS, a.keys));
    const int64_t sides = whole_vectors(a.size) + whole_vectors(a.values);
    return (3 * keys + whole_vectors(a.size)) * width + (keys + QUERIES) * sides;
}

void attend_block(const Attention& a, char* const* p, int64_t first, Room room) {
    const Seen seen = Seen::from(a, first);
    const int64_t width = whole_vectors(std::min(QUERIES, a.queries)), values = whole_vectors(a.values);
    const int64_t most = std::min(KEYS, a.keys);
    const Matrix turned{room.take(a.size * width), width}, weights{room.take(most * width), width};
    const Matrix sums{room.take(QUERIES * values), values};
    float* key_room = room.take(std::max(most, QUERIES) * whole_vectors(a.size));
    float *value_room = room.take(most * values), *mask_room = room.next;
    turn(turned, a.rows(p, 1).from(first), seen.queries, a.size, a.scale, key_room);
    const bool in_blocks = matmul::HAS_BLOCKS && a.in_blocks;
    // In blocks: the queries, packed once, and the weights, rounded.
    const Scratch<uint32_t> packed(in_blocks ? width / matmul::BLOCK_LINES * block_line(a.size) : 0);
    const Scratch<bfloat16> rounded(in_blocks ? std::max(most, a.size) * width : 0);
    if (in_blocks) {
        narrow_row(turned.data, a.size * width, rounded.data());
        pack_columns({rounded.data(), width, 1}, a.size, width, packed.data());
    }
    Softmax softmax;
    for (int64_t key = 0; key < seen.keys; key += most) {
        const Range keys{key, std::min(seen.keys, key + most)};
        const int64_t count = keys.end - key;
        const Rows k = a.rows(p, 2).from(key), v = a.rows(p, 3).from(key);
        const Factor lines = in_blocks               ? Factor(k, a.size)
                             : k.dtype == DType::f32 ? Factor(Matrix{reinterpret_cast<float*>(k.data), k.row / 4})
                                                     : Factor(in_vectors(k, count, a.size, key_room));
        scores(weights, lines, turned, seen, keys, a.size, in_blocks ? packed.data() : nullptr);
        if (a.has_mask) add_mask(weights, a.mask(p), seen, keys, mask_room);
        softmax.add(weights, seen, keys);
        if (key)
            for (int64_t i = 0; i < seen.queries; ++i) scale_row(sums.data + i * values, values, softmax.factors[i]);
        if (in_blocks) narrow_row(weights.data, count * width, rounded.data());
        multiply(
            sums, key > 0, in_blocks ? Factor(rounded.data(), 1, width) : Factor(Matrix{weights.data, 1, width}),
            in_blocks ? Factor(v, a.values) : Factor(in_vectors(v, count, a.values, value_room)), seen.queries, values,
            [](int64_t) { return 0; },
            [&](int64_t, int64_t j) {
                return Range{0, a.is_causal ? std::clamp<int64_t>(first + j - key, 1, count) : count};
            },
            in_blocks);
    }
    for (int64_t i = 0; i < seen.queries; ++i)
        scale_row(sums.data + i * values, values, softmax.sums[i] > 0 ? 1 / softmax.sums[i] : softmax.sums[i]);
    bring(a.rows(p, 0).from(first), sums, seen.queries, a.values);
}

}  // namespace

[[gnu::cold]] KernelPtr attend(const Attention& a) {
    const int64_t blocks = (a.queries + QUERIES - 1) / QUERIES, items = a.heads() * blocks;
    const double ns = a.head_ns() / double(blocks);
    return make_kernel(double(items) * ns, [=](char* const* data, const Scalar*) {
        parallel_for(items, ns, [&](int64_t begin, int64_t end) {
            const Scratch<float> scratch(room_for(a));
            std::vector<char*> p(a.loops.strides.size());
            for (int64_t i = begin; i < end; ++i) {
                std::copy_n(data, p.size(), p.data());
                a.loops.move(p.data(), a.loops.ndim(), i / blocks);
                attend_block(a, p.data(), i % blocks * QUERIES, Room{scratch.data()});
            }
        });
    });
}

}  // namespace norch::nn
