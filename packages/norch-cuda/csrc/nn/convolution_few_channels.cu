// Convolution of images of few channels with windows of 3 x 3, in float32, and the gradient of its weight, that of signals
// too: what takes the time is to write the result, or to read its gradient, once.
#include <algorithm>

#include "common/scratch.h"
#include "nn/convolution.h"
#include "runtime/allocator.h"
#include "runtime/device.cuh"

namespace norch::nn {
namespace {

constexpr int TAPS = 3, MOST_CHANNELS = 4;

// --- The result ---------------------------------------------------------------------------------------------------------

constexpr int PLACES = 2;           // that a thread has, THREADS apart
constexpr int MOST_ACROSS = 256;    // channels of the result that a block has
constexpr int LEAST_ACROSS = 8;

struct FewChannels {
    FastDivide columns, places;  // of the result
    uint32_t count;              // places of all images
    int h, w, o, across;
    int step_y, step_x, gap_y, gap_x, top, left;
    int64_t bias_step;
};

/// What is summed over, in numbers of which 16 bytes are read at once.
constexpr int padded_taps(int channels) { return (channels * TAPS * TAPS + 3) / 4 * 4; }

/// A thread has the windows of some places and goes through the channels of the result, whose weights all threads share.
template <int CHANNELS>
__global__ void __launch_bounds__(THREADS) few_channels_kernel(const __grid_constant__ FewChannels p, float* out,
                                                               const float* image, const float* weight, const float* bias) {
    constexpr int DEPTH = CHANNELS * TAPS * TAPS, PADDED = padded_taps(CHANNELS);
    extern __shared__ __align__(16) float shared[];
    const int first = blockIdx.y * p.across, across = min(p.across, p.o - first);
    for (int i = threadIdx.x; i < across * PADDED; i += THREADS) {
        const int t = i / PADDED, k = i - t * PADDED;
        shared[i] = k < DEPTH ? weight[int64_t(first + t) * DEPTH + k] : 0.0f;
    }
    float* const shifts = shared + p.across * PADDED;
    for (int t = threadIdx.x; t < across; t += THREADS) shifts[t] = bias ? bias[(first + t) * p.bias_step] : 0.0f;

    float windows[PLACES][PADDED] = {};
    float* to[PLACES];
#pragma unroll
    for (int i = 0; i < PLACES; ++i) {
        const uint32_t at = blockIdx.x * THREADS * PLACES + i * THREADS + threadIdx.x;
        to[i] = nullptr;
        if (at >= p.count) continue;
        const uint32_t n = p.places.quotient(at), place = at - n * p.places.divisor, row = p.columns.quotient(place);
        const int y = int(row) * p.step_y - p.top, x = int(place - row * p.columns.divisor) * p.step_x - p.left;
        to[i] = out + (int64_t(n) * p.o + first) * p.places.divisor + place;
#pragma unroll
        for (int c = 0; c < CHANNELS; ++c) {
            const float* const plane = image + (int64_t(n) * CHANNELS + c) * p.h * p.w;
#pragma unroll
            for (int a = 0; a < TAPS; ++a)
#pragma unroll
                for (int b = 0; b < TAPS; ++b) {
                    const int seen_y = y + a * p.gap_y, seen_x = x + b * p.gap_x;
                    if (unsigned(seen_y) < unsigned(p.h) && unsigned(seen_x) < unsigned(p.w))
                        windows[i][(c * TAPS + a) * TAPS + b] = plane[seen_y * p.w + seen_x];
                }
        }
    }
    __syncthreads();
#pragma unroll 2
    for (int t = 0; t < across; ++t) {
        float sums[PLACES] = {};
#pragma unroll
        for (int k = 0; k < PADDED; k += 4) {
            const float4 w = *reinterpret_cast<const float4*>(shared + t * PADDED + k);
#pragma unroll
            for (int i = 0; i < PLACES; ++i) {
                sums[i] += w.x * windows[i][k];
                if (k + 1 < DEPTH) sums[i] += w.y * windows[i][k + 1];
                if (k + 2 < DEPTH) sums[i] += w.z * windows[i][k + 2];
                if (k + 3 < DEPTH) sums[i] += w.w * windows[i][k + 3];
            }
        }
#pragma unroll
        for (int i = 0; i < PLACES; ++i)
            if (to[i]) to[i][int64_t(t) * p.places.divisor] = sums[i] + shifts[t];
    }
}

/// With no more taps than 3 x 3 of a channel each.
KernelPtr few_channels(const Convolution& c, const Request& r) {
    FewChannels p = {};
    p.columns = FastDivide(uint32_t(c.columns)), p.places = FastDivide(uint32_t(c.places()));
    p.count = uint32_t(c.n * c.places());
    p.h = int(c.h), p.w = int(c.w), p.o = int(c.o);
    p.step_y = int(c.step_y), p.step_x = int(c.step_x), p.gap_y = int(c.gap_y), p.gap_x = int(c.gap_x);
    p.top = int(c.top), p.left = int(c.left);
    const bool has_bias = r.operands.size() == 4;
    p.bias_step = has_bias ? r.operands[3].strides[0] : 0;
    const int64_t groups = ceil_div(c.o, LEAST_ACROSS), blocks = ceil_div(p.count, THREADS * PLACES);
    const int64_t wanted = std::max(ceil_div(2 * multiprocessors(), blocks), ceil_div(c.o, MOST_ACROSS));
    p.across = int(ceil_div(groups, std::min(wanted, groups))) * LEAST_ACROSS;
    const dim3 grid(unsigned(blocks), unsigned(ceil_div(c.o, p.across)));
    if (grid.y > 65535) return nullptr;
    auto kernel = c.c == 1 ? few_channels_kernel<1> : c.c == 2 ? few_channels_kernel<2>
                : c.c == 3 ? few_channels_kernel<3> : few_channels_kernel<4>;
    const size_t shared = size_t(p.across) * (padded_taps(int(c.c)) + 1) * sizeof(float);
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        auto at = [data](int i) { return reinterpret_cast<float*>(data[i]); };
        launch_kernel("a convolution", kernel, Grid{grid, THREADS, shared}, p, at(0), at(1), at(2),
                      has_bias ? at(3) : nullptr);
    });
}

