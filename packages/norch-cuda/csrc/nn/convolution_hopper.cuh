// Convolution in float32 on the tensor cores of compute capability 9.0: each number is the sum of three of bfloat16, whose
// 24 bits are a float32's (G. Henry, P. Tang and A. Heinecke, "Leveraging the bfloat16 artificial intelligence datatype
// for higher-precision computations", 2019). Six products of parts are kept; what the other three would add is below the
// rounding of one float32 product. The large ones are summed apart from the small ones.
//
// Places of an image, padded so that its windows need no edges, lie behind each other, each with packets of 8 channels,
// 16 bytes: an element of the kernel is a matrix of the same places, some further on. So nothing is copied for windows.
#pragma once

#include <cuda_pipeline_primitives.h>

#include <cfloat>

#include "nn/hopper.cuh"
#include "runtime/device.cuh"

namespace norch::hopper {

constexpr int PARTS = 3, PACKET = 8;         // parts of a number; channels that lie together
constexpr int DEEP = 32;                     // channels that are summed over at a time
constexpr int MOST_PLACES = 256;             // of the result that a block has at a time
constexpr int MOST_TAPS = 9;                 // elements of the kernel
constexpr int PACKET_BYTES = PACKET * 2;

/// A matrix in shared memory, not swizzled, whose packets lie together by eights. `leading`: bytes from 8 elements of what
/// is summed over to the next 8; `stride`: from 8 of the others to the next 8.
__device__ inline uint64_t packets_of(uint32_t address, uint32_t leading, uint32_t stride) {
    return uint64_t((address & 0x3ffff) >> 4) | uint64_t(leading >> 4) << 16 | uint64_t(stride >> 4) << 32;
}

#define NORCH_LIST16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NORCH_LIST48                                                                                               \
    NORCH_LIST32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define NORCH_LIST96                                                                                               \
    NORCH_LIST64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, " \
    "%83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NORCH_AT4(i) "+f"(c[FIRST + i]), "+f"(c[FIRST + i + 1]), "+f"(c[FIRST + i + 2]), "+f"(c[FIRST + i + 3])
#define NORCH_AT16(i) NORCH_AT4(i), NORCH_AT4(i + 4), NORCH_AT4(i + 8), NORCH_AT4(i + 12)
#define NORCH_AT32 NORCH_AT16(0), NORCH_AT16(16)
#define NORCH_AT48 NORCH_AT32, NORCH_AT16(32)
#define NORCH_AT64 NORCH_AT48, NORCH_AT16(48)
#define NORCH_AT96 NORCH_AT64, NORCH_AT16(64), NORCH_AT16(80)
#define NORCH_PART_PRODUCT(N, LIST, ACC, A, B, P, TA, TB)                                       \
    asm volatile(NORCH_WGMMA(N, "bf16", LIST, A, B, P) TA ", " TB ";\n}" : ACC \
                 : "l"(a), "l"(b), "r"(adds), "n"(IS_DOWN), "n"(IS_DOWN))

/// c[FIRST ...] (64, N) = a @ b^T, or += where `adds`, over 16 elements. IS_DOWN: rows of both are what is summed over.
template <int N, int FIRST, int IS_DOWN, int SIZE>
__device__ inline void multiply_parts(float (&c)[SIZE], uint64_t a, uint64_t b, int adds) {
    static_assert(FIRST + N / 2 <= SIZE);
    if constexpr (N == 32) {
        NORCH_PART_PRODUCT(32, NORCH_LIST16, NORCH_AT16(0), "%16", "%17", "%18", "%19", "%20");
    } else if constexpr (N == 64) {
        NORCH_PART_PRODUCT(64, NORCH_LIST32, NORCH_AT32, "%32", "%33", "%34", "%35", "%36");
    } else if constexpr (N == 96) {
        NORCH_PART_PRODUCT(96, NORCH_LIST48, NORCH_AT48, "%48", "%49", "%50", "%51", "%52");
    } else if constexpr (N == 128) {
        NORCH_PART_PRODUCT(128, NORCH_LIST64, NORCH_AT64, "%64", "%65", "%66", "%67", "%68");
    } else {
        static_assert(N == 192);
        NORCH_PART_PRODUCT(192, NORCH_LIST96, NORCH_AT96, "%96", "%97", "%98", "%99", "%100");
    }
}

/// The sum of a result's large and small products; what is not finite is what float32 would give.
__device__ inline float whole(float large, float small) { return fabsf(large) <= FLT_MAX ? large + small : large; }

/// Two numbers in parts, the first in the lower halves.
struct Pair {
    uint32_t part[PARTS];
};
__device__ inline Pair parts_of(float x, float y) {
    auto large = [](float v) {  // rounded, unless that would be infinite
        const uint32_t bits = __float_as_uint(v), size = bits & 0x7fffffff;
        const float rounded = __bfloat162float(__float2bfloat16_rn(v));
        return size >= 0x7f7f8000 && size < 0x7f800000 ? __uint_as_float(bits & 0xffff0000) : rounded;
    };
    const float x0 = large(x), y0 = large(y), x1 = x - x0, y1 = y - y0;
    Pair out;
    out.part[0] = __float_as_uint(x0) >> 16 | (__float_as_uint(y0) & 0xffff0000);
    out.part[1] = pack<__nv_bfloat16>(x1, y1);
    const float x2 = x1 - __uint_as_float(out.part[1] << 16), y2 = y1 - __uint_as_float(out.part[1] & 0xffff0000);
    out.part[2] = pack<__nv_bfloat16>(x2, y2);
    return out;
}

/// Writes 8 numbers in parts, `step` bytes apart.
__device__ inline void write_packet(char* to, const float (&v)[PACKET], size_t step) {
    Pair pairs[PACKET / 2];
#pragma unroll
    for (int i = 0; i < PACKET / 2; ++i) pairs[i] = parts_of(v[2 * i], v[2 * i + 1]);
#pragma unroll
    for (int k = 0; k < PARTS; ++k)
        *reinterpret_cast<uint4*>(to + k * step) =
            make_uint4(pairs[0].part[k], pairs[1].part[k], pairs[2].part[k], pairs[3].part[k]);
}

/// Rows of an image in shared memory, of which each place has packets; first all places of the first 8 channels' first
/// parts, then of the next 8 channels', then of the second parts.
struct Places {
    FastDivide width, count;  // of a row; of all
    int rows, reserved;       // rows, the places after which are zeros; places that there is memory for
    int h, w, left;           // of the image; zeros before each row

