// sum_of_squares and variance, in float64 and in one pass: a variance is of distances from the first element, which are
// exact and of the size of the deviations.
#include <algorithm>

#include "reduction/reduce.cuh"
#include "runtime/allocator.h"
#include "runtime/families.h"

namespace norch::reduction {
namespace {

struct Squares {
    Layout<2> kept;     // the outputs: in x, in out
    Layout<1> reduced;  // of x
    uint32_t chunk, chunks;
    bool is_variance;
    double divisor;
    int log_group;  // threads of an output: all of a block or a warp
};

struct Moments {
    double sum, squares;

    __device__ void take(double x) {
        sum += x;
        squares += x * x;
    }
    __device__ void take(const Moments& other) {
        sum += other.sum;
        squares += other.squares;
    }
};

/// What the threads of a group have together, in its first thread.
__device__ inline Moments together(Moments m, int log_group) {
    for (int step = 16; step > 0; step /= 2)
        m.take({__shfl_xor_sync(~0u, m.sum, step), __shfl_xor_sync(~0u, m.squares, step)});
    if (log_group > 5) {
        __shared__ Moments warps[THREADS / 32];
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = m;
        __syncthreads();
        m = warps[0];
        for (int w = 1; w < THREADS / 32; ++w) m.take(warps[w]);
    }
    return m;
}

__device__ inline double result(const Squares& s, const Moments& m) {
    if (!s.is_variance) return m.squares;
    const double total = m.squares - m.sum * m.sum / s.reduced.numel;
    return (total < 0 ? 0 : total) / s.divisor;
}

template <class T>
__device__ inline void put(const Squares& s, char* out, Moments* parts, uint32_t chunk, uint32_t output, int64_t offset,
                           const Moments& m) {
    if (parts) parts[int64_t(chunk) * s.kept.numel + output] = m;
    else *reinterpret_cast<T*>(out + offset) = T(result(s, m));
}

/// A group of threads for each chunk of an output.
template <class T>
__global__ void __launch_bounds__(THREADS)
    square_rows(const __grid_constant__ Squares s, const char* x, char* out, Moments* parts) {
    constexpr int VEC = PER_16_BYTES<T>;
    const uint32_t group = 1u << s.log_group, lane = threadIdx.x & (group - 1);
    const uint32_t task = blockIdx.x * (THREADS >> s.log_group) + (threadIdx.x >> s.log_group);
    const uint32_t output = task / s.chunks, chunk = task - output * s.chunks;
    if (output >= s.kept.numel) return;  // whole groups
    int64_t offset[2];
    s.kept.offsets(output, offset);
    x += offset[0];
    const double origin = s.is_variance ? double(*reinterpret_cast<const T*>(x)) : 0.0;
    const uint32_t begin = chunk * s.chunk, end = min(begin + s.chunk, s.reduced.numel);
    const int64_t stride = s.reduced.stride[0][0];
    Moments m = {};
    uint32_t first = begin;
    const char* const data = x + begin * stride;
    if (s.reduced.ndim == 1 && stride == sizeof(T) && reinterpret_cast<uintptr_t>(data) % 16 == 0) {
        const auto* packets = reinterpret_cast<const Packet<T, VEC>*>(data);
        const uint32_t count = (end - begin) / VEC;
#pragma unroll 4
        for (uint32_t i = lane; i < count; i += group) {
            const auto packet = packets[i];
#pragma unroll
            for (int j = 0; j < VEC; ++j) m.take(double(packet.v[j]) - origin);
        }
        first += count * VEC;
    }
#pragma unroll 4
    for (uint32_t i = first + lane; i < end; i += group) {
        int64_t at[1] = {i * stride};
        if (s.reduced.ndim > 1) s.reduced.offsets(i, at);
        m.take(double(*reinterpret_cast<const T*>(x + at[0])) - origin);
    }
    m = together(m, s.log_group);
    if (lane == 0) put<T>(s, out, parts, chunk, output, offset[1], m);
}

/// A block for a chunk of 32 outputs that lie side by side.
template <class T>
__global__ void __launch_bounds__(THREADS)
    square_columns(const __grid_constant__ Squares s, const char* x, char* out, Moments* parts) {
    constexpr int ALONG = THREADS / 32;
    __shared__ Moments rows[ALONG][32];
    const uint32_t row = threadIdx.x / 32, column = threadIdx.x % 32;
    const uint32_t blocks = (s.kept.numel + 31) / 32, chunk = blockIdx.x / blocks;
    const uint32_t output = (blockIdx.x - chunk * blocks) * 32 + column;
    const bool is_active = output < s.kept.numel;
    int64_t offset[2] = {};
    Moments m = {};
    if (is_active) {
        s.kept.offsets(output, offset);
        x += offset[0];
        const double origin = s.is_variance ? double(*reinterpret_cast<const T*>(x)) : 0.0;
        const uint32_t begin = chunk * s.chunk, end = min(begin + s.chunk, s.reduced.numel);
        const int64_t stride = s.reduced.stride[0][0];
#pragma unroll 8
        for (uint32_t i = begin + row; i < end; i += ALONG) {
            int64_t at[1] = {i * stride};
            if (s.reduced.ndim > 1) s.reduced.offsets(i, at);
            m.take(double(*reinterpret_cast<const T*>(x + at[0])) - origin);
        }
    }
    rows[row][column] = m;
    __syncthreads();
    if (row || !is_active) return;
    for (int r = 1; r < ALONG; ++r) m.take(rows[r][column]);
    put<T>(s, out, parts, chunk, output, offset[1], m);
}

/// A group of threads puts the chunks of an output together.
template <class T>
__global__ void __launch_bounds__(THREADS)
    combine_squares(const __grid_constant__ Squares s, const Moments* parts, char* out) {
    const uint32_t group = 1u << s.log_group, lane = threadIdx.x & (group - 1);
    const uint32_t output = blockIdx.x * (THREADS >> s.log_group) + (threadIdx.x >> s.log_group);
    if (output >= s.kept.numel) return;
    Moments m = {};
#pragma unroll 4
    for (uint32_t c = lane; c < s.chunks; c += group) m.take(parts[int64_t(c) * s.kept.numel + output]);
    m = together(m, s.log_group);
    int64_t offset[2];
    s.kept.offsets(output, offset);
    if (lane == 0) put<T>(s, out, nullptr, 0, output, offset[1], m);
}

template <class T>
class SquaresKernel final : public Kernel {
public:
    SquaresKernel(const ReductionLoops& loops, bool is_variance, double divisor)
        : kept_(cut<2>(loops.kept)), is_columns_(loops.is_columns) {
        squares_.reduced = cut<1>(loops.reduced)[0].layout;
        squares_.is_variance = is_variance;
        squares_.divisor = divisor;
    }

