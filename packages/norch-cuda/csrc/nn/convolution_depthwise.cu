// Depthwise convolution, where a channel of an image has one channel of the result or some: a thread has some results below
// each other in a column, and the weights of its channel, which it keeps from image to image. The gradient of the input with
// step 1 is one too, with the weights turned around; for that of the weights it keeps their sums.
#include <algorithm>

#include "common/image_layout.h"
#include "common/scratch.h"
#include "nn/convolution.h"
#include "runtime/allocator.h"
#include "runtime/device.cuh"

namespace norch::nn {
namespace {

constexpr int LANES = 32, COLUMNS = THREADS / LANES;  // channels and columns that a block has where channels come last

/// Results of a thread.
constexpr int strip_of(int step) { return step == 1 ? 8 : 4; }

/// Where the element of a channel in row and column is.
template <bool IS_LAST>
__device__ int64_t element(int channels, int channel, int64_t n, int64_t height, int64_t width, int row, int column) {
    return IS_LAST ? ((n * height + row) * width + column) * channels + channel
                   : ((n * channels + channel) * height + row) * width + column;
}

// --- The result, and the gradient of the input --------------------------------------------------------------------------

struct Depthwise {
    FastDivide strips, columns;  // of the result
    FastDivide groups, tiles;    // of LANES channels; of COLUMNS columns
    uint32_t items;              // threads for the planes of one image
    FastDivide results;          // of one channel of the image, whose channels come first
    int n, inputs, channels, h, w, rows, top, left;
    bool is_turned;
};

/// What a thread has: of planes its place in the image's results, so that neighbours read a row together; where channels
/// come last neighbours have those, and the warps of a block neighbouring columns, whose windows overlap.
struct Share {
    int channel, x, strip;
    bool is_there;

    __device__ Share(const Depthwise& p, bool is_last) {
        if (is_last) {
            const uint32_t rest = p.groups.quotient(blockIdx.x), above = p.tiles.quotient(rest);
            channel = int(blockIdx.x - rest * p.groups.divisor) * LANES + int(threadIdx.x % LANES);
            x = int(rest - above * p.tiles.divisor) * COLUMNS + int(threadIdx.x / LANES);
            strip = int(above);
            is_there = channel < p.channels && x < int(p.columns.divisor);
        } else {
            const uint32_t item = blockIdx.x * THREADS + threadIdx.x, line = p.columns.quotient(item);
            const uint32_t above = p.strips.quotient(line);
            channel = int(above);
            x = int(item - line * p.columns.divisor);
            strip = int(line - above * p.strips.divisor);
            is_there = item < p.items;
        }
    }
};

template <class T, int TAPS, int STEP, bool IS_LAST>
__global__ void __launch_bounds__(THREADS, 2) depthwise_kernel(const __grid_constant__ Depthwise p, T* out, const T* image,
                                                               const T* weight, const T* bias) {
    constexpr int STRIP = strip_of(STEP), SPAN = (STRIP - 1) * STEP + TAPS, SIZE = TAPS * TAPS;
    const Share at(p, IS_LAST);
    if (!at.is_there) return;
    const int y = at.strip * STRIP, columns = int(p.columns.divisor), across = IS_LAST ? p.channels : 1;
    const int seen = IS_LAST ? at.channel : int(p.results.quotient(uint32_t(at.channel)));
    const int top = y * STEP - p.top, left = at.x * STEP - p.left;
    float weights[SIZE];
#pragma unroll
    for (int k = 0; k < SIZE; ++k) weights[k] = upcast(weight[at.channel * SIZE + (p.is_turned ? SIZE - 1 - k : k)]);
    const float shift = bias ? upcast(bias[at.channel]) : 0.0f;
    for (int n = blockIdx.y; n < p.n; n += gridDim.y) {
        const T* const from = image + element<IS_LAST>(IS_LAST ? p.channels : p.inputs, seen, n, p.h, p.w, top, left);
        float sums[STRIP];
#pragma unroll
        for (int j = 0; j < STRIP; ++j) sums[j] = shift;
#pragma unroll
        for (int r = 0; r < SPAN; ++r) {
            const bool is_row = unsigned(top + r) < unsigned(p.h);
            float values[TAPS];
#pragma unroll
            for (int b = 0; b < TAPS; ++b)
                values[b] = is_row && unsigned(left + b) < unsigned(p.w) ? upcast(from[(r * p.w + b) * across]) : 0.0f;
#pragma unroll
            for (int j = 0; j < STRIP; ++j) {
                const int a = r - j * STEP;
                if (a < 0 || a >= TAPS) continue;
#pragma unroll
                for (int b = 0; b < TAPS; ++b) sums[j] += weights[a * TAPS + b] * values[b];
            }
        }
        T* const to = out + element<IS_LAST>(p.channels, at.channel, n, p.rows, columns, y, at.x);
#pragma unroll
        for (int j = 0; j < STRIP; ++j)
            if (y + j < p.rows) to[j * columns * across] = downcast<T>(sums[j]);
    }
}

template <class T, int TAPS>
auto depthwise_of(int64_t step, bool is_last) {
    if (is_last) return step == 1 ? depthwise_kernel<T, TAPS, 1, true> : depthwise_kernel<T, TAPS, 2, true>;
    return step == 1 ? depthwise_kernel<T, TAPS, 1, false> : depthwise_kernel<T, TAPS, 2, false>;
}

/// A kernel's parameters and grid for the result, or the gradient of the input.
struct DepthwiseLaunch {
    Depthwise p = {};
    dim3 grid;

