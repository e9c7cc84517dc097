// The gradient of a convolution's weight in float32, of windows of 3 x 3 with step 1 and few channels: each warp has the
// nine sums of eight channels of the result with one of the image, a lane for each of 32 places that lie together.
#include <algorithm>

#include "common/scratch.h"
#include "nn/convolution.h"
#include "runtime/allocator.h"
#include "runtime/device.cuh"

namespace norch::nn {
namespace {

constexpr int TAPS = 3, EACH = 8;     // taps of a side; channels of the result that a warp has
constexpr int VALUES = EACH * TAPS * TAPS, WARPS = THREADS / 32;
constexpr int64_t MOST_CHANNELS = 4;  // each reads the result's gradient again

/// A block has 1 << log_across pairs of EACH channels of the result and one of the image; the warps of a pair share its
/// pieces of images.
struct WeightSums {
    FastDivide columns;  // of the result
    int c, h, w, o, top, left;
    int places, length, pieces;  // of an image of the result; of a piece of them; pieces of an image
    int items;                   // pieces of all images
    int log_across;
};

__global__ void __launch_bounds__(THREADS, 2) weight_sums_kernel(const __grid_constant__ WeightSums p, float* parts,
                                                                 const float* grad, const float* image) {
    __shared__ float shared[WARPS * VALUES];
    const int across = 1 << p.log_across, slices = WARPS >> p.log_across, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int pair = blockIdx.y * across + (warp & (across - 1)), first = pair / p.c * EACH, s = pair % p.c;
    float sums[EACH][TAPS * TAPS] = {};
    const int items = first < p.o ? p.items : 0;
    for (int item = blockIdx.x * slices + (warp >> p.log_across); item < items; item += gridDim.x * slices) {
        const int n = item / p.pieces, begin = (item - n * p.pieces) * p.length, end = min(begin + p.length, p.places);
        const float* const plane = image + (int64_t(n) * p.c + s) * p.h * p.w;
        const float* const given = grad + (int64_t(n) * p.o + first) * p.places;
        float next[EACH];
        auto load = [&](int place) {
#pragma unroll
            for (int t = 0; t < EACH; ++t)
                next[t] = place < end && first + t < p.o ? given[t * p.places + place] : 0.0f;
        };
        load(begin + lane);
        for (int place = begin + lane; place - lane < end; place += 32) {
            float g[EACH];
#pragma unroll
            for (int t = 0; t < EACH; ++t) g[t] = next[t];
            load(place + 32);
            const int y = int(p.columns.quotient(uint32_t(place))), x = place - y * int(p.columns.divisor) - p.left;
#pragma unroll
            for (int a = 0; a < TAPS; ++a) {
                const int row = y - p.top + a;
                const bool is_row = place < end && unsigned(row) < unsigned(p.h);
#pragma unroll
                for (int b = 0; b < TAPS; ++b) {
                    const float value = is_row && unsigned(x + b) < unsigned(p.w) ? plane[row * p.w + x + b] : 0.0f;
#pragma unroll
                    for (int t = 0; t < EACH; ++t) sums[t][a * TAPS + b] += g[t] * value;
                }
            }
        }
    }

    // Each exchange of lanes halves the channels that a lane has, until every four lanes have one.
#pragma unroll
    for (int half = EACH / 2; half; half /= 2) {
        const bool is_upper = lane & (half * 4);
#pragma unroll
        for (int t = 0; t < half; ++t)
#pragma unroll
            for (int k = 0; k < TAPS * TAPS; ++k) {
                const float kept = is_upper ? sums[t + half][k] : sums[t][k];
                const float given = is_upper ? sums[t][k] : sums[t + half][k];
                sums[t][k] = kept + __shfl_xor_sync(~0u, given, half * 4);
            }
    }
#pragma unroll
    for (int k = 0; k < TAPS * TAPS; ++k) {
        float sum = sums[0][k];
        sum += __shfl_xor_sync(~0u, sum, 2);
        sum += __shfl_xor_sync(~0u, sum, 1);
        if (lane % 4 == 0) shared[warp * VALUES + lane / 4 * TAPS * TAPS + k] = sum;
    }
    __syncthreads();
    float* const out = parts + int64_t(blockIdx.x) * p.o * p.c * TAPS * TAPS;
    for (int i = threadIdx.x; i < across * VALUES; i += THREADS) {
        float sum = shared[i];
        for (int slice = 1; slice < slices; ++slice) sum += shared[slice * across * VALUES + i];
        const int to_pair = blockIdx.y * across + i / VALUES, k = i % (TAPS * TAPS);
        const int t = to_pair / p.c * EACH + i % VALUES / (TAPS * TAPS);
        if (t < p.o) out[(int64_t(t) * p.c + to_pair % p.c) * TAPS * TAPS + k] = sum;
    }
}

class WeightSumsKernel final : public Kernel {
public:
    explicit WeightSumsKernel(const Convolution& c) {
        p_.columns = FastDivide(uint32_t(c.columns));
        p_.c = int(c.c), p_.h = int(c.h), p_.w = int(c.w), p_.o = int(c.o), p_.top = int(c.top), p_.left = int(c.left);
        p_.places = int(c.places());
        const int64_t pairs = ceil_div(c.o, EACH) * c.c;
        while (1 << p_.log_across < std::min<int64_t>(pairs, WARPS)) ++p_.log_across;
        blocks_.y = unsigned(ceil_div(pairs, 1 << p_.log_across));
        const int64_t slices = WARPS >> p_.log_across, most = std::max<int64_t>(1, 2 * multiprocessors() / blocks_.y);
        int64_t least = INT64_MAX;  // steps of the block that has most of them
        for (int64_t pieces = 1; pieces <= std::max<int64_t>(1, ceil_div(c.places(), 128)); ++pieces) {
            const int64_t length = ceil_div(ceil_div(c.places(), pieces), 32) * 32, items = c.n * pieces;
            const int64_t blocks = std::min(most, ceil_div(items, slices));
            const int64_t steps = ceil_div(items, blocks * slices) * (length / 32);
            if (items > INT32_MAX || steps >= least) continue;
            least = steps;
            p_.pieces = int(pieces), p_.length = int(length), p_.items = int(items), blocks_.x = unsigned(blocks);
        }
        note_scratch(int64_t(part_bytes()));
    }

