// What kernels over rows share: the threads of a row, its elements in registers, sums over it.
//
// A row belongs to `lanes` threads: a power of two within a warp, so that a warp has several short rows, or a block.
#pragma once

#include <algorithm>
#include <bit>

#include "runtime/device.cuh"

namespace norch::nn {

constexpr int WARP = 32, ROW_THREADS = 128, MAX_THREADS = 1024;
constexpr unsigned EVERY_LANE = 0xffffffffu;

template <class C>
__device__ constexpr C negative_infinity() {
    return -C(INFINITY);
}

struct Sum {
    template <class C>
    __device__ static C apply(C a, C b) {
        return a + b;
    }
    template <class C>
    __device__ static C identity() {
        return C(0);
    }
};
/// NaN is passed over.
struct Largest {
    template <class C>
    __device__ static C apply(C a, C b) {
        return b > a ? b : a;
    }
    template <class C>
    __device__ static C identity() {
        return negative_infinity<C>();
    }
};

template <class Op, int N, class C>
__device__ inline void reduce_lanes(C (&v)[N], int lanes) {
    for (int o = lanes >> 1; o; o >>= 1) {
#pragma unroll
        for (int j = 0; j < N; ++j) v[j] = Op::apply(v[j], __shfl_xor_sync(EVERY_LANE, v[j], o));
    }
}

/// Gives every thread of a block what all of them have together. The order is fixed.
template <class Op, int N, class C>
__device__ inline void reduce_block(C (&v)[N]) {
    __shared__ C parts[N][WARP];
    const int warps = blockDim.x / WARP, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    reduce_lanes<Op>(v, WARP);
    if (warps == 1) return;
    __syncthreads();  // the parts may still be read from the last time
    if (lane == 0) {
#pragma unroll
        for (int j = 0; j < N; ++j) parts[j][warp] = v[j];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = lane < warps ? parts[j][lane] : Op::template identity<C>();
    reduce_lanes<Op>(v, WARP);
}

/// The same for the threads of a row: `lanes` of a warp, or the block.
template <bool BLOCK, class Op, int N, class C>
__device__ inline void reduce_row(C (&v)[N], int lanes) {
    if constexpr (BLOCK) reduce_block<Op>(v);
    else reduce_lanes<Op>(v, lanes);
}
template <bool BLOCK, class Op, class C>
__device__ inline C reduce_row(C value, int lanes) {
    C v[1] = {value};
    reduce_row<BLOCK, Op>(v, lanes);
    return v[0];
}

template <class T, int VEC, class C>
__device__ inline void load_values(C* x, const T* from) {
    const auto packet = *reinterpret_cast<const Packet<T, VEC>*>(from);
#pragma unroll
    for (int j = 0; j < VEC; ++j) x[j] = C(upcast(packet.v[j]));
}
template <class T, int VEC, class C>
__device__ inline void store_values(T* to, const C* x) {
    Packet<T, VEC> packet;
#pragma unroll
    for (int j = 0; j < VEC; ++j) packet.v[j] = downcast<T>(x[j]);
    *reinterpret_cast<Packet<T, VEC>*>(to) = packet;
}
/// The same, of what should not take the cache's room from what is yet to be read.
template <class T, int VEC, class C>
__device__ inline void stream_values(T* to, const C* x) {
    if constexpr (sizeof(Packet<T, VEC>) == 16) {
        Packet<T, VEC> packet;
        store_values<T, VEC>(packet.v, x);
        __stcs(reinterpret_cast<uint4*>(to), std::bit_cast<uint4>(packet));
    } else {
        store_values<T, VEC>(to, x);
    }
}

/// Packet k of thread `lane` of a row is at (k * lanes + lane) * VEC. `empty` stands for what lies past n.
template <class T, int VEC, int K, class C>
__device__ inline void load_row(C (&x)[K * VEC], const T* row, int n, int lanes, int lane, C empty) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
        const int i = (k * lanes + lane) * VEC;
        if (i < n) {
            load_values<T, VEC>(x + k * VEC, row + i);
        } else {
#pragma unroll
            for (int j = 0; j < VEC; ++j) x[k * VEC + j] = empty;
        }
    }
}
template <class T, int VEC, int K, class C>
__device__ inline void store_row(T* row, const C (&x)[K * VEC], int n, int lanes, int lane) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
        const int i = (k * lanes + lane) * VEC;
        if (i < n) store_values<T, VEC>(row + i, x + k * VEC);
    }
}

/// Where a row of n elements can be accessed by packets, though it may start anywhere; the others are few.
template <class T, int VEC>
struct Ends {
    int head, tail;
    int64_t packed, n;

    __device__ Ends(const T* row, int64_t size) : n(size) {
        const int past = VEC == 1 ? 0 : int(reinterpret_cast<uintptr_t>(row) / sizeof(T) % VEC);
        head = past ? int(min(int64_t(VEC - past), n)) : 0;
        packed = (n - head) / VEC * VEC;
        tail = int(n - head - packed);
    }
    /// The element outside of packets that thread i has, or -1.
    __device__ int64_t index(int i) const {
        return i < head ? i : i < head + tail ? head + packed + (i - head) : -1;
    }
};

/// Whether two operands' packets lie alike in every row, wherever those start.
template <class T>
bool are_aligned_alike(const void* a, const void* b) {
    const auto x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
    return x % 16 == y % 16 && x % sizeof(T) == 0;
}

/// The rows that a block has at once, and this thread's place in them.
template <bool BLOCK>
struct RowPlace {
    int lanes, lane, group, groups;

