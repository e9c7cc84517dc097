// What the pooling kernels share: windows over planes, and the two passes that make a row of results.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "common/kernel.h"
#include "reduction/elements.h"
#include "reduction/reduction.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"

namespace norch::nn {

/// Windows of kh * kw elements over planes of h * w, rows * columns of them.
struct Pool {
    Pool(const Operand& whole, const Operand& pooled, const Attrs& attrs);
    int64_t planes, channels, h, w, rows, columns;
    int64_t kh, kw, step_y, step_x, gap_y, gap_x, top, left;

    /// Elements of a row that its windows see, padding included.
    int64_t line() const { return (columns - 1) * step_x + (kw - 1) * gap_x + 1; }
    double window() const { return double(kh * kw); }
    /// Whether they are 2 * 2, side by side, none with padding.
    bool is_halving() const {
        return kh == 2 && kw == 2 && step_y == 2 && step_x == 2 && gap_y == 1 && gap_x == 1 && !top && !left &&
               rows * 2 <= h && columns * 2 <= w;
    }
};

/// Where the planes of a (n, c, h, w) operand are.
struct Planes {
    explicit Planes(const Operand& o)
        : channels(std::max<int64_t>(o.shape[1], 1)), n(o.strides[0]), c(o.strides[1]), row(o.strides[2]), column(o.strides[3]) {}
    int64_t channels, n, c, row, column;
    int64_t at(int64_t plane) const {
        return n == channels * c ? plane * c : plane / channels * n + plane % channels * c;
    }
};

/// How the loops of one type T see elements of a dtype: as they lie, or 16-bit floats and short integers as what they are
/// computed in, row by row.
template <class T>
struct SeenAs {
    reduction::Elements elements;

    int64_t size() const { return elements.size; }
    bool is_direct(int64_t column) const { return elements.is_seen && column == 1; }
    void load(T* to, const char* x, int64_t column, int64_t n) const {
        if (!is_direct(column)) return elements.load(to, x, column * size(), n);
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) to[i] = reinterpret_cast<const T*>(x)[i];
    }
    /// n elements that lie `column` apart: where they are, or in `buffer`.
    const T* row(const char* x, int64_t column, int64_t n, T* buffer) const {
        if (is_direct(column)) return reinterpret_cast<const T*>(x);
        load(buffer, x, column, n);
        return buffer;
    }
    void store(char* out, const T* x, int64_t n) const { elements.store(out, size(), x, n); }
};

/// Calls f(SeenAs<T>) for what elements of a dtype are computed in.
template <class F>
KernelPtr visit_seen(DType dtype, const F& f) {
    switch (dtype) {
        case DType::f16: return f(SeenAs<float>{reduction::ElementsOf<half, float>::all});
        case DType::bf16: return f(SeenAs<float>{reduction::ElementsOf<bfloat16, float>::all});
        case DType::f32: return f(SeenAs<float>{reduction::ElementsOf<float>::all});
        case DType::f64: return f(SeenAs<double>{reduction::ElementsOf<double>::all});
        case DType::u8: return f(SeenAs<int32_t>{reduction::ElementsOf<uint8_t, int32_t>::all});
        case DType::i8: return f(SeenAs<int32_t>{reduction::ElementsOf<int8_t, int32_t>::all});
        case DType::i16: return f(SeenAs<int32_t>{reduction::ElementsOf<int16_t, int32_t>::all});
        case DType::i32: return f(SeenAs<int32_t>{reduction::ElementsOf<int32_t>::all});
        case DType::i64: return f(SeenAs<int64_t>{reduction::ElementsOf<int64_t>::all});
        default: return nullptr;
    }
}

/// The same for floating dtypes.
template <class F>
KernelPtr visit_seen_floating(DType dtype, const F& f) {
    return visit_seen(dtype, [&]<class T>(SeenAs<T> seen) -> KernelPtr {
        if constexpr (std::is_floating_point_v<T>) return f(seen);
        else return nullptr;
    });
}

