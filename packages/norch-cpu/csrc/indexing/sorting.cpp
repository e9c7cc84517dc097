// sort: each row becomes keys (order.h), each with its index; so equal elements keep their order in any algorithm. Short
// rows are sorted by comparisons, long ones by the keys' digits. topk: of a row's keys only those are looked at that come
// before the k-th of all so far.
#include <cmath>

#include "indexing/keys.h"
#include "indexing/order.h"

namespace norch::indexing {
namespace {

constexpr int64_t AT_ONCE = 64;  // elements

/// A line's elements as keys, some at a time.
class Keys {
public:
    Keys(DType dtype, bool descending)
        : loops_(key_loops(dtype)), flip_(descending ? ~uint64_t(0) : 0), size_(size_of(dtype)), sorts_digits_(size_ == 8 || dtype == DType::i32) {}

    int64_t size() const { return size_; }
    /// Whether `sort_digits` is quicker for long lines.
    bool sorts_digits() const { return sorts_digits_; }
    /// The largest key.
    uint64_t most() const { return ~uint64_t(0) >> (64 - 8 * size_); }

    void load(const char* beside, int64_t n, uint64_t* keys) const { loops_.keys(beside, n, flip_, keys); }
    uint64_t least(const char* beside, int64_t n) const { return loops_.least(beside, n, flip_); }
    uint64_t one(const Line& line, int64_t i) const {
        uint64_t key;
        load(line.x + i * line.x_stride, 1, &key);
        return key;
    }
    /// At most AT_ONCE elements, side by side: where they lie, or in `together`.
    const char* beside(const Line& line, int64_t first, int64_t n, char* together) const {
        const char* x = line.x + first * line.x_stride;
        if (line.x_stride == size_) return x;
        copy_tile({together, 0, size_}, {const_cast<char*>(x), 0, line.x_stride}, 1, n, size_);
        return together;
    }

