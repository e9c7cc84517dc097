// resample: along one dim each element of the result is a sum of neighbours in the input, with weights.
#include <algorithm>

#include "common/kernel.h"
#include "common/image_layout.h"
#include "runtime/allocator.h"
#include "runtime/families.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"
#include "runtime/tile.h"

namespace norch::nn {
namespace {

/// Dims before the one that changes, which has n elements and gets `count`, and those that lie within it in memory.
struct Resampling {
    int64_t outer = 1, n, count, inner = 1, taps;

    Resampling(const Operand& out, const Operand& x, int64_t dim, int64_t taps)
        : n(x.shape[size_t(dim)]), count(out.shape[size_t(dim)]), taps(taps) {
        const bool is_last = !x.is_contiguous() || !out.is_contiguous();  // the channels are, of which dim is none
        for (int64_t d = 0; d < x.ndim(); ++d)
            if (d != dim) (d > dim || (is_last && d == 1) ? inner : outer) *= x.shape[size_t(d)];
    }
};

/// out = the sum of `taps` rows of `inner` elements, one after another; what has weight 0 is not read.
template <class T>
void sum_rows(const T* x, const T* weights, int64_t taps, int64_t inner, T* out) {
    constexpr int L = SIMD_WIDTH<T>;
    using V = vector_t<T, L>;
    int64_t c = 0;
    for (; c + 2 * L <= inner; c += 2 * L) {
        V low{}, high{};
        for (int64_t t = 0; t < taps; ++t) {
            if (weights[t] == 0) continue;
            low += weights[t] * load_vector<L>(x + t * inner + c);
            high += weights[t] * load_vector<L>(x + t * inner + c + L);
        }
        store_vector(out + c, low), store_vector(out + c + L, high);
    }
    for (; c < inner; c += L) {
        if (c + L > inner) {
            if (inner < L) break;
            c = inner - L;
        }
        V sum{};
        for (int64_t t = 0; t < taps; ++t)
            if (weights[t] != 0) sum += weights[t] * load_vector<L>(x + t * inner + c);
        store_vector(out + c, sum);
    }
    for (; c < inner; ++c) {
        T sum = 0;
        for (int64_t t = 0; t < taps; ++t)
            if (weights[t] != 0) sum += weights[t] * x[t * inner + c];
        out[c] = sum;
    }
}

/// Of whole rows: the elements of a place lie next to each other.
template <class T>
void along_rows(const Resampling& s, const T* x, const int64_t* first, const T* weights, T* out, int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
        const int64_t i = item % s.count;
        const T* const from = x + (item / s.count * s.n + first[i]) * s.inner;
        sum_rows(from, weights + i * s.taps, s.taps, s.inner, out + item * s.inner);
    }
}

constexpr int64_t BLOCK = 64;
template <class T>
constexpr int64_t LANES = 2 * SIMD_WIDTH<T>;

/// Of single elements: those of LANES lines are brought side by side, for a block of results at a time.
template <class T>
void across_lines(const Resampling& s, const T* x, const int64_t* first, const T* weights, T* out, int64_t begin, int64_t end) {
    constexpr int64_t L = LANES<T>, SIZE = sizeof(T);
    int64_t widest = 0;
    for (int64_t i = 0; i < s.count; i += BLOCK) {
        const auto [low, high] = std::minmax_element(first + i, first + std::min(i + BLOCK, s.count));
        widest = std::max(widest, *high + s.taps - *low);
    }
    Scratch<T> given(widest * L), made(BLOCK * L);
    std::fill_n(given.data(), widest * L, T(0));
    for (int64_t group = begin; group < end; ++group) {
        const int64_t lines = std::min(L, s.outer - group * L);
        for (int64_t i = 0; i < s.count; i += BLOCK) {
            const int64_t results = std::min(BLOCK, s.count - i);
            const auto [low, high] = std::minmax_element(first + i, first + i + results);
            const int64_t start = *low, size = *high + s.taps - start;
            char* const from = reinterpret_cast<char*>(const_cast<T*>(x + group * L * s.n + start));
            copy_tile({reinterpret_cast<char*>(given.data()), L * SIZE, SIZE}, {from, SIZE, s.n * SIZE}, size, lines, SIZE);
            for (int64_t j = 0; j < results; ++j)
                sum_rows(given.data() + (first[i + j] - start) * L, weights + (i + j) * s.taps, s.taps, L, made.data() + j * L);
            char* const to = reinterpret_cast<char*>(out + group * L * s.count + i);
            copy_tile({to, s.count * SIZE, SIZE}, {reinterpret_cast<char*>(made.data()), SIZE, L * SIZE}, lines, results, SIZE);
        }
    }
}

template <class T>
[[gnu::cold]] KernelPtr resample(const Request& r) {
    const Operand& x = r.operands[1];
    const Resampling s(r.operands[0], x, r.attrs.integer("dim"), r.operands[3].shape[1]);
    const bool is_across = s.inner == 1 && s.outer * 2 > LANES<T>;
    const int64_t items = is_across ? (s.outer + LANES<T> - 1) / LANES<T> : s.outer * s.count;
    const double ns = double(s.taps) * (is_across ? double(s.count * LANES<T>) : double(s.inner)) * 0.2 + 2;
    return make_kernel(double(items) * ns, [=](char* const* data, const Scalar*) {
        const int64_t* const first = reinterpret_cast<const int64_t*>(data[2]);
        for (int64_t i = 0; i < s.count; ++i)
            if (first[i] < 0 || first[i] > s.n - s.taps) throw IndexOutOfBounds(first[i], s.n);
        parallel_for(items, ns, [&](int64_t begin, int64_t end) {
            const auto run = is_across ? across_lines<T> : along_rows<T>;
            run(s, reinterpret_cast<const T*>(data[1]), first, reinterpret_cast<const T*>(data[3]),
                reinterpret_cast<T*>(data[0]), begin, end);
        });
    });
}

}  // namespace

void add_resampling(Registry& registry) {
    registry["resample"] = [](const Request& r) -> KernelPtr {
        const Operand &out = r.operands[0], &x = r.operands[1];
        const auto is_last = [](const Operand& o) { return o.ndim() == 4 && is_channels_last(o); };
        if (!(out.is_contiguous() && x.is_contiguous()) && !(r.attrs.integer("dim") > 1 && is_last(out) && is_last(x)))
            return nullptr;
        if (x.dtype != out.dtype || r.operands[3].dtype != out.dtype) return nullptr;
        for (size_t i : {2, 3})
            if (!r.operands[i].is_contiguous()) return nullptr;
        if (out.dtype == DType::f32) return resample<float>(r);
        return out.dtype == DType::f64 ? resample<double>(r) : nullptr;
    };
}

}  // namespace norch::nn