    __device__ explicit RowPlace(int lanes_of_row) {
        lanes = BLOCK ? blockDim.x : lanes_of_row;
        lane = BLOCK ? threadIdx.x : threadIdx.x & (lanes - 1);
        group = BLOCK ? 0 : threadIdx.x / lanes;
        groups = BLOCK ? 1 : blockDim.x / lanes;
    }
};

/// How rows of n elements are shared out among threads.
struct RowPlan {
    enum Kind { short_packets, lanes_packets, block_packets, short_single, lanes_single, loop_packets, loop_single };
    Kind kind;
    int lanes = 1, threads = ROW_THREADS;

    int64_t rows_of_block() const {
        return kind == block_packets || kind == loop_packets || kind == loop_single ? 1 : threads / lanes;
    }
    /// A grid that goes over all rows, `per_multiprocessor` blocks on each at most. Without a bound each block has its
    /// rows once, which is faster: the next block loads while the last one stores.
    unsigned blocks(int64_t rows, int64_t per_multiprocessor = 1 << 20) const {
        return unsigned(std::min(ceil_div(rows, rows_of_block()), multiprocessors() * per_multiprocessor));
    }
};

inline int power_of_two(int64_t at_least, int most) {
    int out = 1;
    while (out < at_least && out < most) out *= 2;
    return out;
}

constexpr int SHORT_PACKETS = 2, SHORT_SINGLE = 4;  // what a thread keeps of a short row

/// What a thread may keep of a row: packets of `vec` elements, where rows have lanes of a warp and where they have a
/// block; and elements where there are no packets. Whether there are kernels for short rows too.
struct Keep {
    int vec, lanes_packets, block_packets, single;
    bool has_short;
};

/// has_packets: whether rows start at multiples of 16 bytes.
inline RowPlan plan_rows(int64_t n, bool has_packets, Keep keep) {
    RowPlan plan;
    const auto by_lanes = [&](RowPlan::Kind kind, int each) {
        plan.kind = kind;
        plan.lanes = power_of_two(ceil_div(n, each), WARP);
    };
    if (has_packets && keep.has_short && n <= WARP * SHORT_PACKETS * keep.vec) {
        by_lanes(RowPlan::short_packets, SHORT_PACKETS * keep.vec);
    } else if (has_packets && n <= int64_t(WARP) * keep.lanes_packets * keep.vec) {
        by_lanes(RowPlan::lanes_packets, keep.lanes_packets * keep.vec);
    } else if (!has_packets && keep.has_short && n <= WARP * SHORT_SINGLE) {
        by_lanes(RowPlan::short_single, SHORT_SINGLE);
    } else if (!has_packets && n <= WARP * keep.single) {
        by_lanes(RowPlan::lanes_single, keep.single);
    } else if (has_packets && n <= int64_t(MAX_THREADS) * keep.block_packets * keep.vec) {
        plan.kind = RowPlan::block_packets;
        plan.threads = int(ceil_div(ceil_div(n, keep.block_packets * keep.vec), WARP)) * WARP;
    } else {
        plan.kind = has_packets ? RowPlan::loop_packets : RowPlan::loop_single;
        plan.threads = n < 4096 ? 256 : n < 16384 ? 512 : 1024;  // few rows at once, which the cache can hold
    }
    return plan;
}

/// What a kernel of rows of T keeps of one, and how it accesses one.
template <class T, int LANES, int BLOCK, int SINGLE, bool HAS_SHORT>
struct Kept {
    static constexpr int VEC = PER_16_BYTES<T>;
    static constexpr Keep keep{VEC, LANES, BLOCK, SINGLE, HAS_SHORT};
};
/// 128 bytes of a row in each thread of a warp, 16 numbers in each thread of a block.
template <class T>
using KeptRows = Kept<T, std::min(8, 32 / PER_16_BYTES<T>), std::min(4, 16 / PER_16_BYTES<T>), 16, true>;

/// By VEC elements at once, K times in registers; in passes over the row where K is 0. `BLOCK`: by a block.
template <int VEC, int K, bool BLOCK>
struct RowAccess {};

/// Calls f(RowAccess) with how a plan of `Kept` accesses rows.
template <class Kept, class F>
void with_row_access(const RowPlan& plan, const F& f) {
    constexpr Keep k = Kept::keep;
    switch (plan.kind) {
        case RowPlan::lanes_packets: return f(RowAccess<k.vec, k.lanes_packets, false>{});
        case RowPlan::block_packets: return f(RowAccess<k.vec, k.block_packets, true>{});
        case RowPlan::lanes_single: return f(RowAccess<1, k.single, false>{});
        case RowPlan::loop_packets: return f(RowAccess<k.vec, 0, true>{});
        case RowPlan::loop_single: return f(RowAccess<1, 0, true>{});
        default:
            if constexpr (k.has_short) {
                if (plan.kind == RowPlan::short_packets) return f(RowAccess<k.vec, SHORT_PACKETS, false>{});
                return f(RowAccess<1, SHORT_SINGLE, false>{});
            }
    }
}

/// Whether 16-byte accesses reach rows of n elements that lie one after the other from each of some pointers on.
template <class T>
bool rows_have_packets(int64_t n, std::initializer_list<const void*> starts) {
    if (n % PER_16_BYTES<T>) return false;
    return std::all_of(starts.begin(), starts.end(), [](const void* p) { return is_aligned(p, 16); });
}

}  // namespace norch::nn
