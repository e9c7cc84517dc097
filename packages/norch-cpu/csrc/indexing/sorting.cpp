// sort: each row becomes keys, unsigned integers in the wanted order, each with its index; so equal elements keep their
// order in any algorithm. Short rows are sorted by comparisons, long ones by the keys' digits.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/layout.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::indexing {
namespace {

constexpr int64_t SHORT = 192;  // elements up to which comparisons are faster

template <class T>
using unsigned_t = std::conditional_t<
    sizeof(T) == 8, uint64_t,
    std::conditional_t<sizeof(T) == 4, uint32_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;

template <class T>
constexpr bool is_float = std::is_floating_point_v<compute_t<T>>;

/// An unsigned integer that is ordered as the elements are: NaN last, and both zeros the same.
template <class T>
inline unsigned_t<T> key_of(T x) {
    using U = unsigned_t<T>;
    U bits = bit_cast<U>(x), sign = U(U(1) << (8 * sizeof(T) - 1));
    if constexpr (is_float<T>) {
        if (load(x) != load(x)) return U(~U(0));
        if (load(x) == 0) return sign;
        return U(bits & sign ? ~bits : bits | sign);
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

struct Line {
    char *values, *indices;
    const char* x;
    int64_t values_stride, indices_stride, x_stride, n;  // strides in bytes
};

template <class T, class Entry>
void sort_line(const Line& line, bool descending, Entry* scratch) {
    using U = unsigned_t<T>;
    auto at = [&](int64_t i) { return *reinterpret_cast<const T*>(line.x + i * line.x_stride); };
    U flip = descending ? U(~U(0)) : U(0);
    for (int64_t i = 0; i < line.n; ++i) scratch[i] = Entry(U(key_of(at(i)) ^ flip), uint64_t(i));
    Entry* sorted = scratch;
    if (line.n <= SHORT) std::sort(scratch, scratch + line.n);
    else sorted = radix_sort<int(sizeof(T))>(scratch, scratch + line.n, line.n);
    for (int64_t i = 0; i < line.n; ++i) {
        int64_t index = sorted[i].index();
        *reinterpret_cast<T*>(line.values + i * line.values_stride) = at(index);
        *reinterpret_cast<int64_t*>(line.indices + i * line.indices_stride) = index;
    }
}

template <class T, class Entry>
KernelPtr make_sort(const Loops& lines, const Line& strides, bool descending) {
    double n = double(strides.n), ns = n * (strides.n <= SHORT ? 1.5 * std::log2(n + 1) : 3.0 * sizeof(T) + 4) + 20;
    return make_kernel(ns * double(lines.numel), [=](char* const* data, const Scalar*) {
        parallel_for(lines.numel, ns, [&](int64_t begin, int64_t end) {
            Scratch<Entry> scratch(strides.n * (strides.n <= SHORT ? 1 : 2));
            Walker at(lines, lines.ndim(), data, begin);
            for (int64_t i = begin; i < end; ++i, at.next()) {
                Line line = strides;
                line.values = at[0];
                line.indices = at[1];
                line.x = at[2];
                sort_line<T>(line, descending, scratch.data());
            }
        });
    });
}

KernelPtr sort(const Request& request) {
    std::vector<Operand> operands = request.operands;
    if (operands[0].shape.empty())  // a 0-d operand has dim 0
        for (Operand& operand : operands) operand.shape = operand.strides = {1};
    int64_t dim = request.attrs.integer("dim");
    if (dim < 0 || dim >= operands[0].ndim()) throw std::invalid_argument("sort along a dim that is not there");
    if (operands[1].dtype != DType::i64) throw std::invalid_argument("sort gives int64 indices");
    Loops lines = collapse(operands, dims_but(operands[0].ndim(), dim));
    auto stride = [&](int i) { return operands[i].strides[size_t(dim)] * size_of(operands[i].dtype); };
    Line line{nullptr, nullptr, nullptr, stride(0), stride(1), stride(2), operands[0].shape[size_t(dim)]};
    if (line.n == 0 || lines.numel == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    bool descending = request.attrs.flag("descending");
    return visit(operands[0].dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        if constexpr (sizeof(T) < 8)
            if (line.n <= int64_t(UINT32_MAX)) return make_sort<T, Packed>(lines, line, descending);
        return make_sort<T, Pair>(lines, line, descending);
    });
}

}  // namespace

void add_sorting(Registry& registry) { registry["sort"] = sort; }

}  // namespace norch::indexing
