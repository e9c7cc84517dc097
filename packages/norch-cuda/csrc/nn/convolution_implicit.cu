// Convolution in float32 as a matrix product whose right side, the windows, is never written: tiles of it are gathered
// into shared memory, one element of the kernel and DEPTH channels at a time.
#include <algorithm>
#include <array>

#include "matmul/own_product.h"
#include "nn/convolution.h"
#include "runtime/allocator.h"
#include "runtime/device.cuh"

namespace norch::nn {
namespace {

constexpr int DEPTH = 8;

/// out[n, t, y, x] = bias[t] + the sum over s, a, b of image[n, s, y * step_y + first_y + a * move_y, ...] *
/// weight[t, s, a, b], for each group of channels. Strides count elements.
struct Correlation {
    FastDivide across, down;  // of the output
    uint32_t count;           // places of all images
    int from, to;             // channels of a group
    int h, w, kh, kw, step_y, step_x, first_y, first_x, move_y, move_x;
    int64_t image[4], weight[4], image_group, weight_group, bias_stride;
    int groups;
};

/// ROWS channels and COLUMNS places for each block of TEAM threads, each of which has DOWN * 8 of them.
template <int ROWS, int COLUMNS, int TEAM>
__global__ void __launch_bounds__(TEAM, 512 / TEAM)
    correlation_kernel(const __grid_constant__ Correlation p, float* out, const float* image, const float* weight,
                       const float* bias) {
    constexpr int TX = COLUMNS / 8, TY = TEAM / TX, DOWN = ROWS / TY;
    constexpr int A_EACH = ROWS * DEPTH / TEAM, B_EACH = COLUMNS * DEPTH / TEAM, B_STEP = TEAM / COLUMNS;
    static_assert(DOWN % 4 == 0 && A_EACH * TEAM == ROWS * DEPTH, "tiles must fit the threads");
    __shared__ __align__(16) float left[2][DEPTH][ROWS], right[2][DEPTH][COLUMNS];
    // A warp has 8 * 4 threads of the tile: what they read of shared memory at once lies in 128 bytes.
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int tx = warp % (TX / 8) * 8 + lane % 8, ty = warp / (TX / 8) * 4 + lane / 8;
    const int group = blockIdx.z, first_row = blockIdx.y * ROWS;
    const uint32_t first_column = blockIdx.x * COLUMNS;
    image += group * p.image_group;
    weight += group * p.weight_group;

    // The place whose windows this thread gathers, and the weights that it reads.
    const int column = threadIdx.x % COLUMNS, depth = threadIdx.x / COLUMNS;
    const uint32_t place = first_column + column;
    const uint32_t line = p.across.quotient(place), n = p.down.quotient(line);
    const int y0 = int(line - n * p.down.divisor) * p.step_y + p.first_y;
    const int x0 = int(place - line * p.across.divisor) * p.step_x + p.first_x;
    const float* source = image + n * p.image[0];
    const bool is_place = place < p.count;

    int a = 0, b = 0, s = 0;
    bool is_inside;
    const float *from, *weights;
    auto enter_tap = [&] {
        const int y = y0 + a * p.move_y, x = x0 + b * p.move_x;
        is_inside = is_place && unsigned(y) < unsigned(p.h) && unsigned(x) < unsigned(p.w);
        from = source + (is_inside ? y * p.image[2] + x * p.image[3] : 0);
        weights = weight + a * p.weight[2] + b * p.weight[3];
    };
    enter_tap();
    float next_left[A_EACH], next_right[B_EACH];
    auto gather = [&] {
#pragma unroll
        for (int i = 0; i < A_EACH; ++i) {
            const int e = threadIdx.x + i * TEAM, t = first_row + e % ROWS, c = s + e / ROWS;
            next_left[i] = t < p.to && c < p.from ? weights[t * p.weight[0] + c * p.weight[1]] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < B_EACH; ++i) {
            const int c = s + depth + i * B_STEP;
            next_right[i] = is_inside && c < p.from ? from[c * p.image[1]] : 0.0f;
        }
    };
    auto put = [&](int buffer) {
#pragma unroll
        for (int i = 0; i < A_EACH; ++i) {
            const int e = threadIdx.x + i * TEAM;
            left[buffer][e / ROWS][e % ROWS] = next_left[i];
        }
#pragma unroll
        for (int i = 0; i < B_EACH; ++i) right[buffer][depth + i * B_STEP][column] = next_right[i];
    };
    gather();
    put(0);
    __syncthreads();

    float sums[DOWN][8] = {};
    const int steps = p.kh * p.kw * ((p.from + DEPTH - 1) / DEPTH);
    for (int step = 0; step < steps; ++step) {
        const int buffer = step & 1;
        const bool has_next = step + 1 < steps;
        if (has_next) {
            s += DEPTH;
            if (s >= p.from) {
                s = 0;
                if (++b == p.kw) b = 0, ++a;
                enter_tap();
            }
            gather();
        }
#pragma unroll
        for (int d = 0; d < DEPTH; ++d) {
            float x[DOWN], y[8];
#pragma unroll
            for (int i = 0; i < DOWN; i += 4)
                *reinterpret_cast<float4*>(x + i) = *reinterpret_cast<const float4*>(&left[buffer][d][ty * 4 + i * TY]);
#pragma unroll
            for (int j = 0; j < 8; j += 4)
                *reinterpret_cast<float4*>(y + j) = *reinterpret_cast<const float4*>(&right[buffer][d][tx * 4 + j * TX]);
#pragma unroll
            for (int i = 0; i < DOWN; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) sums[i][j] += x[i] * y[j];
        }
        if (has_next) put(buffer ^ 1);
        __syncthreads();
    }

    const uint32_t size = p.across.divisor * p.down.divisor;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        const uint32_t q = first_column + tx * 4 + j / 4 * (4 * TX) + j % 4;
        if (q >= p.count) continue;
        const uint32_t m = p.down.quotient(p.across.quotient(q));
        float* to = out + (int64_t(m) * p.groups + group) * p.to * size + (q - m * size);
#pragma unroll
        for (int i = 0; i < DOWN; ++i) {
            const int t = first_row + ty * 4 + i / 4 * (4 * TY) + i % 4;
            if (t < p.to) to[t * int64_t(size)] = sums[i][j] + (bias ? bias[(group * p.to + t) * p.bias_stride] : 0.0f);
        }
    }
}

/// Weights are read along the channels that come out, so they are copied to lie that way.
template <int ROWS, int COLUMNS, int TEAM>
class Implicit final : public Kernel {
public:
    Implicit(const Correlation& p, StagedOperand weight, bool has_bias)
        : p_(p), weight_(std::move(weight)), has_bias_(has_bias),
          blocks_(unsigned(ceil_div(p.count, COLUMNS)), unsigned(ceil_div(p.to, ROWS)), unsigned(p.groups)) {}

