// sort: each row becomes keys (order.h), each with its index; so equal elements keep their order in any algorithm. Short
// rows are sorted by comparisons, long ones by the keys' digits. topk: of a row's keys only those are looked at that come
// before the k-th of all so far.
#include <cmath>

#include "indexing/order.h"

namespace norch::indexing {
namespace {

template <class T, class Entry>
void write_line(const Line& line, const Entry* sorted) {
    for (int64_t i = 0; i < line.kept; ++i) {
        const int64_t index = sorted[i].index();
        *reinterpret_cast<T*>(line.values + i * line.values_stride) = line.at<T>(index);
        *reinterpret_cast<int64_t*>(line.indices + i * line.indices_stride) = index;
    }
}

template <class T, class Entry>
void sort_line(const Line& line, bool descending, Entry* scratch) {
    using U = unsigned_t<T>;
    const U flip = flip_of<T>(descending);
    for (int64_t i = 0; i < line.n; ++i) scratch[i] = Entry(U(key_of(line.at<T>(i)) ^ flip), uint64_t(i));
    Entry* sorted = scratch;
    if (line.n <= SHORT) std::sort(scratch, scratch + line.n);
    else sorted = radix_sort<int(sizeof(T))>(scratch, scratch + line.n, line.n);
    write_line<T>(line, sorted);
}

/// Of 64-bit keys the upper halves are sorted first, each in one integer with its index, then every run of equals by the
/// lower halves. Where all have one half in common, as small integers do, only the other is sorted.
template <class T>
void sort_halves(const Line& line, bool descending, Packed* scratch) {
    const uint64_t flip = flip_of<T>(descending);
    const auto key = [&](int64_t i) { return uint64_t(key_of(line.at<T>(i)) ^ flip); };
    uint64_t differing = 0;
    for (int64_t i = 1; i < line.n; ++i) differing |= key(i) ^ key(0);
    const int shift = differing >> 32 ? 32 : 0;
    for (int64_t i = 0; i < line.n; ++i) scratch[i] = Packed(uint32_t(key(i) >> shift), uint64_t(i));
    Packed* sorted = radix_sort<4>(scratch, scratch + line.n, line.n);
    Packed* other = sorted == scratch ? scratch + line.n : scratch;
    for (int64_t i = 0, end; shift && uint32_t(differing) && i < line.n; i = end) {
        for (end = i + 1; end < line.n && sorted[end].key() == sorted[i].key(); ++end) {}
        if (end - i == 1) continue;
        for (int64_t k = i; k < end; ++k) {
            const int64_t index = sorted[k].index();
            sorted[k] = Packed(uint32_t(key(index)), uint64_t(index));
        }
        if (end - i <= SHORT) std::sort(sorted + i, sorted + end);
        else if (radix_sort<4>(sorted + i, other + i, end - i) != sorted + i) std::copy(other + i, other + end, sorted + i);
    }
    write_line<T>(line, sorted);
}

constexpr int64_t AT_ONCE = 64;  // elements

/// Entries that `top_line` has room for: those that it looks at when they are twice as many as it keeps.
int64_t top_room(int64_t k) { return 2 * k + AT_ONCE; }

template <class T, class Entry>
void top_line(const Line& line, bool descending, Entry* found) {
    using U = unsigned_t<T>;
    const U flip = flip_of<T>(descending);
    const int64_t k = line.kept;
    U keys[AT_ONCE], limit = U(~U(0));  // a later one as large as the k-th comes after it
    bool is_full = false;
    int64_t count = 0;
    for (int64_t first = 0; first < line.n; first += AT_ONCE) {
        const int64_t n = std::min(AT_ONCE, line.n - first);
        if (line.x_stride == int64_t(sizeof(T))) {
            const T* x = reinterpret_cast<const T*>(line.x) + first;
            for (int64_t i = 0; i < n; ++i) keys[i] = U(key_of(x[i]) ^ flip);
        } else {
            for (int64_t i = 0; i < n; ++i) keys[i] = U(key_of(line.at<T>(first + i)) ^ flip);
        }
        U least = keys[0];
        for (int64_t i = 1; i < n; ++i) least = std::min(least, keys[i]);
        if (is_full && least >= limit) continue;
        for (int64_t i = 0; i < n; ++i)
            if (!is_full || keys[i] < limit) found[count++] = Entry(keys[i], uint64_t(first + i));
        if (count < 2 * k) continue;
        std::nth_element(found, found + k - 1, found + count);
        count = k, limit = U(found[k - 1].key()), is_full = true;
    }
    if (count > k) std::nth_element(found, found + k, found + count);
    std::sort(found, found + k);
    write_line<T>(line, found);
}

template <class T, class Entry>
KernelPtr make_sort(const Loops& lines, const Line& strides, bool descending) {
    const double n = double(strides.n);
    if (strides.kept < strides.n / 8) {
        const double ns = n + 20 * double(strides.kept);
        return make_kernel(ns * double(lines.numel), [=](char* const* data, const Scalar*) {
            for_lines<Entry>(lines, strides, ns, data, top_room(strides.kept), [=](const Line& line, Entry* scratch) {
                top_line<T>(line, descending, scratch);
            });
        });
    }
    if constexpr (sizeof(T) == 8) {
        if (strides.n > SHORT && strides.n <= int64_t(UINT32_MAX)) {
            const double ns = 16 * n;
            return make_kernel(ns * double(lines.numel), [=](char* const* data, const Scalar*) {
                for_lines<Packed>(lines, strides, ns, data, 2 * strides.n, [=](const Line& line, Packed* scratch) {
                    sort_halves<T>(line, descending, scratch);
                });
            });
        }
    }
    const double ns = n * (strides.n <= SHORT ? 1.5 * std::log2(n + 1) : 3.0 * sizeof(T) + 4) + 20;
    return make_kernel(ns * double(lines.numel), [=](char* const* data, const Scalar*) {
        const int64_t room = strides.n * (strides.n <= SHORT ? 1 : 2);
        for_lines<Entry>(lines, strides, ns, data, room, [=](const Line& line, Entry* scratch) {
            sort_line<T>(line, descending, scratch);
        });
    });
}

/// `sort`, or `topk`, whose outputs have `k` elements along the dim.
KernelPtr sorted_lines(const Request& request, bool descending) {
    std::vector<Operand> operands = request.operands;
    if (operands[0].shape.empty())  // a 0-d operand has dim 0
        for (Operand& operand : operands) operand.shape = operand.strides = {1};
    const int64_t dim = request.attrs.integer("dim");
    if (dim < 0 || dim >= operands[0].ndim()) throw std::invalid_argument(request.op + " along a dim that is not there");
    if (operands[1].dtype != DType::i64) throw std::invalid_argument(request.op + " gives int64 indices");
    Loops lines = collapse(operands, dims_but(operands[0].ndim(), dim));
    auto stride = [&](int i) { return operands[i].strides[size_t(dim)] * size_of(operands[i].dtype); };
    Line line{nullptr, nullptr, nullptr, stride(0), stride(1), stride(2), operands[2].shape[size_t(dim)],
              operands[0].shape[size_t(dim)]};
    if (line.kept == 0 || lines.numel == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    return visit(operands[0].dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        if constexpr (sizeof(T) < 8)
            if (line.n <= int64_t(UINT32_MAX)) return make_sort<T, Packed>(lines, line, descending);
        return make_sort<T, Pair>(lines, line, descending);
    });
}

}  // namespace

void add_sorting(Registry& registry) {
    registry["sort"] = [](const Request& request) { return sorted_lines(request, request.attrs.flag("descending")); };
    registry["topk"] = [](const Request& request) { return sorted_lines(request, request.attrs.flag("largest")); };
}

}  // namespace norch::indexing