    __host__ __device__ uint32_t step() const { return uint32_t(reserved) * PACKET_BYTES; }
};

/// Writes CHANNELS channels of the rows from `top` on; of those there are only `channels` are no zeros.
template <int CHANNELS>
__device__ inline void load_places(char* to, const Places& p, const float* image, int top, int channels) {
    constexpr int PACKETS = CHANNELS / PACKET;
    const int64_t plane = int64_t(p.h) * p.w;
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i < PACKETS * p.count.divisor; i += blockDim.x) {
        const uint32_t packet = p.count.quotient(i), place = i - packet * p.count.divisor;
        const uint32_t row = p.width.quotient(place);
        const int y = top + int(row), x = int(place - row * p.width.divisor) - p.left, first = int(packet) * PACKET;
        const bool is_inside = unsigned(y) < unsigned(p.h) && unsigned(x) < unsigned(p.w) && int(row) < p.rows;
        const float* from = image + first * plane + int64_t(y) * p.w + x;
        float v[PACKET];
#pragma unroll
        for (int j = 0; j < PACKET; ++j) v[j] = is_inside && first + j < channels ? from[j * plane] : 0.0f;
        write_packet(to + packet * p.step() + place * PACKET_BYTES, v, PACKETS * size_t(p.step()));
    }
}

/// A convolution with step 1: out[n, t, y, x] is the sum over s, a, b of weight[t, s, a, b] * image[n, s,
/// y - top + a * gap_y, x - left + b * gap_x]. Blocks have strips of an image's result.
struct Windows {
    Places image, grad;  // grad: of the gradient of the weight alone
    int from, to;        // channels
    int rows, columns;   // of the result
    int kh, kw, gap_y, gap_x, top;
    int strip, strips;   // rows of a strip; strips of an image
    int items;           // strips of all images
    int tiles;           // of 64 places
    int deep;            // DEEP channels each that are summed over
    bool is_resident;    // whether the weights of all channels fit shared memory
    int64_t bias_step;

    __device__ int shift(int a, int b) const { return a * gap_y * int(image.width.divisor) + b * gap_x; }
    __host__ __device__ int taps() const { return kh * kw; }
};

// --- The result, and the gradient of the image ------------------------------------------------------------------------

/// Bytes of the weights of DEEP channels for ACROSS channels of the result: packets of [tap][8 channels][part][to].
__host__ __device__ constexpr uint32_t weight_bytes(int taps, int across) {
    return uint32_t(taps) * (DEEP / PACKET) * PARTS * across * PACKET_BYTES;
}

/// A weight to be put in parts: strides of what comes out and of what is summed; IS_TURNED: the last tap is the first.
struct Weights {
    int from, to, taps, deep, across;
    int64_t to_step, from_step;
    bool is_turned;
};