/// line[x] = F over a window's elements above each other, for output row y. `buffer` has room for a row.
template <class F, class T>
void pool_down(const Pool& p, const Planes& from, const SeenAs<T>& seen, const char* plane, int64_t y, T* line, T* buffer) {
    const int64_t length = p.line();
    const int64_t end = std::min(length, p.left + p.w);
    std::fill_n(line, std::min(p.left, length), F::template empty<T>);
    if (end < length) std::fill_n(line + end, length - end, F::template empty<T>);
    bool is_first = true;
    T* to = line + p.left;
    for (int64_t i = 0; i < p.kh; ++i) {
        const int64_t at = y * p.step_y - p.top + i * p.gap_y;
        if (at < 0 || at >= p.h) continue;
        const char* row = plane + at * from.row * seen.size();
        const int64_t n = end - p.left;
        if (is_first) {
            seen.load(to, row, from.column, n);
        } else {
            const T* x = seen.row(row, from.column, n, buffer);
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < n; ++j) to[j] = F::apply(to[j], x[j]);
        }
        is_first = false;
    }
    if (is_first && end > p.left) std::fill_n(to, end - p.left, F::template empty<T>);
}

/// F of two elements beside each other, STEP from pair to pair, in vectors: GCC 12 takes such pairs one by one.
template <class F, int STEP, class T>
void pairs_across(const T* line, int64_t n, T* out) {
    constexpr int N = SIMD_WIDTH<T>;
    for (int64_t i = 0; i < n; i += N) {
        const int64_t x = std::min(i, n - N);  // the last step goes back over what is done
        const T* const at = line + x * STEP;
        const auto a = load_vector<N>(at), b = load_vector<N>(at + (STEP == 1 ? 1 : N));
        if constexpr (STEP == 1)
            store_vector(out + x, F::apply(a, b));
        else
            store_vector(out + x, F::apply(deinterleave<0, N>(a, b), deinterleave<1, N>(a, b)));
    }
}

/// out[x] = F over a window's elements of `line` beside each other; K and STEP are 0 where they are not known.
template <class F, int K, int STEP, class T>
void pool_across(const Pool& p, const T* line, T* out) {
    if constexpr (K == 2 && std::is_same_v<T, float>)
        if (p.columns >= SIMD_WIDTH<float>) return pairs_across<F, STEP>(line, p.columns, out);
    const int64_t k = K ? K : p.kw, step = STEP ? STEP : p.step_x, gap = K ? 1 : p.gap_x;
    NORCH_INDEPENDENT
    for (int64_t x = 0; x < p.columns; ++x) {
        const T* at = line + x * step;
        T value = at[0];
        for (int64_t j = 1; j < k; ++j) value = F::apply(value, at[j * gap]);
        out[x] = value;
    }
}

/// The same of windows one element apart, an element or three of each at a time: whole vectors, in the same order. Returns where
/// they are, which is `value` unless they have one element.
template <class F, class T>
__attribute__((noinline)) const T* pool_everywhere(const Pool& p, const T* line, T* value) {
    const int64_t n = (p.columns - 1) * p.step_x + 1;
    const T* first = line;
    for (int64_t j = 1; j < p.kw; first = value) {
        const T *a = line + j * p.gap_x, *b = a + p.gap_x, *c = b + p.gap_x;
        if (j + 2 < p.kw) {
            NORCH_INDEPENDENT
            for (int64_t x = 0; x < n; ++x) value[x] = F::apply(F::apply(F::apply(first[x], a[x]), b[x]), c[x]);
            j += 3;
        } else {
            NORCH_INDEPENDENT
            for (int64_t x = 0; x < n; ++x) value[x] = F::apply(first[x], a[x]);
            j += 1;
        }
    }
    return first;
}

/// Whether that is quicker than windows one by one, of which the compiler vectorises sums.
template <class F, class T>
bool worth_everywhere(const Pool& p) {
    if constexpr (!std::is_same_v<T, float>) return false;
    const int64_t step = std::is_same_v<F, reduction::Sum> ? 2 : SIMD_WIDTH<T>;
    return p.step_x <= step && (p.kw > 3 || p.gap_x != 1);
}

