// searchsorted: by binary search, a thread for each value.
#include "common/operands.h"
#include "runtime/families.h"
#include "runtime/type_groups.cuh"

namespace norch::indexing {
namespace {

/// Sequences of `size` elements, one for all values or one for each `count` of them.
struct Search {
    int64_t numel, count, size;
    int bits;  // of size
    DType dtype;
    bool right;
};

/// As norch's formula has places, in a sequence that is not in order too; NaN is the largest.
template <class Group>
__global__ void __launch_bounds__(THREADS) search_kernel(const Search s, const char* sequence, const char* values,
                                                         int64_t* out) {
    using C = computed<Group>;
    const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= s.numel) return;
    with_type<Group>(s.dtype, [&]<class T>(Tag<T>) {
        const T* const row = reinterpret_cast<const T*>(sequence) + (s.count == s.numel ? 0 : i / s.count * s.size);
        const C value = upcast(reinterpret_cast<const T*>(values)[i]);
        const bool is_nan = value != value;
        int64_t place = -1;  // of the last element that goes before
        for (int bit = s.bits - 1; bit >= 0; --bit) {
            const int64_t further = place + (int64_t(1) << bit);
            const C element = upcast(row[min(further, s.size - 1)]);
            const bool goes = s.right ? (element <= value) | is_nan : (element < value) | (is_nan & (element == element));
            place = goes ? further : place;
        }
        out[i] = min(place + 1, s.size);
    });
}

/// Null where dtypes differ or elements do not lie side by side: norch's formula serves those.
KernelPtr searchsorted(const Request& request) {
    const Operand &out = request.operands[0], &sequence = request.operands[1], &values = request.operands[2];
    const int64_t size = sequence.shape.empty() ? 0 : sequence.shape.back();
    if (sequence.dtype != values.dtype || !size || !out.is_contiguous() || !sequence.is_contiguous() ||
        !values.is_contiguous() || out.dtype != DType::i64)
        return nullptr;
    Search s = {out.numel(), 0, size, 0, sequence.dtype, request.attrs.flag("right")};
    if (!s.numel) return make_kernel(0, [](char* const*, const Scalar*) {});
    if (ceil_div(s.numel, THREADS) > INT32_MAX) return nullptr;
    s.count = s.numel / (sequence.ndim() == 1 ? 1 : sequence.numel() / size);
    while (size >> s.bits) ++s.bits;
    return visit_groups(s.dtype, [&]<class Group>(Tag<Group>) -> KernelPtr {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            launch_kernel("searchsorted", search_kernel<Group>, unsigned(ceil_div(s.numel, THREADS)), THREADS, s, data[1],
                          data[2], reinterpret_cast<int64_t*>(data[0]));
        });
    });
}

}  // namespace

void add_searching(Registry& registry) { registry["searchsorted"] = searchsorted; }

}  // namespace norch::indexing
