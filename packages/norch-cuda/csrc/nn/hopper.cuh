// What kernels for compute capability 9.0 (files named hopper_*.cu, compiled for sm_90a alone) are made of: barriers in
// shared memory, tiles copied by the tensor memory accelerator, and products of a warpgroup (4 warps) by wgmma.
// A tile has rows of 64 16-bit elements, 128 bytes, whose 16-byte packets are swizzled: packet c of row r lies at
// c ^ r % 8. Wider matrices are several tiles, one after the other. Tiles start at multiples of 1024 bytes.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace norch::hopper {

constexpr int WARPGROUP = 128;
constexpr int ACROSS = 64;  // elements in a row of a tile

__device__ inline uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

// --- Barriers -------------------------------------------------------------------------------------------------------

using Barrier = uint64_t;

__device__ inline void init_barrier(Barrier* b, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals));
}
/// Makes barriers that this thread initialised known to the copy engine.
__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void arrive(Barrier* b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
__device__ inline void arrive_expecting(Barrier* b, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes)
                 : "memory");
}
/// Waits until the phase of the given parity is over.
__device__ inline void wait(Barrier* b, uint32_t parity) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n}" ::"r"(shared_address(b)), "r"(parity) : "memory");
}

/// Which of COUNT buffers in turn, and the parity of the phase of its barriers.
template <int COUNT>
struct Turn {
    int stage = 0;
    uint32_t parity = 0;

    __device__ void advance() {
        if (++stage == COUNT) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/// All threads of some warpgroups: the hardware's barriers, of which 0 is __syncthreads'.
__device__ inline void sync_named(int barrier, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void arrive_named(int barrier, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

template <int COUNT>
__device__ inline void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT)); }
template <int COUNT>
__device__ inline void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT)); }

// --- Copies ---------------------------------------------------------------------------------------------------------

/// Where a box of a tensor map starts: column, row and batch dims.
struct Corner {
    int column, row, batch[3];
};

__device__ inline void load_box(void* to, const CUtensorMap* map, const Corner& at, Barrier* done) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
        "[%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared_address(to)), "l"(map), "r"(shared_address(done)),
        "r"(at.column), "r"(at.row), "r"(at.batch[0]), "r"(at.batch[1]), "r"(at.batch[2]) : "memory");
}
__device__ inline void store_box(const CUtensorMap* map, const Corner& at, const void* from) {
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::
                 "l"(map), "r"(shared_address(from)), "r"(at.column), "r"(at.row), "r"(at.batch[0]), "r"(at.batch[1]),
                 "r"(at.batch[2]) : "memory");
}
/// Numbers of a row of a table, from `column` on. cp.async.bulk would do as well, but to compute-sanitizer's racecheck its
/// writes are the calling thread's, and it does not see that barriers order them before the reads.
__device__ inline void load_row(void* to, const CUtensorMap* map, int column, int row, Barrier* done) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
            "r"(shared_address(to)), "l"(map), "r"(shared_address(done)), "r"(column), "r"(row) : "memory");
}
__device__ inline void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until the stores of this thread have read shared memory.
__device__ inline void wait_for_stores() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
/// What this thread wrote to shared memory, for the copy engine and wgmma.
__device__ inline void publish_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- Products -------------------------------------------------------------------------------------------------------

/// A matrix in shared memory as wgmma takes it: swizzled tiles. `leading`: the bytes to the next 64 columns, where rows
/// are summed over.
__device__ inline uint64_t matrix_of(const void* tile, uint32_t leading = 0) {
    return uint64_t((shared_address(tile) & 0x3ffff) >> 4) | uint64_t(leading >> 4) << 16 | uint64_t(1024 >> 4) << 32 |
           uint64_t(1) << 62;
}

/// Orders what was done to registers before products that use them.
__device__ inline void fence_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Keeps what uses `c` after what comes before.
template <int N>
__device__ inline void hold(float (&c)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(c[i])::"memory");
}
/// Waits until at most PENDING of the committed groups of products are unfinished; `results`: those of the others.
template <int PENDING, class... C>
__device__ inline void wait_for_products(C&... results) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
    (hold(results), ...);
}

#define NORCH_ACC4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define NORCH_ACC16(i) NORCH_ACC4(i), NORCH_ACC4(i + 4), NORCH_ACC4(i + 8), NORCH_ACC4(i + 12)
#define NORCH_ACC32 NORCH_ACC16(0), NORCH_ACC16(16)
#define NORCH_ACC64 NORCH_ACC32, NORCH_ACC16(32), NORCH_ACC16(48)
#define NORCH_LIST32                                                                                               \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "    \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NORCH_LIST64                                                                                               \
    NORCH_LIST32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "    \
    "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NORCH_ACC128 NORCH_ACC64, NORCH_ACC16(64), NORCH_ACC16(80), NORCH_ACC16(96), NORCH_ACC16(112)
#define NORCH_LIST128                                                                                              \
    NORCH_LIST64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "    \
    "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, " \
    "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, " \
    "%121, %122, %123, %124, %125, %126, %127"
#define NORCH_WGMMA(N, TYPE, LIST, A, B, P)                                                                        \
    "{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE       \
    " {" LIST "}, " A ", " B ", p, 1, 1, "

// a (64 rows, 16 summed) in shared memory, rows of what is summed; b likewise
#define NORCH_WGMMA_SHARED(N, TYPE, LIST, ACC, A, B, P) \
    asm volatile(NORCH_WGMMA(N, TYPE, LIST, A, B, P) "0, 0;\n}" : ACC : "l"(a), "l"(b), "r"(adds))