    void run(char* const* data, const Scalar*) const override {
        constexpr const char* WHAT = "the gradient of a convolution's weight";
        const Scratch<> parts(part_bytes());
        auto at = [](char* p) { return reinterpret_cast<float*>(p); };
        launch_kernel(WHAT, weight_sums_kernel, blocks_, THREADS, p_, at(parts.data()), at(data[1]), at(data[2]));
        launch_sum_of_parts(DType::f32, data[0], parts.data(), blocks_.x, numel());
    }

private:
    int64_t numel() const { return int64_t(p_.o) * p_.c * TAPS * TAPS; }
    size_t part_bytes() const { return size_t(blocks_.x * numel()) * sizeof(float); }

    WeightSums p_ = {};
    dim3 blocks_;
};

}  // namespace

KernelPtr direct_weight_grad(const Convolution& c, const Request& r) {
    const bool is_one = c.step_y == 1 && c.step_x == 1 && c.gap_y == 1 && c.gap_x == 1 && c.groups == 1;
    if (r.operands[0].dtype != DType::f32 || !is_one || c.kh != TAPS || c.kw != TAPS || c.c > MOST_CHANNELS) return nullptr;
    for (const Operand& operand : r.operands)
        if (!operand.is_contiguous()) return nullptr;
    if (c.n > INT32_MAX) return nullptr;
    return std::make_unique<WeightSumsKernel>(c);
}

}  // namespace norch::nn
