// sort: each row becomes keys (order.h), each with its index; so equal elements keep their order in any algorithm. Short
// rows are sorted by comparisons, long ones by the keys' digits. topk: of a row's keys only those are looked at that come
// before the k-th of all so far.
#include <cmath>

#include "indexing/keys.h"
#include "indexing/order.h"

namespace norch::indexing {
namespace {

template <class T, class Entry>
void write_line(const Line& line, const Entry* sorted) {
    for (int64_t i = 0; i < line.kept; ++i) {
        const int64_t index = sorted[i].index();
        if (line.has_values) *reinterpret_cast<T*>(line.values + i * line.values_stride) = line.at<T>(index);
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

/// Sorts n entries, with as much room beside them.
void sort_run(Packed* run, Packed* other, int64_t n) {
    if (n == 2) {  // as most are
        const Packed a = run[0], b = run[1];
        run[0] = b < a ? b : a, run[1] = b < a ? a : b;
    } else if (n <= SHORT) std::sort(run, run + n);
    else if (radix_sort<4>(run, other, n) != run) std::copy(other, other + n, run);
}

/// Calls body(begin, end) for every run of several entries whose keys have the same bits from `shift` up.
template <class Body>
void for_runs(const Packed* sorted, int64_t begin, int64_t n, int shift, const Body& body) {
    for (int64_t i = begin, end; i < n; i = end) {
        for (end = i + 1; end < n && sorted[end].key() >> shift == sorted[i].key() >> shift; ++end) {}
        if (end - i > 1) body(i, end);
    }
}

/// What digit of BITS bits a key has from `shift` up.
template <int BITS>
inline uint64_t digit(Packed entry, int shift) {
    return entry.key() >> shift & ((1 << BITS) - 1);
}

/// Moves entries to where their digit begins; `counts`, how many have each digit, becomes where each ends.
template <int BITS>
void move_by_digit(const Packed* from, Packed* to, int64_t n, int shift, uint32_t* counts) {
    uint32_t start = 0;
    for (int k = 0; k < 1 << BITS; ++k) {
        const uint32_t size = counts[k];
        counts[k] = start;
        start += size;
    }
    for (int64_t i = 0; i < n; ++i) to[counts[digit<BITS>(from[i], shift)]++] = from[i];
}

constexpr int64_t IN_CACHE = int64_t(1) << 17;  // entries

/// Sorts entries, whose keys have `bits` bits, by the highest 22 or 24 of these, into a or b; gives which, and the number
/// of bits below. Null where keys are not spread evenly: many would agree in those.
std::pair<Packed*, int> sort_spread(Packed* a, Packed* b, int64_t n, int bits) {
    if (bits < 24 || n < 2000) return {nullptr, 0};
    const auto is_even = [n](const uint32_t* counts, int size) {
        return *std::max_element(counts, counts + size) <= uint64_t(n / 64 + 64);
    };
    if (n <= IN_CACHE) {
        uint32_t low[2048] = {}, high[2048] = {};
        for (int64_t i = 0; i < n; ++i) ++low[digit<11>(a[i], bits - 22)], ++high[digit<11>(a[i], bits - 11)];
        if (!is_even(high, 2048)) return {nullptr, 0};
        move_by_digit<11>(a, b, n, bits - 22, low);
        move_by_digit<11>(b, a, n, bits - 11, high);
        return {a, bits - 22};
    }
    uint32_t ends[256] = {};
    for (int64_t i = 0; i < n; ++i) ++ends[digit<8>(a[i], bits - 8)];
    if (!is_even(ends, 256)) return {nullptr, 0};
    // First apart by the highest digit, so that the others' moves stay in the cache.
    move_by_digit<8>(a, b, n, bits - 8, ends);
    for (uint32_t k = 0, begin = 0; k < 256; begin = ends[k++]) {
        const int64_t size = ends[k] - begin;
        uint32_t low[256] = {}, high[256] = {};
        for (int64_t i = begin; i < ends[k]; ++i) ++low[digit<8>(b[i], bits - 24)], ++high[digit<8>(b[i], bits - 16)];
        move_by_digit<8>(b + begin, a + begin, size, bits - 24, low);
        move_by_digit<8>(a + begin, b + begin, size, bits - 16, high);
    }
    return {b, bits - 24};
}

/// Keys of 32 or 64 bits: of 32 bits from the highest one that differs, each in one integer with its index, as many digits
/// are sorted as leave few equals; then every run of these by the others, and by the bits below.
template <class T>
void sort_digits(const Line& line, bool descending, Packed* scratch) {
    const uint64_t flip = flip_of<T>(descending);
    const auto key = [&](int64_t i) { return uint64_t(unsigned_t<T>(key_of(line.at<T>(i)) ^ flip)); };
    const int64_t n = line.n;
    const uint64_t first = key(0);
    uint64_t differing = 0;
    for (int64_t i = 1; i < n; ++i) differing |= key(i) ^ first;
    const int bits = differing ? 64 - __builtin_clzll(differing) : 0, shift = std::max(bits - 32, 0);
    const uint32_t mask = uint32_t((uint64_t(1) << std::min(bits, 32)) - 1);
    const auto window = [&](int64_t i) { return uint32_t(key(i) >> shift) & mask; };
    const auto below = [&](int64_t i) { return uint32_t(key(i) & ((uint64_t(1) << shift) - 1)); };
    for (int64_t i = 0; i < n; ++i) scratch[i] = Packed(window(i), uint64_t(i));
    auto [sorted, left] = sort_spread(scratch, scratch + n, n, std::min(bits, 32));
    if (!sorted) sorted = radix_sort<4>(scratch, scratch + n, n);
    Packed* other = sorted == scratch ? scratch + n : scratch;
    if (left || shift) {
        for_runs(sorted, 0, n, left, [&, sorted = sorted, left = left](int64_t begin, int64_t end) {
            if (left) sort_run(sorted + begin, other + begin, end - begin);
            if (!shift) return;
            for_runs(sorted, begin, end, 0, [&](int64_t from, int64_t to) {
                for (int64_t i = from; i < to; ++i) sorted[i] = Packed(below(sorted[i].index()), uint64_t(sorted[i].index()));
                sort_run(sorted + from, other + from, to - from);
            });
        });
    }
    write_line<T>(line, sorted);
}

constexpr int64_t AT_ONCE = 64;  // elements
constexpr int64_t FEW = 16;      // entries that are kept in order as they are found

/// Entries that `top_line` has room for: those that it looks at when they are twice as many as it keeps.
int64_t top_room(int64_t k) { return 2 * k + AT_ONCE; }

template <class T, class Entry>
void top_line(const Line& line, bool descending, Entry* found) {
    using U = unsigned_t<T>;
    const U flip = flip_of<T>(descending);
    const int64_t k = line.kept;
    T together[AT_ONCE];
    U keys[AT_ONCE], limit = U(~U(0));  // a later one as large as the k-th comes after it
    bool is_full = false;
    int64_t count = 0;
    for (int64_t first = 0; first < line.n; first += AT_ONCE) {
        const int64_t n = std::min(AT_ONCE, line.n - first);
        const T* x = reinterpret_cast<const T*>(line.x) + first;
        if (line.x_stride != int64_t(sizeof(T))) {
            for (int64_t i = 0; i < n; ++i) together[i] = line.at<T>(first + i);
            x = together;
        }
        const U least = U(keys_of(x, n, flip, keys));
        if (is_full && least >= limit) continue;
        if (k <= FEW) {
            for (int64_t i = 0; i < n; ++i) {
                if (is_full && keys[i] >= limit) continue;
                int64_t at = is_full ? k - 1 : count++;
                for (; at > 0 && found[at - 1].key() > keys[i]; --at) found[at] = found[at - 1];
                found[at] = Entry(keys[i], uint64_t(first + i));
                is_full = count == k, limit = U(found[count - 1].key());
            }
            continue;
        }
        for (int64_t i = 0; i < n; ++i)
            if (!is_full || keys[i] < limit) found[count++] = Entry(keys[i], uint64_t(first + i));
        if (count < 2 * k) continue;
        std::nth_element(found, found + k - 1, found + count);
        count = k, limit = U(found[k - 1].key()), is_full = true;
    }
    if (count > k) std::nth_element(found, found + k, found + count);
    if (k > FEW) std::sort(found, found + k);
    write_line<T>(line, found);
}

template <class T, class Entry>
[[gnu::cold]] KernelPtr make_sort(const Loops& lines, const Line& strides, bool descending) {
    const double n = double(strides.n);
    if (strides.kept < strides.n / 8 || (strides.kept <= FEW && 2 * strides.kept <= strides.n)) {
        const double ns = n + 20 * double(strides.kept);
        return make_kernel(ns * double(lines.numel), [=](char* const* data, const Scalar*) {
            for_lines<Entry>(lines, strides, ns, data, top_room(strides.kept), [=](const Line& line, Entry* scratch) {
                top_line<T>(line, descending, scratch);
            });
        });
    }
    if constexpr (sizeof(T) == 8 || std::is_same_v<T, int32_t>) {
        if (strides.n > SHORT && strides.n <= int64_t(UINT32_MAX)) {
            const double ns = 12 * n;
            return make_kernel(ns * double(lines.numel), [=](char* const* data, const Scalar*) {
                for_lines<Packed>(lines, strides, ns, data, 2 * strides.n, [=](const Line& line, Packed* scratch) {
                    sort_digits<T>(line, descending, scratch);
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

/// `sort`, or `topk`, whose outputs have `k` elements along the dim; without values `argsort`, whose operands are the
/// indices twice, and the input.
[[gnu::cold]] KernelPtr sorted_lines(const Request& request, std::vector<Operand> operands, bool descending, bool has_values = true) {
    if (operands[0].shape.empty())  // a 0-d operand has dim 0
        for (Operand& operand : operands) operand.shape = operand.strides = {1};
    const int64_t dim = request.attrs.integer("dim");
    if (dim < 0 || dim >= operands[0].ndim()) throw std::invalid_argument(request.op + " along a dim that is not there");
    if (operands[1].dtype != DType::i64) throw std::invalid_argument(request.op + " gives int64 indices");
    Loops lines = collapse(operands, dims_but(operands[0].ndim(), dim));
    auto stride = [&](int i) { return operands[i].strides[size_t(dim)] * size_of(operands[i].dtype); };
    Line line{nullptr, nullptr, nullptr, stride(0), stride(1), stride(2), operands[2].shape[size_t(dim)],
              operands[0].shape[size_t(dim)], has_values, size_of(operands[2].dtype)};
    if (line.kept == 0 || lines.numel == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    return visit(operands[2].dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        if constexpr (sizeof(T) < 8)
            if (line.n <= int64_t(UINT32_MAX)) return make_sort<T, Packed>(lines, line, descending);
        return make_sort<T, Pair>(lines, line, descending);
    });
}

[[gnu::cold]] KernelPtr argsort(const Request& request) {
    const std::vector<Operand> operands = {request.operands[0], request.operands[0], request.operands[1]};
    KernelPtr inner = sorted_lines(request, operands, request.attrs.flag("descending"), false);
    const double work = inner->work;
    return make_kernel(work, [kernel = std::shared_ptr<Kernel>(std::move(inner))](char* const* data, const Scalar* scalars) {
        char* const places[] = {data[0], data[0], data[1]};
        kernel->run(places, scalars);
    });
}

}  // namespace

void add_sorting(Registry& registry) {
    registry["sort"] = [](const Request& request) {
        return sorted_lines(request, request.operands, request.attrs.flag("descending"));
    };
    registry["topk"] = [](const Request& request) {
        return sorted_lines(request, request.operands, request.attrs.flag("largest"));
    };
    registry["argsort"] = argsort;
}

}  // namespace norch::indexing