// --- The gradient of the weight -----------------------------------------------------------------------------------------

constexpr int SIGNAL_TAPS = 16;  // of a part, where windows have one row
constexpr int EACH = 8;  // channels of the result that a warp has, with one of the image
constexpr int WARPS = THREADS / 32;

/// A block has 1 << log_across of the parts of a weight, EACH channels of the result, one of the image and some taps; the
/// warps of a part share its pieces of images.
struct WeightSums {
    FastDivide columns;  // of the result
    int c, h, w, o, step, gap, top, left;
    int taps, tap_parts;         // in a row; parts of a row of them
    int places, length, pieces;  // of an image of the result; of a piece of them; pieces of an image
    int items;                   // pieces of all images
    int log_across;
};

/// Of windows of A rows, of whose taps a part has B.
template <int A, int B>
__global__ void __launch_bounds__(THREADS, A * B > 9 ? 1 : 2)
    weight_sums_kernel(const __grid_constant__ WeightSums p, float* parts, const float* grad, const float* image) {
    constexpr int TAPS = A * B, VALUES = EACH * TAPS;
    __shared__ float shared[WARPS * VALUES];
    const int across = 1 << p.log_across, slices = WARPS >> p.log_across, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const auto place_of = [&](int part, int& first, int& channel, int& tap) {
        tap = part % p.tap_parts * B;
        channel = part / p.tap_parts % p.c;
        first = part / p.tap_parts / p.c * EACH;
    };
    int first, channel, tap;
    place_of(blockIdx.y * across + (warp & (across - 1)), first, channel, tap);
    float sums[EACH][TAPS] = {};
    const int items = first < p.o ? p.items : 0;
    for (int item = blockIdx.x * slices + (warp >> p.log_across); item < items; item += gridDim.x * slices) {
        const int n = item / p.pieces, begin = (item - n * p.pieces) * p.length, end = min(begin + p.length, p.places);
        const float* const plane = image + (int64_t(n) * p.c + channel) * p.h * p.w;
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
            const int y = int(p.columns.quotient(uint32_t(place)));
            const int x = (place - y * int(p.columns.divisor)) * p.step + tap * p.gap - p.left;
#pragma unroll
            for (int a = 0; a < A; ++a) {
                const int row = y - p.top + a;
                const bool is_row = place < end && unsigned(row) < unsigned(p.h);
#pragma unroll
                for (int b = 0; b < B; ++b) {
                    const int column = x + b * p.gap;
                    const float value = is_row && unsigned(column) < unsigned(p.w) ? plane[row * p.w + column] : 0.0f;
#pragma unroll
                    for (int t = 0; t < EACH; ++t) sums[t][a * B + b] += g[t] * value;
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
            for (int k = 0; k < TAPS; ++k) {
                const float kept = is_upper ? sums[t + half][k] : sums[t][k];
                const float given = is_upper ? sums[t][k] : sums[t + half][k];
                sums[t][k] = kept + __shfl_xor_sync(~0u, given, half * 4);
            }
    }
#pragma unroll
    for (int k = 0; k < TAPS; ++k) {
        float sum = sums[0][k];
        sum += __shfl_xor_sync(~0u, sum, 2);
        sum += __shfl_xor_sync(~0u, sum, 1);
        if (lane % 4 == 0) shared[warp * VALUES + lane / 4 * TAPS + k] = sum;
    }
    __syncthreads();
    float* const out = parts + int64_t(blockIdx.x) * p.o * p.c * A * p.taps;
    for (int i = threadIdx.x; i < across * VALUES; i += THREADS) {
        float sum = shared[i];
        for (int slice = 1; slice < slices; ++slice) sum += shared[slice * across * VALUES + i];
        place_of(blockIdx.y * across + i / VALUES, first, channel, tap);
        const int t = first + i % VALUES / TAPS, row = i % TAPS / B, column = tap + i % B;
        if (t < p.o && column < p.taps) out[((int64_t(t) * p.c + channel) * A + row) * p.taps + column] = sum;
    }
}

class WeightSumsKernel final : public Kernel {
public:
    explicit WeightSumsKernel(const Convolution& c) : rows_(c.kh) {
        p_.columns = FastDivide(uint32_t(c.columns));
        p_.c = int(c.c), p_.h = int(c.h), p_.w = int(c.w), p_.o = int(c.o), p_.top = int(c.top), p_.left = int(c.left);
        p_.step = int(c.step_x), p_.gap = int(c.gap_x), p_.taps = int(c.kw);
        p_.tap_parts = int(rows_ == 1 ? ceil_div(c.kw, SIGNAL_TAPS) : 1);
        p_.places = int(c.places());
        const int64_t shares = ceil_div(c.o, EACH) * c.c * p_.tap_parts;
        while (1 << p_.log_across < std::min<int64_t>(shares, WARPS)) ++p_.log_across;
        blocks_.y = unsigned(ceil_div(shares, 1 << p_.log_across));
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
        const auto kernel = rows_ == 1 ? weight_sums_kernel<1, SIGNAL_TAPS> : weight_sums_kernel<TAPS, TAPS>;
        launch_kernel(WHAT, kernel, blocks_, THREADS, p_, at(parts.data()), at(data[1]), at(data[2]));
        launch_sum_of_parts(DType::f32, data[0], parts.data(), blocks_.x, numel());
    }

private:
    int64_t numel() const { return int64_t(p_.o) * p_.c * rows_ * p_.taps; }
    size_t part_bytes() const { return size_t(blocks_.x * numel()) * sizeof(float); }

    int64_t rows_;  // of taps
    WeightSums p_ = {};
    dim3 blocks_;
};

bool are_plain(const Request& r) {
    for (size_t i = 0; i < r.operands.size(); ++i) {
        const Operand& operand = r.operands[i];
        if (operand.dtype != DType::f32 || operand.numel() == 0 || operand.is_scalar) return false;
        if (i < 3 && !operand.is_contiguous()) return false;
    }
    return true;
}

}  // namespace

KernelPtr few_channels_convolution(ConvolutionKind kind, const Request& r) {
    const bool is_forward = kind == ConvolutionKind::forward;
    if (kind == ConvolutionKind::input_grad || !are_plain(r)) return nullptr;
    const Operand &image = r.operands[is_forward ? 1 : 2], &result = r.operands[is_forward ? 0 : 1];
    const Convolution c(image, result, r.operands[is_forward ? 2 : 0].shape, r.attrs);
    if (!c.is_usual() || c.groups != 1 || c.kh != TAPS || c.kw != TAPS || c.c > MOST_CHANNELS) return nullptr;
    if (is_forward) return c.n * c.places() <= INT32_MAX ? few_channels(c, r) : nullptr;
    const bool is_one = c.step_y == 1 && c.step_x == 1 && c.gap_y == 1 && c.gap_x == 1;
    return is_one && c.n <= INT32_MAX ? std::make_unique<WeightSumsKernel>(c) : nullptr;
}

KernelPtr signal_weight_grad(ConvolutionKind kind, const Request& r) {
    constexpr int64_t MOST_TAPS = 64;
    if (kind != ConvolutionKind::weight_grad || !are_plain(r)) return nullptr;
    const Convolution c(r.operands[2], r.operands[1], r.operands[0].shape, r.attrs);
    const bool is_signal = c.h == 1 && c.kh == 1 && c.rows == 1 && c.top == 0;
    if (!is_signal || !c.is_usual() || c.groups != 1 || c.c > MOST_CHANNELS || c.kw > MOST_TAPS) return nullptr;
    return c.n <= INT32_MAX ? std::make_unique<WeightSumsKernel>(c) : nullptr;
}

}  // namespace norch::nn
