// What the attention kernels share on the device: where a block works, and tiles in shared memory.
#pragma once

#include <algorithm>

#include "nn/attention.h"

namespace norch::nn {

/// The head and the tile of rows that a block works on.
template <int N>
struct Place {
    char* at[N];
    uint32_t head, tile;

    /// `is_reversed`: the last tiles first, where those take longest.
    __device__ Place(const Attention<N>& a, bool is_reversed) {
        head = a.tiles.quotient(blockIdx.x);
        tile = blockIdx.x - head * a.tiles.divisor;
        if (is_reversed) tile = a.tiles.divisor - 1 - tile;
        int64_t offset[N];
        a.batch.offsets(head, offset);
#pragma unroll
        for (int k = 0; k < N; ++k) at[k] = a.data[k] + offset[k];
    }
};

/// The pitch of a tile's rows: 16 bytes more than the row, so that accesses to a column of packets meet all banks.
template <class T, int D>
constexpr int PITCH = D + PER_16_BYTES<T>;

/// How many keys the queries before `end` see together.
template <int N>
__device__ inline int keys_seen(const Attention<N>& a, int end) {
    return a.is_causal ? min(a.keys, end) : a.keys;
}

/// 16 bytes from global to shared memory, or 16 zero bytes, without waiting for them.
__device__ inline void copy_async(void* to, const void* from, bool is_there) {
    const uint32_t address = uint32_t(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(is_there ? 16 : 0)
                 : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most PENDING of the groups committed by this thread are still on their way.
template <int PENDING>
__device__ inline void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

/// Rows first to first + ROWS of a matrix (rows, columns) into shared memory, 0 where the matrix ends.
template <class T, int D, int ROWS, int COUNT>
__device__ void load_tile(T* to, const char* from, Side side, int first, int rows, int columns, bool has_packets) {
    if (has_packets) {
        constexpr int VEC = PER_16_BYTES<T>, ACROSS = D / VEC;
        static_assert(ROWS * ACROSS % COUNT == 0, "every thread has its share of the packets");
#pragma unroll
        for (int step = 0; step < ROWS * ACROSS; step += COUNT) {
            const int i = step + int(threadIdx.x), r = i / ACROSS, c = i % ACROSS * VEC;
            const bool is_there = first + r < rows && c < columns;
            copy_async(to + r * PITCH<T, D> + c, is_there ? from + (first + r) * side.row + c * int(sizeof(T)) : from,
                       is_there);
        }
    } else {
        for (int i = threadIdx.x; i < ROWS * D; i += COUNT) {
            const int r = i / D, c = i % D;
            const bool is_there = first + r < rows && c < columns;
            to[r * PITCH<T, D> + c] =
                is_there ? *reinterpret_cast<const T*>(from + (first + r) * side.row + c * side.column) : T(0.0f);
        }
    }
}

template <int N>
__device__ inline bool has_packets(const Attention<N>& a, int operand) {
    return a.packets >> operand & 1;
}

/// log(sum(exp(scores))) of a query.
__device__ inline void store_sum(const Attention<FORWARD>& a, const Place<FORWARD>& place, int query, float sum) {
    if (query < a.queries) *reinterpret_cast<float*>(place.at[F_SUMS] + query * a.side[F_SUMS].row) = sum;
}

/// What scores are taken relative to: their maximum; 0 where a query sees nothing but -inf, whose weight is to be 0.
__device__ inline float base_of(float largest) { return largest == -INFINITY ? 0.0f : largest; }

/// How many facts of queries a head has: whole tiles of them.
__host__ __device__ inline int64_t padded_queries(const Attention<BACKWARD>& a, int tile) {
    return (int64_t(a.queries) + tile - 1) / tile * tile;
}

/// `COUNT` rows of an operand of the gradient from `first` on.
template <class T, int D, int COUNT, int THREAD_COUNT>
__device__ inline void load_block(T* to, const Attention<BACKWARD>& a, const Place<BACKWARD>& place, int operand,
                                  int first) {
    const bool is_query = operand == B_QUERY || operand == B_GRAD;
    const bool is_size = operand == B_QUERY || operand == B_KEY;
    load_tile<T, D, COUNT, THREAD_COUNT>(to, place.at[operand], a.side[operand], first, is_query ? a.queries : a.keys,
                                         is_size ? a.size : a.values, has_packets(a, operand));
}

/// A head's mask; its rows are those of the scores.
struct HeadMask {
    const char* at;
    Side side;
    bool is_bits;
};
/// `at`: where the mask of a head begins. `turned`: rows of scores are keys.
__device__ inline HeadMask mask_of(const MaskLayout& layout, const char* at, bool turned) {
    return turned ? HeadMask{at + layout.turned_start, layout.turned, layout.is_bits}
                  : HeadMask{at, layout.side, layout.is_bits};
}

/// 1 / the sum of a query's weights; 0 where a mask leaves it nothing to see.
__device__ inline float factor_of(float total, bool has_mask) { return has_mask && total == 0 ? 0.0f : 1.0f / total; }

/// Calls f(Tag<T>, integral_constant<D>) with the type of a dtype and the width of the tiles that hold queries and values.
template <class F>
void with_width(DType dtype, int32_t size, int32_t values, const F& f) {
    const int width = std::max(size, values);
    auto call = [&]<class T>(Tag<T> type) {
        if (width <= 32) return f(type, std::integral_constant<int, 32>{});
        if (width <= 64) return f(type, std::integral_constant<int, 64>{});
        if constexpr (sizeof(T) == 2)
            if (width > 128) return f(type, std::integral_constant<int, 256>{});
        f(type, std::integral_constant<int, 128>{});
    };
    if (dtype == DType::f32) call(Tag<float>{});
    else if (dtype == DType::f16) call(Tag<__half>{});
    else call(Tag<__nv_bfloat16>{});
}

}  // namespace norch::nn