template <class F, class T>
void pool_rows(const Pool& p, const Planes& from, const SeenAs<T>& seen, const char* data, char* out, int64_t begin, int64_t end) {
    const int64_t length = p.line();
    Pool last = p;  // what is left to do of each row
    bool everywhere = worth_everywhere<F, T>(p);
    // Largest elements of windows side by side are those of pairs, of pairs of them, and so on.
    if constexpr (std::is_same_v<F, reduction::Largest> && std::is_same_v<T, float>)
        if (p.gap_x == 1 && p.step_x == p.kw && p.columns >= SIMD_WIDTH<float>)
            while (last.kw % 4 == 0) last.kw /= 2, last.step_x /= 2;
    const bool in_pairs = last.kw != p.kw;
    if (in_pairs) everywhere = false;
    const bool is_direct = seen.is_direct(from.column);
    Scratch<T> line(2 * length + p.w + p.columns);
    T *const second = line.data() + length, *const buffer = second + length, *const made = buffer + p.w;
    auto across = pool_across<F, 0, 0, T>;
    if (p.gap_x == 1) {
        if (last.kw == 2 && last.step_x == 2) across = pool_across<F, 2, 2, T>;
        if (p.kw == 2 && p.step_x == 1) across = pool_across<F, 2, 1, T>;
        if (p.kw == 3 && p.step_x == 2) across = pool_across<F, 3, 2, T>;
        if (p.kw == 3 && p.step_x == 1) across = pool_across<F, 3, 1, T>;
        if constexpr (std::is_same_v<T, float>)
            if (p.kw == 3 && p.step_x == 3) across = pool_across<F, 3, 3, T>;
    }
    // Windows in single rows, without padding, read them where they lie.
    const bool has_rows = p.kh == 1 && !p.top && !p.left && length <= p.w && (p.rows - 1) * p.step_y < p.h && is_direct;
    if (everywhere) last.kw = 1;
    for (int64_t i = begin; i < end; ++i) {
        const T* found = line.data();
        const char* const plane = data + from.at(i / p.rows) * seen.size();
        const int64_t y = i % p.rows;
        if (has_rows) found = reinterpret_cast<const T*>(plane) + y * p.step_y * from.row;
        else pool_down<F>(p, from, seen, plane, y, line.data(), buffer);
        if constexpr (std::is_same_v<T, float>) {
            for (int64_t k = p.kw; k > last.kw && in_pairs; k /= 2) {
                T* const to = found == second ? line.data() : second;
                pairs_across<F, 2>(found, p.columns * k / 2, to);
                found = to;
            }
            if (everywhere) found = pool_everywhere<F>(p, found, second);
        }
        char* const row = out + i * p.columns * seen.size();
        if (seen.elements.is_seen) {
            across(last, found, reinterpret_cast<T*>(row));
        } else {
            across(last, found, made);
            seen.store(row, made, p.columns);
        }
    }
}

/// The kernel of max_pool2d or sum_pool2d, row by row.
template <class F, class T>
[[gnu::cold]] KernelPtr pooled(const Request& r, const SeenAs<T>& seen) {
    const Pool p(r.operands[1], r.operands[0], r.attrs);
    const Planes from(r.operands[1]);
    const double ns = double(p.columns) * (1 + 0.2 * p.window());
    return parallel_kernel(p.planes * p.rows, ns, [=](char* const* data, int64_t begin, int64_t end) {
        pool_rows<F>(p, from, seen, data[1], data[0], begin, end);
    });
}

/// max_pool2d, sum_pool2d and their gradients where all operands are channels-last, else null.
KernelPtr pooling_channels_last(const Request& request);  // pooling_last.cpp

void add_sum_pooling(Registry&);  // pooling_sum.cpp

}  // namespace norch::nn
