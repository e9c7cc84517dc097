// What sort and topk share: elements as keys, unsigned integers in the wanted order, with their indices, and a network
// that sorts them in shared memory.
#pragma once

#include "runtime/device.cuh"

namespace norch::indexing::sorting {

template <class U>
__device__ inline uint64_t float_key(U bits, int mantissa) {
    constexpr int BITS = 8 * sizeof(U);
    const U sign = U(U(1) << (BITS - 1)), magnitude = U(bits & U(~sign));
    const U infinity = U(U(U(~sign) >> mantissa) << mantissa);
    if (magnitude > infinity) return U(~U(0));  // NaN comes last
    if (magnitude == 0) return sign;            // both zeros are the same
    return U(bits & sign ? ~bits : bits | sign);
}

/// An unsigned integer that is ordered as the elements are.
__device__ inline uint64_t key_at(const char* x, DType dtype) {
    switch (dtype) {
        case DType::f64: return float_key(*reinterpret_cast<const uint64_t*>(x), 52);
        case DType::f32: return float_key(*reinterpret_cast<const uint32_t*>(x), 23);
        case DType::f16: return float_key(*reinterpret_cast<const uint16_t*>(x), 10);
        case DType::bf16: return float_key(*reinterpret_cast<const uint16_t*>(x), 7);
        case DType::i64: return *reinterpret_cast<const uint64_t*>(x) ^ (uint64_t(1) << 63);
        case DType::i32: return *reinterpret_cast<const uint32_t*>(x) ^ 0x80000000u;
        case DType::i16: return *reinterpret_cast<const uint16_t*>(x) ^ 0x8000u;
        case DType::i8: return *reinterpret_cast<const uint8_t*>(x) ^ 0x80u;
        default: return *reinterpret_cast<const uint8_t*>(x);
    }
}

/// The rows of a sort (of values, indices, x), and the way along them.
struct Rows {
    Layout<3> layout;
    int64_t stride[3];
    int64_t n;
    uint64_t flip;  // the key's bits, to sort the other way round
    DType dtype;
};

__device__ inline void put(const Rows& r, char* values, char* indices, const char* x, int64_t to, int64_t from) {
    const char* source = x + from * r.stride[2];
    char* target = values + to * r.stride[0];
    switch (r.dtype) {
        case DType::f64:
        case DType::i64: *reinterpret_cast<uint64_t*>(target) = *reinterpret_cast<const uint64_t*>(source); break;
        case DType::f32:
        case DType::i32: *reinterpret_cast<uint32_t*>(target) = *reinterpret_cast<const uint32_t*>(source); break;
        case DType::f16:
        case DType::bf16:
        case DType::i16: *reinterpret_cast<uint16_t*>(target) = *reinterpret_cast<const uint16_t*>(source); break;
        default: *target = *source;
    }
    *reinterpret_cast<int64_t*>(indices + to * r.stride[1]) = from;
}

/// A key and an index: one integer for keys of at most 32 bits, otherwise two.
struct Packed {
    uint64_t bits;
    Packed() = default;
    __device__ Packed(uint64_t key, uint32_t index) : bits(key << 32 | index) {}
    __device__ uint32_t index() const { return uint32_t(bits); }
    __device__ bool operator>(const Packed& other) const { return bits > other.bits; }
};
struct Paired {
    uint64_t key;
    uint32_t place;
    Paired() = default;
    __device__ Paired(uint64_t key, uint32_t index) : key(key), place(index) {}
    __device__ uint32_t index() const { return place; }
    __device__ bool operator>(const Paired& other) const {
        return key > other.key || (key == other.key && place > other.place);
    }
};

/// Where entry i lies in shared memory: with a gap after every 8, so that eight in a row meet no bank twice.
__device__ inline int slot(int i) { return i + i / 8; }

/// The steps `step`, step / 2, ... (STEPS of them) of the network, of 2**STEPS entries in the registers of a thread.
template <int STEPS, class Entry>
__device__ inline void exchange(Entry* entries, int count, int width, int size, int step) {
    constexpr int N = 1 << STEPS;
    const int last = step >> (STEPS - 1);
    __syncthreads();
    for (int t = threadIdx.x; t < count / N; t += blockDim.x) {
        const int low = t & (last - 1), first = (t - low) * N + low;
        const bool is_ascending = (first & (width - 1) & size) == 0;
        Entry e[N];
#pragma unroll
        for (int m = 0; m < N; ++m) e[m] = entries[slot(first + m * last)];
#pragma unroll
        for (int half = N / 2; half > 0; half /= 2)
#pragma unroll
            for (int m = 0; m < N; ++m) {
                if (m & half) continue;
                const Entry a = e[m], b = e[m + half];
                const bool is_swapped = (a > b) == is_ascending;
                e[m] = is_swapped ? b : a;
                e[m + half] = is_swapped ? a : b;
            }
#pragma unroll
        for (int m = 0; m < N; ++m) entries[slot(first + m * last)] = e[m];
    }
}

/// Sorts rows of 2**log_width entries, `count` in all, at their slots (K. Batcher, "Sorting networks and their
/// applications", 1968).
template <class Entry>
__device__ inline void sort_entries(Entry* entries, int count, int log_width) {
    const int width = 1 << log_width;
    for (int log_size = 1; log_size <= log_width; ++log_size) {
        const int size = 1 << log_size;
        int left = log_size;
        if (left % 3 == 1) exchange<1>(entries, count, width, size, 1 << --left);
        if (left % 3 == 2) exchange<2>(entries, count, width, size, 1 << (left - 1)), left -= 2;
        for (; left > 0; left -= 3) exchange<3>(entries, count, width, size, 1 << (left - 1));
    }
    __syncthreads();
}

}  // namespace norch::indexing::sorting
