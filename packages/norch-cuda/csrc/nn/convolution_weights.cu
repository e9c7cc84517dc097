// The gradient of a convolution's weight in float32, of windows of 3 x 3 with step 1 and few channels: each thread has the
// nine sums of some pairs of channels. Strips of an image and of the result's gradient lie in shared memory.
#include <cuda_pipeline_primitives.h>

#include <algorithm>

#include "common/scratch.h"
#include "nn/convolution.h"
#include "runtime/allocator.h"
#include "runtime/device.cuh"

namespace norch::nn {
namespace {

constexpr int TAPS = 3, EACH = 8;     // taps of a side; channels of the result that a thread has
constexpr int64_t MOST_CHANNELS = 4;  // of more, cuDNN is faster: 80 us instead of 135 of 32

/// A block has 1 << log_from channels of the image and 8 << log_groups of the result, and of these each thread one and 8:
/// at most as many threads as a warp has. The others share the strip's pieces of rows.
struct WeightSums {
    int n, c, h, w, o, rows, columns, top, left;
    int log_from, log_groups;
    int strip, strips, length, pieces;  // rows of the result at a time, pieces of each
    int items;                          // strips of all images
    int image_pitch, grad_pitch, image_width;
};

__global__ void __launch_bounds__(THREADS, 2) weight_sums_kernel(const __grid_constant__ WeightSums p, float* parts,
                                                                 const float* grad, const float* image) {
    extern __shared__ __align__(16) float shared[];
    const int from = 1 << p.log_from, groups = 1 << p.log_groups, slices = THREADS >> (p.log_from + p.log_groups);
    const int s = threadIdx.x & (from - 1), group = threadIdx.x >> p.log_from & (groups - 1);
    const int slice = threadIdx.x >> (p.log_from + p.log_groups), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first_t = blockIdx.y * groups * EACH;
    float* const grads = shared;
    float* const images = shared + p.strip * p.columns * p.grad_pitch;
    float sums[EACH][TAPS][TAPS] = {};

    for (int item = blockIdx.x; item < p.items; item += gridDim.x) {
        const int n = item / p.strips, y0 = (item - n * p.strips) * p.strip, count = min(p.strip, p.rows - y0);
        for (int line = warp; line < groups * EACH * count; line += THREADS / 32) {  // of the gradient: a channel's row
            const int r = line >> (p.log_groups + 3), t = line & (groups * EACH - 1);
            const float* row = grad + ((int64_t(n) * p.o + first_t + t) * p.rows + y0 + r) * p.columns;
            const bool is_there = first_t + t < p.o;
            for (int x = lane; x < p.columns; x += 32)
                __pipeline_memcpy_async(&grads[(r * p.columns + x) * p.grad_pitch + t], is_there ? row + x : grad, 4,
                                        is_there ? 0 : 4);
        }
        for (int line = warp; line < from * (count + TAPS - 1); line += THREADS / 32) {
            const int r = line >> p.log_from, i = line & (from - 1), y = y0 + r - p.top;
            const float* row = image + ((int64_t(n) * p.c + i) * p.h + y) * p.w;
            const bool is_row = i < p.c && unsigned(y) < unsigned(p.h);
            for (int x = lane; x < p.image_width; x += 32) {
                const bool is_there = is_row && unsigned(x - p.left) < unsigned(p.w);
                __pipeline_memcpy_async(&images[(r * p.image_width + x) * p.image_pitch + i],
                                        is_there ? row + (x - p.left) : image, 4, is_there ? 0 : 4);
            }
        }
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
        for (int piece = slice; piece < count * p.pieces; piece += slices) {
            const int r = piece / p.pieces, begin = (piece - r * p.pieces) * p.length;
            const int end = min(begin + p.length, p.columns);
            const float* seen = images + (r * p.image_width + begin) * p.image_pitch + s;
            const float* given = grads + (r * p.columns + begin) * p.grad_pitch + group * EACH;
            const int down = p.image_width * p.image_pitch;
            float window[TAPS][TAPS];  // of which each step moves one column
#pragma unroll
            for (int a = 0; a < TAPS; ++a)
#pragma unroll
                for (int b = 0; b < TAPS - 1; ++b) window[a][b] = seen[a * down + b * p.image_pitch];
            seen += (TAPS - 1) * p.image_pitch;
#pragma unroll 3
            for (int x = begin; x < end; ++x) {
                float g[EACH];
#pragma unroll
                for (int t = 0; t < EACH; t += 4)
                    *reinterpret_cast<float4*>(g + t) = *reinterpret_cast<const float4*>(given + t);
#pragma unroll
                for (int a = 0; a < TAPS; ++a) window[a][TAPS - 1] = seen[a * down];
#pragma unroll
                for (int t = 0; t < EACH; ++t)
#pragma unroll
                    for (int a = 0; a < TAPS; ++a)
#pragma unroll
                        for (int b = 0; b < TAPS; ++b) sums[t][a][b] += g[t] * window[a][b];
#pragma unroll
                for (int a = 0; a < TAPS; ++a)
#pragma unroll
                    for (int b = 0; b < TAPS - 1; ++b) window[a][b] = window[a][b + 1];
                seen += p.image_pitch;
                given += p.grad_pitch;
            }
        }
        __syncthreads();
    }

    // The threads that share channels add up what they have, in order: those of a warp, then the warps.
    const int owners = from * groups, owner = threadIdx.x & (owners - 1);
    float* const out = parts + int64_t(blockIdx.x) * p.o * p.c * TAPS * TAPS;
#pragma unroll
    for (int t = 0; t < EACH; ++t)
#pragma unroll
        for (int k = 0; k < TAPS * TAPS; ++k) {
            float& sum = sums[t][k / TAPS][k % TAPS];
            for (int apart = owners; apart < 32; apart *= 2) sum += __shfl_xor_sync(~0u, sum, apart);
            if (lane < owners) shared[(warp * EACH * TAPS * TAPS + t * TAPS * TAPS + k) * owners + owner] = sum;
        }
    __syncthreads();
    const int numel = EACH * TAPS * TAPS * owners;
    for (int i = threadIdx.x; i < numel; i += THREADS) {
        float sum = shared[i];
        for (int other = 1; other < THREADS / 32; ++other) sum += shared[other * numel + i];
        const int k = i / owners, which = i - k * owners, to_s = which & (from - 1);
        const int to_t = first_t + (which >> p.log_from) * EACH + k / (TAPS * TAPS);
        if (to_s < p.c && to_t < p.o) out[(int64_t(to_t) * p.c + to_s) * TAPS * TAPS + k % (TAPS * TAPS)] = sum;
    }
}

int log2_below(int64_t n, int most) {
    int log = 0;
    while (log < most && (int64_t(1) << log) < n) ++log;
    return log;
}

class WeightSumsKernel final : public Kernel {
public:
    WeightSumsKernel(const WeightSums& p, size_t shared) : p_(p), shared_(shared) {
        const unsigned y = unsigned(ceil_div(p.o, EACH << p.log_groups));
        const int64_t most = std::max<int64_t>(1, 2 * int64_t(multiprocessors()) / y);
        // As many strips for each block, where that can be.
        const int64_t each = ceil_div(p.items, std::min<int64_t>(most, p.items));
        blocks_ = dim3(unsigned(ceil_div(p.items, each)), y);
        note_scratch(int64_t(part_bytes()));
    }

