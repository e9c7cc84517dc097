// select_along: one element of each line, and its index: that of a rank, a median, or the most frequent one.
// median_of_all and nanmedian_of_all are the same of a whole tensor. No line is sorted for a rank: of its keys (order.h)
// those of the wanted one's upper digits are kept, digit by digit.
#include "indexing/order.h"

namespace norch::indexing {
namespace {

constexpr int64_t FEW = 64;  // entries among which std::nth_element is faster

/// Of n entries the one of rank k. `entries` is changed.
template <int BITS, class Entry>
Entry nth(Entry* entries, int64_t n, int64_t k) {
    for (int shift = BITS - 8; shift >= 0 && n > FEW; shift -= 8) {
        int32_t counts[2][256] = {};  // by turns: a count is not read just after it was written
        int64_t i = 0;
        for (; i + 2 <= n; i += 2) {
            ++counts[0][entries[i].key() >> shift & 0xff];
            ++counts[1][entries[i + 1].key() >> shift & 0xff];
        }
        if (i < n) ++counts[0][entries[i].key() >> shift & 0xff];
        uint64_t digit = 0;
        int64_t size;
        for (; k >= (size = int64_t(counts[0][digit]) + counts[1][digit]); ++digit) k -= size;
        if (size == n) continue;
        int64_t kept = 0;
        for (i = 0; i < n; ++i) {
            const Entry entry = entries[i];
            entries[kept] = entry;
            kept += (entry.key() >> shift & 0xff) == digit;
        }
        n = kept;
    }
    std::nth_element(entries, entries + k, entries + n);
    return entries[k];
}

enum class Kind { kth, median, nanmedian, mode };

Kind kind_named(const std::string& name) {
    if (name == "kth") return Kind::kth;
    if (name == "median") return Kind::median;
    if (name == "nanmedian") return Kind::nanmedian;
    if (name == "mode") return Kind::mode;
    throw std::invalid_argument("select_along knows no " + name);
}

/// The index of the last of the most frequent elements, the smallest of several. A NaN equals none.
template <class T, class Entry>
int64_t mode_of(Entry* entries, int64_t n) {
    std::sort(entries, entries + n);
    int64_t longest = 0, index = 0;
    for (int64_t i = 0, end; i < n; i = end) {
        end = i + 1;
        const bool is_nan = is_float<T> && entries[i].key() == unsigned_t<T>(~unsigned_t<T>(0));
        while (!is_nan && end < n && entries[end].key() == entries[i].key()) ++end;
        if (end - i > longest) longest = end - i, index = entries[end - 1].index();
    }
    return index;
}

/// The selected index. With `least`, which all keys are above by less than 2**32, 64-bit keys are packed too.
template <class T, class Entry>
int64_t selected(const Line& line, Kind kind, int64_t k, Entry* entries, unsigned_t<T> least = 0) {
    using U = unsigned_t<T>;
    const int64_t n = line.n;
    int64_t missing = 0, first = n;
    const auto fill = [&](auto at) {
        for (int64_t i = 0; i < n; ++i) entries[i] = Entry(U(key_of(at(i)) - least), uint64_t(i));
    };
    if (line.x_stride == int64_t(sizeof(T))) {
        const T* x = reinterpret_cast<const T*>(line.x);
        fill([=](int64_t i) { return x[i]; });
    } else {
        fill([&](int64_t i) { return line.at<T>(i); });
    }
    if (kind == Kind::mode) return mode_of<T>(entries, n);
    if constexpr (is_float<T>) {
        if (kind != Kind::kth) {
            for (int64_t i = 0; i < n; ++i) missing += entries[i].key() == U(~U(0));
            for (first = 0; missing && entries[first].key() != U(~U(0));) ++first;
        }
    }
    if (kind == Kind::median && missing) return first;
    if (kind != Kind::kth) k = std::max<int64_t>(n - (kind == Kind::nanmedian ? missing : 0) - 1, 0) / 2;
    return nth<std::is_same_v<Entry, Packed> ? std::min(32, 8 * int(sizeof(T))) : 64>(entries, n, k).index();
}

/// Integers are mostly close to each other.
int64_t selected_of_close(const Line& line, Kind kind, int64_t k, Pair* entries) {
    uint64_t least = ~uint64_t(0), most = 0;
    for (int64_t i = 0; i < line.n; ++i) {
        const uint64_t key = key_of(line.at<int64_t>(i));
        least = std::min(least, key), most = std::max(most, key);
    }
    if (most - least > UINT32_MAX) return selected<int64_t>(line, kind, k, entries);
    return selected<int64_t>(line, kind, k, reinterpret_cast<Packed*>(entries), least);
}

template <class T, class Entry>
[[gnu::cold]] KernelPtr make_selection(const Loops& lines, const Line& strides, Kind kind, int64_t k) {
    const double ns = double(strides.n) * (kind == Kind::mode ? 20 : 4) + 20;
    return make_kernel(ns * double(lines.numel), [=](char* const* data, const Scalar*) {
        for_lines<Entry>(lines, strides, ns, data, strides.n, [=](const Line& line, Entry* entries) {
            int64_t index;
            if constexpr (std::is_same_v<T, int64_t>) index = selected_of_close(line, kind, k, entries);
            else index = selected<T>(line, kind, k, entries);
            *reinterpret_cast<T*>(line.values) = line.at<T>(index);
            if (line.indices) *reinterpret_cast<int64_t*>(line.indices) = index;
        });
    });
}

[[gnu::cold]] KernelPtr selection(DType dtype, const Loops& lines, const Line& line, Kind kind, int64_t k) {
    if (line.n > INT32_MAX) return nullptr;
    return visit_frequent(dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        if constexpr (sizeof(T) < 8) return make_selection<T, Packed>(lines, line, kind, k);
        return make_selection<T, Pair>(lines, line, kind, k);
    });
}

[[gnu::cold]] KernelPtr select_along(const Request& request) {
    const std::vector<Operand>& operands = request.operands;
    const int64_t dim = request.attrs.integer("dim");
    if (dim < 0 || dim >= operands[2].ndim()) throw std::invalid_argument(request.op + " along a dim that is not there");
    const Loops lines = collapse(operands, dims_but(operands[2].ndim(), dim));
    const int64_t n = operands[2].shape[size_t(dim)];
    if (lines.numel == 0 || n == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    const int64_t stride = operands[2].strides[size_t(dim)] * size_of(operands[2].dtype);
    return selection(operands[2].dtype, lines, {nullptr, nullptr, nullptr, 0, 0, stride, n, 1, true, size_of(operands[2].dtype)},
                     kind_named(request.attrs.text("kind")), request.attrs.integer("k"));
}

/// Of all elements, which lie side by side.
[[gnu::cold]] KernelPtr select_of_all(const Request& request, Kind kind) {
    const Operand& x = request.operands[1];
    if (!x.is_contiguous() || x.numel() == 0) return nullptr;
    Loops one;
    one.strides.assign(3, {});
    KernelPtr inner = selection(x.dtype, one, {nullptr, nullptr, nullptr, 0, 0, size_of(x.dtype), x.numel(), 1}, kind, 0);
    if (!inner) return nullptr;
    const double work = inner->work;
    return make_kernel(work, [kernel = std::shared_ptr<Kernel>(std::move(inner))](char* const* data, const Scalar* scalars) {
        char* const places[] = {data[0], nullptr, data[1]};
        kernel->run(places, scalars);
    });
}

}  // namespace

void add_selection(Registry& registry) {
    registry["select_along"] = select_along;
    registry["median_of_all"] = [](const Request& request) { return select_of_all(request, Kind::median); };
    registry["nanmedian_of_all"] = [](const Request& request) { return select_of_all(request, Kind::nanmedian); };
}

}  // namespace norch::indexing