    void run(char* const* data, const Scalar*) const override {
        for (const Piece<2>& piece : kept_) {
            Squares s = squares_;
            s.kept = piece.layout;
            const int64_t outputs = s.kept.numel, count = s.reduced.numel, sms = multiprocessors();
            const bool is_many = outputs >= 16 * sms;
            s.log_group = is_many && count <= 2048 ? 5 : 8;
            int64_t blocks = is_columns_ ? ceil_div(outputs, 32) : ceil_div(outputs, THREADS >> s.log_group);
            const int64_t least = is_columns_ ? 128 : 16 * THREADS;  // elements of a chunk
            int64_t chunks = 1;
            if (blocks < 8 * sms) chunks = std::max<int64_t>(1, std::min(count / least, ceil_div(8 * sms, blocks)));
            s.chunk = uint32_t(ceil_div(ceil_div(count, chunks), 16) * 16);  // whole packets
            s.chunks = uint32_t(ceil_div(count, s.chunk));
            const char* x = data[1] + piece.start[0];
            char* out = data[0] + piece.start[1];
            blocks *= s.chunks;
            if (!is_columns_) blocks = ceil_div(outputs * s.chunks, THREADS >> s.log_group);
            auto* kernel = is_columns_ ? square_columns<T> : square_rows<T>;
            if (s.chunks == 1) {
                launch_kernel("sums of squares", kernel, unsigned(blocks), THREADS, s, x, out, nullptr);
                continue;
            }
            const Scratch<Moments> parts(outputs * s.chunks);
            launch_kernel("sums of squares", kernel, unsigned(blocks), THREADS, s, x, out, parts.data());
            s.log_group = s.chunks > 256 ? 8 : 5;
            launch_kernel("sums of squares' second stage", combine_squares<T>,
                          unsigned(ceil_div(outputs, THREADS >> s.log_group)), THREADS, s, parts.data(), out);
        }
    }

private:
    std::vector<Piece<2>> kept_;
    Squares squares_ = {};
    bool is_columns_;
};

/// Of float32, and sums of float64. Null for others, and where core's formula has the value of no elements.
KernelPtr squares(const Request& request, bool is_variance) {
    const Operand &out = request.operands[0], &x = request.operands[1];
    const bool is_double = x.dtype == DType::f64 && !is_variance;
    if (out.dtype != x.dtype || (x.dtype != DType::f32 && !is_double) || !x.numel()) return nullptr;
    const ReductionLoops loops = reduction_loops(out, x, request.attrs.integers("dims"));
    if (loops.reduced.numel > int64_t(1) << 30 || loops.reduced.ndim() > MAX_DIMS) return nullptr;
    const double divisor = is_variance ? request.attrs.number("degrees") : 1;
    if (is_double) return std::make_unique<SquaresKernel<double>>(loops, is_variance, divisor);
    return std::make_unique<SquaresKernel<float>>(loops, is_variance, divisor);
}

}  // namespace

void add_squares(Registry& registry) {
    registry["sum_of_squares"] = [](const Request& request) { return squares(request, false); };
    registry["variance"] = [](const Request& request) { return squares(request, true); };
}

}  // namespace norch::reduction
