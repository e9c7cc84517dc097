// searchsorted: by binary search, a block of values at a time, which are independent and need no branch.
#include "indexing/order.h"

namespace norch::indexing {
namespace {

constexpr int64_t BLOCK = 128;  // values

/// Whether an element goes before a value: NaN is the largest.
template <bool RIGHT, class T>
inline bool is_before(T element, T value) {
    if constexpr (RIGHT) return (element <= value) | (value != value);
    return (element < value) | ((value != value) & (element == element));
}

/// Places of count values in a sequence of `size` elements, as norch's formula has them in one that is not in order.
template <bool RIGHT, class T, class Index>
void search(const T* sequence, Index size, const T* values, int64_t count, int64_t* out) {
    int bits = 0;
    while (size >> bits) ++bits;
    for (int64_t first = 0; first < count; first += BLOCK) {
        const int64_t n = std::min(BLOCK, count - first);
        T wanted[BLOCK];
        Index place[BLOCK];
        for (int64_t i = 0; i < n; ++i) wanted[i] = values[first + i], place[i] = -1;
        for (int bit = bits; bit-- > 0;) {
            const Index step = Index(1) << bit;
            for (int64_t i = 0; i < n; ++i) {
                const Index further = place[i] + step;
                const bool goes = is_before<RIGHT>(sequence[std::min<Index>(further, size - 1)], wanted[i]);
                place[i] = goes ? further : place[i];
            }
        }
        for (int64_t i = 0; i < n; ++i) out[first + i] = std::min<int64_t>(int64_t(place[i]) + 1, size);
    }
}

template <class T, class Index>
[[gnu::cold]] KernelPtr make_search(int64_t rows, int64_t size, int64_t row_step, int64_t count, bool right) {
    const double ns = 2 + 0.6 * double(64 - __builtin_clzll(uint64_t(size)));
    return parallel_kernel(rows * count, ns, [=](char* const* data, int64_t begin, int64_t end) {
        int64_t* out = reinterpret_cast<int64_t*>(data[0]);
        const T* values = reinterpret_cast<const T*>(data[2]);
        for (int64_t at = begin; at < end;) {
            const int64_t row = at / count, n = std::min(end, (row + 1) * count) - at;
            const T* sequence = reinterpret_cast<const T*>(data[1]) + row * row_step;
            if (right) search<true, T, Index>(sequence, Index(size), values + at, n, out + at);
            else search<false, T, Index>(sequence, Index(size), values + at, n, out + at);
            at += n;
        }
    });
}

/// Null where dtypes differ or elements do not lie side by side: norch's formula serves those.
[[gnu::cold]] KernelPtr searchsorted(const Request& request) {
    const Operand &out = request.operands[0], &sequence = request.operands[1], &values = request.operands[2];
    const int64_t size = sequence.shape.empty() ? 0 : sequence.shape.back();
    if (sequence.dtype != values.dtype || !size || !out.is_contiguous() || !sequence.is_contiguous() ||
        !values.is_contiguous() || out.dtype != DType::i64 || size > (int64_t(1) << 29))
        return nullptr;
    const int64_t numel = out.numel(), rows = sequence.ndim() == 1 ? 1 : sequence.numel() / size;
    if (!numel) return make_kernel(0, [](char* const*, const Scalar*) {});
    const bool right = request.attrs.flag("right");
    return visit_frequent(sequence.dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        using Index = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
        return make_search<T, Index>(rows, size, size, numel / rows, right);
    });
}

}  // namespace

void add_searching(Registry& registry) { registry["searchsorted"] = searchsorted; }

}  // namespace norch::indexing