    void run(char* const* data, const Scalar*) const override {
        const Seen weight(weight_, data[2]);
        auto at = [data](int i) { return reinterpret_cast<float*>(data[i]); };
        launch_kernel("a convolution", correlation_kernel<ROWS, COLUMNS, TEAM>, blocks_, TEAM, p_, at(0), at(1),
                      reinterpret_cast<float*>(weight.data()), has_bias_ ? at(3) : nullptr);
    }

private:
    Correlation p_;
    StagedOperand weight_;
    bool has_bias_;
    dim3 blocks_;
};

/// `order`: the dims of the weight, those of the kernel first, the channels that come out last. Null where channels or
/// tiles are too few.
KernelPtr make(Correlation p, const Request& r, const std::array<size_t, 4>& order) {
    const Operand &out = r.operands[0], &image = r.operands[1], &weight = r.operands[2];
    for (size_t d = 0; d < 4; ++d) p.image[d] = image.strides[d];
    p.h = int(image.shape[2]), p.w = int(image.shape[3]);
    p.across = FastDivide(uint32_t(out.shape[3])), p.down = FastDivide(uint32_t(out.shape[2]));
    p.count = uint32_t(out.shape[0] * out.shape[2] * out.shape[3]);
    p.image_group = p.from * image.strides[1];
    const bool has_bias = r.operands.size() == 4;
    p.bias_stride = has_bias ? r.operands[3].strides[0] : 0;
    const int64_t blocks = ceil_div(p.count, 128) * ceil_div(p.to, 64) * p.groups;
    if (p.from < DEPTH || p.to <= 16 || blocks < 100 || p.groups > 8) return nullptr;
    StagedOperand staged;
    staged.view = weight;
    for (size_t d = 0; d < 4; ++d) {
        staged.view.shape[d] = weight.shape[order[d]];
        staged.view.strides[d] = weight.strides[order[d]];
    }
    staged.stage();
    p.weight[0] = 1, p.weight[1] = staged.view.strides[2];
    p.weight[2] = staged.view.strides[0], p.weight[3] = staged.view.strides[1];
    if (p.to % 128 == 0 && blocks >= 1000) return std::make_unique<Implicit<128, 128, 256>>(p, std::move(staged), has_bias);
    if (p.to <= 32) return std::make_unique<Implicit<32, 128, 128>>(p, std::move(staged), has_bias);
    return std::make_unique<Implicit<64, 128, 128>>(p, std::move(staged), has_bias);
}

}  // namespace

KernelPtr implicit_convolution(const Convolution& c, const Request& r) {
    Correlation p = {};
    p.groups = int(c.groups), p.from = int(c.c / c.groups), p.to = int(c.o / c.groups);
    p.kh = int(c.kh), p.kw = int(c.kw);
    p.step_y = int(c.step_y), p.step_x = int(c.step_x), p.first_y = int(-c.top), p.first_x = int(-c.left);
    p.move_y = int(c.gap_y), p.move_x = int(c.gap_x);
    p.weight_group = p.to;
    return make(p, r, {2, 3, 1, 0});
}

KernelPtr implicit_input_grad(const Convolution& c, const Request& r) {
    if (c.step_y != 1 || c.step_x != 1) return nullptr;
    Correlation p = {};
    p.groups = int(c.groups), p.from = int(c.o / c.groups), p.to = int(c.c / c.groups);
    p.kh = int(c.kh), p.kw = int(c.kw);
    p.step_y = p.step_x = 1, p.first_y = int(c.top), p.first_x = int(c.left);
    p.move_y = int(-c.gap_y), p.move_x = int(-c.gap_x);
    p.weight_group = int64_t(p.from) * p.to;
    return make(p, r, {2, 3, 0, 1});
}

}  // namespace norch::nn