// a in registers; b (16 summed, N) with rows along N
#define NORCH_WGMMA_REGISTERS(N, TYPE, LIST, ACC, A, B, P)           \
    asm volatile(NORCH_WGMMA(N, TYPE, LIST, A, B, P) "1;\n}" : ACC \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1))

/// c (64, N) = a @ b^T, or += where `adds`, over 16 columns. Lane l of warp w has columns 8 j + 2 (l % 4) and the next
/// of rows 16 w + l / 4 (c[4 j], c[4 j + 1]) and 8 more (c[4 j + 2], c[4 j + 3]).
template <class T, int N>
__device__ inline void multiply(float (&c)[N / 2], uint64_t a, uint64_t b, int adds) {
    constexpr bool IS_HALF = std::is_same_v<T, __half>;
    if constexpr (N == 64) {
        if constexpr (IS_HALF) NORCH_WGMMA_SHARED(64, "f16", NORCH_LIST32, NORCH_ACC32, "%32", "%33", "%34");
        else NORCH_WGMMA_SHARED(64, "bf16", NORCH_LIST32, NORCH_ACC32, "%32", "%33", "%34");
    } else {
        static_assert(N == 128);
        if constexpr (IS_HALF) NORCH_WGMMA_SHARED(128, "f16", NORCH_LIST64, NORCH_ACC64, "%64", "%65", "%66");
        else NORCH_WGMMA_SHARED(128, "bf16", NORCH_LIST64, NORCH_ACC64, "%64", "%65", "%66");
    }
}

/// c (64, N) += a @ b over 16 rows of b. `a` is in registers, laid out as 16 columns of a result.
template <class T, int N>
__device__ inline void multiply(float (&c)[N / 2], const uint32_t (&a)[4], uint64_t b) {
    constexpr bool IS_HALF = std::is_same_v<T, __half>;
    if constexpr (N == 64) {
        if constexpr (IS_HALF)
            NORCH_WGMMA_REGISTERS(64, "f16", NORCH_LIST32, NORCH_ACC32, "{%32, %33, %34, %35}", "%36", "%37");
        else
            NORCH_WGMMA_REGISTERS(64, "bf16", NORCH_LIST32, NORCH_ACC32, "{%32, %33, %34, %35}", "%36", "%37");
    } else if constexpr (N == 256) {
        if constexpr (IS_HALF)
            NORCH_WGMMA_REGISTERS(256, "f16", NORCH_LIST128, NORCH_ACC128, "{%128, %129, %130, %131}", "%132", "%133");
        else
            NORCH_WGMMA_REGISTERS(256, "bf16", NORCH_LIST128, NORCH_ACC128, "{%128, %129, %130, %131}", "%132", "%133");
    } else {
        static_assert(N == 128);
        if constexpr (IS_HALF)
            NORCH_WGMMA_REGISTERS(128, "f16", NORCH_LIST64, NORCH_ACC64, "{%64, %65, %66, %67}", "%68", "%69");
        else
            NORCH_WGMMA_REGISTERS(128, "bf16", NORCH_LIST64, NORCH_ACC64, "{%64, %65, %66, %67}", "%68", "%69");
    }
}

/// c = a @ b^T of tiles in shared memory: 64 rows of a (of A_ROWS in its tile), N of b, over D.
template <class T, int D, int N, int A_ROWS, int B_ROWS>
__device__ inline void begin_dots(float (&c)[N / 2], const T* a, const T* b) {
    fence_products();
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
        const int across = k / 4, within = k % 4 * 16;
        multiply<T, N>(c, matrix_of(a + across * A_ROWS * ACROSS) + (within * 2 >> 4),
                       matrix_of(b + across * B_ROWS * ACROSS) + (within * 2 >> 4), k > 0);
    }
    commit_products();
}

/// c += w @ b for w of ROWS columns in registers and a matrix b (ROWS, D) in shared memory.
template <class T, int D, int ROWS>
__device__ inline void begin_weighted(float (&c)[D / 2], const uint32_t (&w)[ROWS / 16][4], const T* b) {
    fence_products();
#pragma unroll
    for (int k = 0; k < ROWS / 16; ++k)
        multiply<T, D>(c, w[k], matrix_of(b + k * 16 * ACROSS, ROWS * ACROSS * 2));
    commit_products();
}

template <class T>
__device__ inline uint32_t pack(float low, float high) {
    uint32_t bits;
    if constexpr (std::is_same_v<T, __half>) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

/// A result rounded to T, as the left factor of another product.
template <class T, int N>
__device__ inline void pack_all(uint32_t (&w)[N / 16][4], const float (&c)[N / 2]) {
#pragma unroll
    for (int k = 0; k < N / 16; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i) w[k][i] = pack<T>(c[k * 8 + i * 2], c[k * 8 + i * 2 + 1]);
}

/// Writes 64 rows of a result to tiles, times a factor for each of a lane's rows.
template <class T, int D>
__device__ inline void write_tile(T* tile, const float (&c)[D / 2], float low, float high) {
    const int lane = threadIdx.x % 32, row = threadIdx.x % WARPGROUP / 32 * 16 + lane / 4;
    char* at = reinterpret_cast<char*>(tile) + row * ACROSS * 2 + lane % 4 * 4;
#pragma unroll
    for (int j = 0; j < D / 8; ++j) {
        char* packet = at + j / 8 * 64 * ACROSS * 2 + ((j % 8 ^ lane / 4) << 4);
        *reinterpret_cast<uint32_t*>(packet) = pack<T>(c[4 * j] * low, c[4 * j + 1] * low);
        *reinterpret_cast<uint32_t*>(packet + 8 * ACROSS * 2) = pack<T>(c[4 * j + 2] * high, c[4 * j + 3] * high);
    }
}

}  // namespace norch::hopper
