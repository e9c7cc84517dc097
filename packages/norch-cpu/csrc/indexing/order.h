// Elements as keys, unsigned integers in the wanted order, each with its index: what sorts and selections work on.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>

#include "common/layout.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"
#include "runtime/tile.h"

namespace norch::indexing {
namespace {

constexpr int64_t SHORT = 192;  // elements up to which comparisons are faster

template <class T>
using unsigned_t = std::conditional_t<
    sizeof(T) == 8, uint64_t,
    std::conditional_t<sizeof(T) == 4, uint32_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;

template <class T>
constexpr bool is_float = std::is_floating_point_v<compute_t<T>>;

/// An unsigned integer that is ordered as the elements are: NaN last, and both zeros the same. Without branches, so that loops
/// vectorise.
template <class T>
inline unsigned_t<T> key_of(T x) {
    using U = unsigned_t<T>;
    constexpr U sign = U(U(1) << (8 * sizeof(T) - 1));
    U bits = bit_cast<U>(x);
    if constexpr (is_float<T>) {
        bits = (bits & U(~sign)) == 0 ? U(0) : bits;
        const U key = U(bits ^ U(U(-U(bits >> (8 * sizeof(T) - 1))) | sign));
        return load(x) != load(x) ? U(~U(0)) : key;
    } else {
        return std::is_signed_v<T> ? U(bits ^ sign) : bits;
    }
}

/// A key and its index: in one integer where both fit.
struct Packed {
    uint64_t bits;
    Packed() = default;
    Packed(uint64_t key, uint64_t index) : bits(key << 32 | index) {}
    uint64_t key() const { return bits >> 32; }
    int64_t index() const { return int64_t(bits & 0xffffffffu); }
    bool operator<(Packed other) const { return bits < other.bits; }
};
struct Pair {
    uint64_t first, second;
    Pair() = default;
    Pair(uint64_t key, uint64_t index) : first(key), second(index) {}
    uint64_t key() const { return first; }
    int64_t index() const { return int64_t(second); }
    bool operator<(const Pair& other) const {
        return first != other.first ? first < other.first : second < other.second;
    }
};

/// Sorts by one digit of eight bits after the other, the lowest first. Returns where the result is: in a or in b.
template <int BYTES, class Entry>
Entry* radix_sort(Entry* a, Entry* b, int64_t n) {
    Scratch<int64_t> counts(BYTES * 256);
    std::memset(counts.data(), 0, BYTES * 256 * sizeof(int64_t));
    for (int64_t i = 0; i < n; ++i)
        for (int d = 0; d < BYTES; ++d) ++counts[d * 256 + int64_t(a[i].key() >> (8 * d) & 0xff)];
    for (int d = 0; d < BYTES; ++d) {
        int64_t* count = counts.data() + d * 256;
        if (count[a[0].key() >> (8 * d) & 0xff] == n) continue;  // one digit only
        int64_t start = 0;
        for (int k = 0; k < 256; ++k) {
            int64_t size = count[k];
            count[k] = start;
            start += size;
        }
        for (int64_t i = 0; i < n; ++i) b[count[a[i].key() >> (8 * d) & 0xff]++] = a[i];
        std::swap(a, b);
    }
    return a;
}

/// The dtypes of most numbers that are looked for; norch's formula serves the others. Calls f as `visit` does, or gives null.
template <class F>
[[gnu::cold]] KernelPtr visit_frequent(DType dtype, const F& f) {
    switch (dtype) {
        case DType::f64: return f(Tag<double>{});
        case DType::f32: return f(Tag<float>{});
        case DType::i64: return f(Tag<int64_t>{});
        case DType::i32: return f(Tag<int32_t>{});
        default: return nullptr;
    }
}

struct Line {
    char *values, *indices;
    const char* x;
    int64_t values_stride, indices_stride, x_stride, n;  // strides in bytes
    int64_t kept;                                        // how many are written: n, or k
    bool has_values = true;                              // whether values are written, not only indices
    int64_t size = 0;                                    // bytes of an element

    template <class T>
    T at(int64_t i) const {
        return *reinterpret_cast<const T*>(x + i * x_stride);
    }
};

/// Some lines that lie side by side, brought one after the other, and what becomes of them: where elements fall upon few places
/// of the cache each that is read brings a line of it of which no other is used before it is gone.
class LinesBeside {
public:
    /// How many at a time, if more than one.
    [[gnu::noinline]] static int64_t most(const Loops& lines, const Line& strides) {
        constexpr int64_t MOST = 16, BYTES = 1 << 20, FEW_PLACES = 1024, PLACES = 64;
        if (lines.ndim() == 0 || !strides.size || lines.strides[2].back() != strides.size) return 1;
        if (strides.x_stride % FEW_PLACES || strides.n < PLACES) return 1;
        return std::min(MOST, BYTES / (strides.n * strides.size));
    }
    [[gnu::noinline]] LinesBeside(const Loops& lines, const Line& strides, int64_t most)
        : steps_{lines.strides[0].back(), lines.strides[1].back(), lines.strides[2].back()},
          x_(most * strides.n * strides.size), values_(most * strides.kept * strides.size), indices_(most * strides.kept) {}

    [[gnu::noinline]] void bring(const Line& first, int64_t count) {
        const int64_t n = first.n, size = first.size;
        copy_tile({x_.data(), n * size, size}, {const_cast<char*>(first.x), steps_[2], first.x_stride}, count, n, size);
    }
    /// Line i of those that were brought, of which `first` is the first.
    [[gnu::noinline]] Line line(const Line& first, int64_t i) const {
        Line one = first;
        one.x = x_.data() + i * first.n * first.size, one.x_stride = first.size;
        one.values = values_.data() + i * first.kept * first.size, one.values_stride = first.size;
        if (first.indices) one.indices = reinterpret_cast<char*>(indices_.data() + i * first.kept), one.indices_stride = 8;
        return one;
    }
    [[gnu::noinline]] void put(const Line& first, int64_t count) const {
        const int64_t kept = first.kept, size = first.size;
        if (first.has_values) copy_tile({first.values, steps_[0], first.values_stride}, {values_.data(), kept * size, size}, count, kept, size);
        if (first.indices)
            copy_tile({first.indices, steps_[1], first.indices_stride}, {reinterpret_cast<char*>(indices_.data()), kept * 8, 8}, count, kept, 8);
    }

private:
    int64_t steps_[3];
    Scratch<char> x_, values_;
    Scratch<int64_t> indices_;
};

/// Calls body(line, scratch) for each line, with room for so many entries.
template <class Entry, class Body>
void for_lines(const Loops& lines, const Line& strides, double ns, char* const* data, int64_t room, const Body& body) {
    const int64_t most = LinesBeside::most(lines, strides);
    parallel_for(lines.numel, ns, [&](int64_t begin, int64_t end) {
        Scratch<Entry> scratch(room);
        std::optional<LinesBeside> beside;
        if (most >= 4) beside.emplace(lines, strides, most);
        Walker at(lines, lines.ndim(), data, begin);
        for (int64_t i = begin, here; i < end; i += here) {
            Line line = strides;
            line.values = at[0];
            line.indices = at[1];
            line.x = at[2];
            here = beside ? std::min({most, end - i, lines.shape.back() - i % lines.shape.back()}) : 1;
            if (here > 1) beside->bring(line, here);
            for (int64_t k = 0; k < here; ++k, at.next()) body(here > 1 ? beside->line(line, k) : line, scratch.data());
            if (here > 1) beside->put(line, here);
        }
    });
}

}  // namespace
}  // namespace norch::indexing