    void run(char* const* data, const Scalar*) const override {
        static bool is_prepared[64];
        const int device = launch_stream().device;
        if (device >= 64 || !is_prepared[device]) {
            check(cudaFuncSetAttribute(weight_sums_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(MOST_SHARED)), WHAT);
            if (device < 64) is_prepared[device] = true;
        }
        const Scratch<> parts(part_bytes());
        auto at = [](char* p) { return reinterpret_cast<float*>(p); };
        launch_kernel(WHAT, weight_sums_kernel, Grid{blocks_, THREADS, shared_}, p_, at(parts.data()), at(data[1]), at(data[2]));
        launch_sum_of_parts(DType::f32, data[0], parts.data(), blocks_.x, numel());
    }

    static constexpr size_t MOST_SHARED = 100 << 10;  // of two blocks at once

private:
    static constexpr const char* WHAT = "the gradient of a convolution's weight";

    int64_t numel() const { return int64_t(p_.o) * p_.c * TAPS * TAPS; }
    size_t part_bytes() const { return size_t(blocks_.x * numel()) * sizeof(float); }

    WeightSums p_;
    size_t shared_;
    dim3 blocks_;
};

}  // namespace

KernelPtr direct_weight_grad(const Convolution& c, const Request& r) {
    const bool is_one = c.step_y == 1 && c.step_x == 1 && c.gap_y == 1 && c.gap_x == 1 && c.groups == 1;
    if (r.operands[0].dtype != DType::f32 || !is_one || c.kh != TAPS || c.kw != TAPS || c.c > MOST_CHANNELS) return nullptr;
    for (const Operand& operand : r.operands)
        if (!operand.is_contiguous()) return nullptr;
    WeightSums p = {};
    p.n = int(c.n), p.c = int(c.c), p.h = int(c.h), p.w = int(c.w), p.o = int(c.o);
    p.rows = int(c.rows), p.columns = int(c.columns), p.top = int(c.top), p.left = int(c.left);
    p.log_from = log2_below(c.c, 2);
    p.log_groups = log2_below(ceil_div(c.o, EACH), 3);
    p.pieces = int(ceil_div(p.columns, 8));
    p.length = int(ceil_div(p.columns, p.pieces));
    p.image_width = p.columns + TAPS - 1;
    p.image_pitch = p.log_from ? (1 << p.log_from) + 1 : 1;
    p.grad_pitch = (EACH << p.log_groups) + 4;
    const auto shared_of = [&](int strip) {
        const int64_t floats = int64_t(strip) * p.columns * p.grad_pitch + int64_t(strip + TAPS - 1) * p.image_width * p.image_pitch;
        const int64_t sums = THREADS / 32 * EACH * TAPS * TAPS << (p.log_from + p.log_groups);  // of the warps
        return size_t(std::max(floats, sums)) * sizeof(float);
    };
    p.strip = p.rows;
    while (p.strip > 1 && shared_of(p.strip) > WeightSumsKernel::MOST_SHARED) --p.strip;
    if (shared_of(p.strip) > WeightSumsKernel::MOST_SHARED) return nullptr;
    p.strips = int(ceil_div(p.rows, p.strip));
    p.strip = int(ceil_div(p.rows, p.strips));
    if (c.n * p.strips > INT32_MAX) return nullptr;
    p.items = int(c.n) * p.strips;
    return std::make_unique<WeightSumsKernel>(p, shared_of(p.strip));
}

}  // namespace norch::nn