    /// Calls body(i, key) for all elements.
    template <class Body>
    void for_each(const Line& line, const Body& body) const {
        alignas(8) char together[8 * AT_ONCE];
        uint64_t keys[AT_ONCE];
        for (int64_t first = 0; first < line.n; first += AT_ONCE) {
            const int64_t n = std::min(AT_ONCE, line.n - first);
            load(beside(line, first, n, together), n, keys);
            for (int64_t i = 0; i < n; ++i) body(first + i, keys[i]);
        }
    }

private:
    KeyLoops loops_;
    uint64_t flip_;
    int64_t size_;
    bool sorts_digits_;
};

template <class Entry>
void write_line(const Line& line, const Entry* sorted) {
    if (line.has_values)
        visit_bits(line.size, [&]<class T>(Tag<T>) {
            for (int64_t i = 0; i < line.kept; ++i)
                *reinterpret_cast<T*>(line.values + i * line.values_stride) = line.at<T>(sorted[i].index());
        });
    for (int64_t i = 0; i < line.kept; ++i) *reinterpret_cast<int64_t*>(line.indices + i * line.indices_stride) = sorted[i].index();
}

template <class Entry>
void sort_line(const Line& line, const Keys& keys, Entry* scratch) {
    keys.for_each(line, [=](int64_t i, uint64_t key) { scratch[i] = Entry(key, uint64_t(i)); });
    Entry* sorted = scratch;
    if (line.n <= SHORT) std::sort(scratch, scratch + line.n);
    else if constexpr (std::is_same_v<Entry, Pair>) sorted = radix_sort<8>(scratch, scratch + line.n, line.n);
    else if (keys.size() == 1) sorted = radix_sort<1>(scratch, scratch + line.n, line.n);
    else if (keys.size() == 2) sorted = radix_sort<2>(scratch, scratch + line.n, line.n);
    else sorted = radix_sort<4>(scratch, scratch + line.n, line.n);
    write_line(line, sorted);
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
void sort_digits(const Line& line, const Keys& keys, Packed* scratch) {
    const int64_t n = line.n;
    const uint64_t first = keys.one(line, 0);
    uint64_t differing = 0;
    keys.for_each(line, [&](int64_t, uint64_t key) { differing |= key ^ first; });
    const int bits = differing ? 64 - __builtin_clzll(differing) : 0, shift = std::max(bits - 32, 0);
    const uint32_t mask = uint32_t((uint64_t(1) << std::min(bits, 32)) - 1);
    const auto below = [&](int64_t i) { return uint32_t(keys.one(line, i) & ((uint64_t(1) << shift) - 1)); };
    keys.for_each(line, [=](int64_t i, uint64_t key) { scratch[i] = Packed(uint32_t(key >> shift) & mask, uint64_t(i)); });
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
    write_line(line, sorted);
}

constexpr int64_t FEW = 16;      // entries that are kept in order as they are found

/// Entries that `top_line` has room for: those that it looks at when they are twice as many as it keeps.
int64_t top_room(int64_t k) { return 2 * k + AT_ONCE; }

template <class Entry>
void top_line(const Line& line, const Keys& reader, Entry* found) {
    const int64_t k = line.kept;
    alignas(8) char together[8 * AT_ONCE];
    uint64_t keys[AT_ONCE], limit = reader.most();  // a later one as large as the k-th comes after it
    bool is_full = false;
    int64_t count = 0;
    for (int64_t first = 0; first < line.n; first += AT_ONCE) {
        const int64_t n = std::min(AT_ONCE, line.n - first);
        const char* x = reader.beside(line, first, n, together);
        if (is_full && reader.least(x, n) >= limit) continue;
        reader.load(x, n, keys);
        if (k <= FEW) {
            for (int64_t i = 0; i < n; ++i) {
                if (is_full && keys[i] >= limit) continue;
                int64_t at = is_full ? k - 1 : count++;
                for (; at > 0 && found[at - 1].key() > keys[i]; --at) found[at] = found[at - 1];
                found[at] = Entry(keys[i], uint64_t(first + i));
                is_full = count == k, limit = found[count - 1].key();
            }
            continue;
        }
        for (int64_t i = 0; i < n; ++i)
            if (!is_full || keys[i] < limit) found[count++] = Entry(keys[i], uint64_t(first + i));
        if (count < 2 * k) continue;
        std::nth_element(found, found + k - 1, found + count);
        count = k, limit = found[k - 1].key(), is_full = true;
    }
    if (count > k) std::nth_element(found, found + k, found + count);
    if (k > FEW) std::sort(found, found + k);
    write_line(line, found);
}

template <class Entry>
[[gnu::cold]] KernelPtr make_sort(const Loops& lines, const Line& strides, const Keys& keys) {
    const double n = double(strides.n);
    if (strides.kept < strides.n / 8 || (strides.kept <= FEW && 2 * strides.kept <= strides.n)) {
        const double ns = n + 20 * double(strides.kept);
        return make_kernel(ns * double(lines.numel), [=](char* const* data, const Scalar*) {
            for_lines<Entry>(lines, strides, ns, data, top_room(strides.kept),
                             [=](const Line& line, Entry* scratch) { top_line(line, keys, scratch); });
        });
    }
    if (keys.sorts_digits() && strides.n > SHORT && strides.n <= int64_t(UINT32_MAX)) {
        const double ns = 12 * n;
        return make_kernel(ns * double(lines.numel), [=](char* const* data, const Scalar*) {
            for_lines<Packed>(lines, strides, ns, data, 2 * strides.n,
                              [=](const Line& line, Packed* scratch) { sort_digits(line, keys, scratch); });
        });
    }
    const double ns = n * (strides.n <= SHORT ? 1.5 * std::log2(n + 1) : 3.0 * double(keys.size()) + 4) + 20;
    return make_kernel(ns * double(lines.numel), [=](char* const* data, const Scalar*) {
        const int64_t room = strides.n * (strides.n <= SHORT ? 1 : 2);
        for_lines<Entry>(lines, strides, ns, data, room, [=](const Line& line, Entry* scratch) { sort_line(line, keys, scratch); });
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
    const Keys keys(operands[2].dtype, descending);
    if (keys.size() < 8 && line.n <= int64_t(UINT32_MAX)) return make_sort<Packed>(lines, line, keys);
    return make_sort<Pair>(lines, line, keys);
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