    DepthwiseLaunch(const Convolution& c, bool is_grad, bool is_last) {
        const int64_t rows = is_grad ? c.h : c.rows, columns = is_grad ? c.w : c.columns;
        const int64_t strips = ceil_div(rows, strip_of(int(c.step_y))), groups = ceil_div(c.o, LANES);
        const int64_t tiles = ceil_div(columns, COLUMNS), items = c.o * strips * columns;
        const int64_t blocks = is_last ? strips * tiles * groups : ceil_div(items, THREADS);
        p.strips = FastDivide(uint32_t(strips)), p.columns = FastDivide(uint32_t(columns)), p.items = uint32_t(items);
        p.groups = FastDivide(uint32_t(groups)), p.tiles = FastDivide(uint32_t(tiles));
        p.results = FastDivide(uint32_t(c.o / c.c));
        p.n = int(c.n), p.inputs = int(c.c), p.channels = int(c.o), p.rows = int(rows), p.is_turned = is_grad;
        p.h = int(is_grad ? c.rows : c.h), p.w = int(is_grad ? c.columns : c.w);
        p.top = int(is_grad ? c.kh - 1 - c.top : c.top), p.left = int(is_grad ? c.kw - 1 - c.left : c.left);
        // As many threads as are at work twice over; each has as many images as another.
        const int64_t wanted = ceil_div(int64_t(multiprocessors()) * 16, blocks);
        const int64_t images = ceil_div(c.n, std::clamp<int64_t>(wanted, 1, std::min<int64_t>(c.n, 65535)));
        grid = dim3(unsigned(blocks), unsigned(ceil_div(c.n, images)));
    }
};

// --- The gradient of the weights ----------------------------------------------------------------------------------------

struct DepthwiseSums {
    FastDivide strips, columns;  // of the result
    FastDivide results;          // of one channel of the image, whose channels come first
    int n, images;               // images in all, and in a part of them, whose sums a block has
    int inputs, channels, h, w, rows, top, left;
};

/// A block has a channel, or where those come last LANES of them.
template <class T, int TAPS, int STEP, bool IS_LAST>
__global__ void __launch_bounds__(THREADS, 2) depthwise_sums_kernel(const __grid_constant__ DepthwiseSums p, float* parts,
                                                                    const T* grad, const T* image) {
    constexpr int STRIP = strip_of(STEP), SPAN = (STRIP - 1) * STEP + TAPS, SIZE = TAPS * TAPS;
    const int lane = int(threadIdx.x) % LANES, warp = int(threadIdx.x) / LANES, columns = int(p.columns.divisor);
    const int channel = IS_LAST ? int(blockIdx.x) * LANES + lane : int(blockIdx.x), across = IS_LAST ? p.channels : 1;
    const int seen = IS_LAST ? channel : int(p.results.quotient(uint32_t(channel)));
    const int first = int(blockIdx.y) * p.images, images = channel < p.channels ? min(p.images, p.n - first) : 0;
    const uint32_t items = uint32_t(images) * p.strips.divisor * p.columns.divisor;
    float sums[SIZE] = {};
    for (uint32_t item = IS_LAST ? warp : threadIdx.x; item < items; item += IS_LAST ? COLUMNS : THREADS) {
        const uint32_t line = p.columns.quotient(item), of_part = p.strips.quotient(line);
        const int x = int(item - line * p.columns.divisor), y = int(line - of_part * p.strips.divisor) * STRIP;
        const int n = first + int(of_part), top = y * STEP - p.top, left = x * STEP - p.left;
        const T* const given = grad + element<IS_LAST>(p.channels, channel, n, p.rows, columns, y, x);
        const T* const from = image + element<IS_LAST>(IS_LAST ? p.channels : p.inputs, seen, n, p.h, p.w, top, left);
        float g[STRIP];
#pragma unroll
        for (int j = 0; j < STRIP; ++j) g[j] = y + j < p.rows ? upcast(given[j * columns * across]) : 0.0f;
#pragma unroll
        for (int r = 0; r < SPAN; ++r) {
            const bool is_row = unsigned(top + r) < unsigned(p.h);
            float values[TAPS];
#pragma unroll
            for (int b = 0; b < TAPS; ++b)
                values[b] = is_row && unsigned(left + b) < unsigned(p.w) ? upcast(from[(r * p.w + b) * across]) : 0.0f;
#pragma unroll
            for (int j = 0; j < STRIP; ++j) {
                const int a = r - j * STEP;
                if (a < 0 || a >= TAPS || y + j >= p.rows) continue;
#pragma unroll
                for (int b = 0; b < TAPS; ++b) sums[a * TAPS + b] += g[j] * values[b];
            }
        }
    }
    float* const to = parts + (int64_t(blockIdx.y) * p.channels + channel) * SIZE;
    if constexpr (IS_LAST) {
        __shared__ float shared[COLUMNS / 2][SIZE][LANES];
        for (int half = COLUMNS / 2; half; half /= 2) {
            if (warp >= half && warp < 2 * half)
                for (int k = 0; k < SIZE; ++k) shared[warp - half][k][lane] = sums[k];
            __syncthreads();
            if (warp < half)
                for (int k = 0; k < SIZE; ++k) sums[k] += shared[warp][k][lane];
            __syncthreads();
        }
        if (warp == 0 && channel < p.channels)
            for (int k = 0; k < SIZE; ++k) to[k] = sums[k];
    } else {
        __shared__ float shared[THREADS / LANES][SIZE];
#pragma unroll
        for (int k = 0; k < SIZE; ++k) {
            float sum = sums[k];
            for (int gap = LANES / 2; gap; gap /= 2) sum += __shfl_xor_sync(~0u, sum, gap);
            if (lane == 0) shared[warp][k] = sum;
        }
        __syncthreads();
        for (int k = int(threadIdx.x); k < SIZE; k += THREADS) {
            float sum = 0;
            for (int w = 0; w < THREADS / LANES; ++w) sum += shared[w][k];
            to[k] = sum;
        }
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS) depthwise_total_kernel(T* out, const float* parts, int count, int numel) {
    const int i = int(blockIdx.x * THREADS + threadIdx.x);
    if (i >= numel) return;
    float sum = 0;
    for (int part = 0; part < count; ++part) sum += parts[int64_t(part) * numel + i];
    out[i] = downcast<T>(sum);
}

template <class T, int TAPS>
auto depthwise_sums_of(int64_t step, bool is_last) {
    if (is_last) return step == 1 ? depthwise_sums_kernel<T, TAPS, 1, true> : depthwise_sums_kernel<T, TAPS, 2, true>;
    return step == 1 ? depthwise_sums_kernel<T, TAPS, 1, false> : depthwise_sums_kernel<T, TAPS, 2, false>;
}

/// What `make` gives for windows of so many elements each way.
template <class Make>
auto of_taps(int64_t taps, const Make& make) {
    switch (taps) {
        case 1: return make.template operator()<1>();
        case 3: return make.template operator()<3>();
        case 5: return make.template operator()<5>();
        default: return make.template operator()<7>();
    }
}

template <class T>
class DepthwiseWeightGrad final : public Kernel {
public:
    DepthwiseWeightGrad(const Convolution& c, bool is_last) {
        p_.strips = FastDivide(uint32_t(ceil_div(c.rows, strip_of(int(c.step_y)))));
        p_.columns = FastDivide(uint32_t(c.columns));
        p_.results = FastDivide(uint32_t(c.o / c.c));
        p_.n = int(c.n), p_.inputs = int(c.c), p_.channels = int(c.o);
        p_.h = int(c.h), p_.w = int(c.w), p_.rows = int(c.rows), p_.top = int(c.top), p_.left = int(c.left);
        kernel_ = of_taps(c.kh, [&]<int TAPS>() { return depthwise_sums_of<T, TAPS>(c.step_y, is_last); });
        numel_ = int(c.o * c.kh * c.kw);
        const int64_t blocks = is_last ? ceil_div(c.o, LANES) : c.o;
        const int64_t wanted = ceil_div(int64_t(multiprocessors()) * 4, blocks);
        p_.images = int(ceil_div(c.n, std::clamp<int64_t>(wanted, 1, std::min<int64_t>(c.n, 65535))));
        grid_ = dim3(unsigned(blocks), unsigned(ceil_div(c.n, p_.images)));
        note_scratch(int64_t(part_bytes()));
    }

    void run(char* const* data, const Scalar*) const override {
        constexpr const char* WHAT = "the gradient of a depthwise convolution's weight";
        const Scratch<> parts(part_bytes());
        float* const sums = reinterpret_cast<float*>(parts.data());
        const auto at = [data](int i) { return reinterpret_cast<T*>(data[i]); };
        launch_kernel(WHAT, kernel_, grid_, dim3(THREADS), p_, sums, at(1), at(2));
        launch_kernel(WHAT, depthwise_total_kernel<T>, dim3(unsigned(ceil_div(numel_, THREADS))), dim3(THREADS), at(0), sums,
                      int(grid_.y), numel_);
    }

private:
    size_t part_bytes() const { return size_t(grid_.y) * size_t(numel_) * sizeof(float); }

    DepthwiseSums p_ = {};
    void (*kernel_)(DepthwiseSums, float*, const T*, const T*);
    dim3 grid_;
    int numel_;
};

}  // namespace

KernelPtr depthwise_convolution(ConvolutionKind kind, const Request& r) {
    const bool is_input_grad = kind == ConvolutionKind::input_grad, is_weight_grad = kind == ConvolutionKind::weight_grad;
    const size_t image = is_weight_grad ? 2 : is_input_grad ? 0 : 1, result = is_weight_grad || is_input_grad ? 1 : 0;
    const size_t weight = is_weight_grad ? 0 : 2;
    const DType dtype = r.operands[0].dtype;
    if (!is_floating(dtype) || dtype == DType::f64) return nullptr;
    bool is_last = false, is_first = true;
    for (size_t i = 0; i < r.operands.size(); ++i) {
        const Operand& operand = r.operands[i];
        if (operand.dtype != dtype || operand.is_scalar || !operand.numel()) return nullptr;
        if (i == image || i == result) is_first &= operand.is_contiguous();
        else if (!operand.is_contiguous()) return nullptr;
    }
    if (!is_first) {
        is_last = is_channels_last(r.operands[image]) && is_channels_last(r.operands[result]);
        if (!is_last) return nullptr;
    }
    const Convolution c(r.operands[image], r.operands[result], r.operands[weight].shape, r.attrs);
    const bool is_wide = c.kh == 3 || c.kh == 5 || c.kh == 7;
    if (!c.is_usual() || c.groups == 1 || c.groups != c.c || c.kh != c.kw || c.step_y != c.step_x || c.gap_y != 1 ||
        c.gap_x != 1 || (c.kh != 1 && !is_wide) || c.step_y > (is_input_grad ? 1 : 2) ||
        ((is_input_grad || is_last) && c.o != c.c))
        return nullptr;
    const int64_t most = std::max(c.h * c.w, c.places());
    if (c.o * most > INT32_MAX || c.n * most > INT32_MAX || c.o * c.kh * c.kw > INT32_MAX) return nullptr;
    return visit_floating_device(dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        if constexpr (std::is_same_v<T, double>) {
            return nullptr;
        } else {
            if (is_weight_grad) return std::make_unique<DepthwiseWeightGrad<T>>(c, is_last);
            const auto kernel = of_taps(c.kh, [&]<int TAPS>() { return depthwise_of<T, TAPS>(c.step_y, is_last); });
            const bool has_bias = r.operands.size() == 4;
            return make_kernel(0, [=, launch = DepthwiseLaunch(c, is_input_grad, is_last)](char* const* data, const Scalar*) {
                const auto at = [data](int i) { return reinterpret_cast<T*>(data[i]); };
                launch_kernel("a depthwise convolution", kernel, launch.grid, dim3(THREADS), launch.p, at(0), at(1), at(2),
                              has_bias ? at(3) : nullptr);
            });
        }
    });
}

}  // namespace norch::nn