/// A thread for 8 channels of each tap and channel of the result.
__global__ void __launch_bounds__(THREADS) split_weights_kernel(const __grid_constant__ Weights p, char* out,
                                                                const float* weight) {
    const int i = blockIdx.x * THREADS + threadIdx.x, block = blockIdx.z;
    const int tap = i % p.taps, packet = i / p.taps % (DEEP / PACKET), t = i / p.taps / (DEEP / PACKET);
    if (t >= p.across) return;
    const int to = block * p.across + t, first = blockIdx.y * DEEP + packet * PACKET;
    const float* from = weight + to * p.to_step + first * p.from_step + (p.is_turned ? p.taps - 1 - tap : tap);
    float v[PACKET];
#pragma unroll
    for (int j = 0; j < PACKET; ++j) v[j] = to < p.to && first + j < p.from ? from[j * p.from_step] : 0.0f;
    out += (int64_t(block) * p.deep + blockIdx.y) * weight_bytes(p.taps, p.across);
    write_packet(out + ((tap * (DEEP / PACKET) + packet) * PARTS * p.across + t) * PACKET_BYTES, v,
                 size_t(p.across) * PACKET_BYTES);
}

constexpr int WINDOW_GROUPS = 2, WINDOW_TEAM = WINDOW_GROUPS * WARPGROUP;

/// ACROSS channels of the result, of the strips blockIdx.x and so on.
template <int ACROSS_TO>
__global__ void __launch_bounds__(WINDOW_TEAM, ACROSS_TO == 32 ? 2 : 1)
    windows_kernel(const __grid_constant__ Windows p, float* out, const float* image, const char* weights,
                   const float* bias) {
    constexpr int N = ACROSS_TO, HALF = N / 2, EACH = MOST_PLACES / 64 / WINDOW_GROUPS;
    extern __shared__ __align__(128) char memory[];
    const int group = threadIdx.x / WARPGROUP, thread = threadIdx.x % WARPGROUP, lane = thread % 32;
    const uint32_t block_bytes = weight_bytes(p.taps(), N), step = p.image.step();
    char* const places = memory + (p.is_resident ? p.deep : 1) * block_bytes;
    const uint32_t first_place = shared_address(places);
    weights += int64_t(blockIdx.y) * p.deep * block_bytes;
    const int first_to = blockIdx.y * N;

    for (int item = blockIdx.x; item < p.items; item += gridDim.x) {
        const int n = item / p.strips, y0 = (item - n * p.strips) * p.strip;
        float sums[EACH][HALF] = {};
        for (int d = 0; d < p.deep; ++d) {
            __syncthreads();  // nobody reads what was there
            char* const own = memory + (p.is_resident ? d * block_bytes : 0);
            if (!p.is_resident || item == int(blockIdx.x)) {
                for (uint32_t i = threadIdx.x * 16; i < block_bytes; i += WINDOW_TEAM * 16)
                    __pipeline_memcpy_async(own + i, weights + d * block_bytes + i, 16);
                __pipeline_commit();
            }
            load_places<DEEP>(places, p.image, image + (int64_t(n) * p.from + d * DEEP) * p.image.h * p.image.w,
                                       y0 - p.top, p.from - d * DEEP);
            __pipeline_wait_prior(0);
            publish_shared();
            __syncthreads();
            const uint32_t first_weight = shared_address(own);
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                const int tile = group + e * WINDOW_GROUPS;
                if (tile >= p.tiles) break;
                float c[PARTS * HALF];
                int adds = 0;
                fence_products();
                for (int a = 0; a < p.kh; ++a)
                    for (int b = 0; b < p.kw; ++b) {
                        const uint32_t at = first_place + uint32_t(tile * 64 + p.shift(a, b)) * PACKET_BYTES;
                        const uint32_t from = first_weight + uint32_t(a * p.kw + b) * (block_bytes / uint32_t(p.taps()));
#pragma unroll
                        for (int k = 0; k < DEEP / 16; ++k) {
                            constexpr uint32_t STRIDE = 8 * PACKET_BYTES, COLUMN = PARTS * N * PACKET_BYTES;
                            auto left = [&](int part) {
                                return packets_of(at + (part * (DEEP / PACKET) + 2 * k) * step, step, STRIDE);
                            };
                            const uint64_t right = packets_of(from + 2 * k * COLUMN, COLUMN, STRIDE);
                            multiply_parts<3 * N, 0, 0>(c, left(0), right, adds);
                            multiply_parts<2 * N, HALF, 0>(c, left(1), right, 1);
                            multiply_parts<N, 2 * HALF, 0>(c, left(2), right, 1);
                            adds = 1;
                        }
                    }
                commit_products();
                wait_for_products<0>(c);
#pragma unroll
                for (int i = 0; i < HALF; ++i) sums[e][i] += whole(c[i], c[HALF + i] + c[2 * HALF + i]);
            }
        }
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            const int tile = group + e * WINDOW_GROUPS;
            if (tile >= p.tiles) break;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint32_t place = tile * 64 + thread / 32 * 16 + lane / 4 + half * 8;
                const uint32_t row = p.image.width.quotient(place);
                const int y = y0 + int(row), x = int(place - row * p.image.width.divisor);
                if (int(row) >= p.strip || y >= p.rows || x >= p.columns) continue;
                float* to = out + ((int64_t(n) * p.to + first_to) * p.rows + y) * p.columns + x;
#pragma unroll
                for (int i = 0; i < N / 4; ++i) {
                    const int t = i / 2 * 8 + lane % 4 * 2 + i % 2;
                    if (first_to + t < p.to)
                        to[int64_t(t) * p.rows * p.columns] =
                            sums[e][i / 2 * 4 + half * 2 + i % 2] + (bias ? bias[(first_to + t) * p.bias_step] : 0.0f);
                }
            }
        }
    }
}

// --- The gradient of the weight ---------------------------------------------------------------------------------------

constexpr int WEIGHT_GROUPS = 3, WEIGHT_TEAM = WEIGHT_GROUPS * WARPGROUP;
constexpr int TO = 64;  // channels of the result that a block has

/// The sums over some strips for TO channels of the result and 32 of the image; a warpgroup has EACH taps.
__global__ void __launch_bounds__(WEIGHT_TEAM, 1)
    weight_kernel(const __grid_constant__ Windows p, float* parts, const float* grad, const float* image) {
    constexpr int HALF = DEEP / 2, EACH = MOST_TAPS / WEIGHT_GROUPS;
    extern __shared__ __align__(128) char memory[];
    const int group = threadIdx.x / WARPGROUP, thread = threadIdx.x % WARPGROUP, lane = thread % 32;
    const int first_from = blockIdx.y * DEEP, first_to = blockIdx.z * TO, taps = p.taps();
    const uint32_t step = p.image.step(), grad_step = p.grad.step();
    char* const images = memory + PARTS * (TO / PACKET) * grad_step;
    const uint32_t grads = shared_address(memory), first_place = shared_address(images);
    float c[EACH][2 * HALF] = {};
    for (int item = blockIdx.x; item < p.items; item += gridDim.x) {
        const int n = item / p.strips, y0 = (item - n * p.strips) * p.strip;
        __syncthreads();  // nobody reads what was there
        load_places<TO>(memory, p.grad, grad + (int64_t(n) * p.to + first_to) * p.rows * p.columns, y0,
                               p.to - first_to);
        load_places<DEEP>(images, p.image, image + (int64_t(n) * p.from + first_from) * p.image.h * p.image.w,
                                   y0 - p.top, p.from - first_from);
        publish_shared();
        __syncthreads();
        fence_products();
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            const int tap = group * EACH + e;
            if (tap >= taps) break;
            const int a = tap / p.kw;
            const uint32_t at = first_place + uint32_t(p.shift(a, tap - a * p.kw)) * PACKET_BYTES;
            for (int k = 0; k < int(p.grad.count.divisor) / 16; ++k) {
                constexpr uint32_t NEXT = 8 * PACKET_BYTES;
                auto left = [&](int part) {
                    return packets_of(grads + part * (TO / PACKET) * grad_step + 2 * k * NEXT, NEXT, grad_step);
                };
                auto right = [&](int part) {
                    return packets_of(at + part * (DEEP / PACKET) * step + 2 * k * NEXT, NEXT, step);
                };
                multiply_parts<2 * DEEP, 0, 1>(c[e], left(0), right(0), 1);
                multiply_parts<DEEP, HALF, 1>(c[e], left(1), right(0), 1);
                multiply_parts<DEEP, HALF, 1>(c[e], left(1), right(1), 1);
                multiply_parts<DEEP, HALF, 1>(c[e], left(0), right(2), 1);
                multiply_parts<DEEP, HALF, 1>(c[e], left(2), right(0), 1);
            }
        }
        commit_products();
        wait_for_products<0>();
#pragma unroll
        for (int e = 0; e < EACH; ++e) hold(c[e]);
    }
    float* const out = parts + int64_t(blockIdx.x) * p.to * p.from * taps;
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        const int tap = group * EACH + e;
        if (tap >= taps) break;
#pragma unroll
        for (int i = 0; i < HALF; ++i) {
            const int t = first_to + thread / 32 * 16 + lane / 4 + i / 2 % 2 * 8;
            const int s = first_from + i / 4 * 8 + lane % 4 * 2 + i % 2;
            if (t < p.to && s < p.from)
                out[(int64_t(t) * p.from + s) * taps + tap] = whole(c[e][i], c[e][HALF + i]);
        }
    }
}

}  // namespace norch::hopper
