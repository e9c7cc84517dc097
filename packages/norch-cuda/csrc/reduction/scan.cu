// cumsum and arange. Floats are added up in float64, integers modulo 2**64. Lines that are few and long are cut into
// chunks: these are added up first, and each then starts from the sum of those before it.
#include <algorithm>

#include "runtime/allocator.h"
#include "runtime/device.cuh"
#include "runtime/families.h"

namespace norch::reduction {
namespace {

template <class T>
using Upcast = std::conditional_t<std::is_integral_v<T>, int64_t, double>;

constexpr int64_t ROW_ITEMS = 4, COLUMN_ITEMS = 8;  // neighbours that a thread takes at a time

struct ScanPlan {
    Layout<2> lines;                    // x, out
    int64_t n, x_stride, out_stride;    // of a line
    int64_t chunk;
    uint32_t chunks;
    bool has_packets, is_short, is_bool;
};

template <class T>
__device__ inline Upcast<T> number(T x) {
    return Upcast<T>(upcast(x));
}
template <class T>
__device__ inline T result(Upcast<T> sum, bool is_bool) {
    if (is_bool) return downcast<T>(computed<T>(sum != 0));
    return downcast<T>(computed<T>(sum));
}
template <class W>
__device__ inline W plus(W a, W b) {
    return Add::apply(a, b);
}

template <class W>
__device__ inline W scan_warp(W value) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const W before = __shfl_up_sync(~0u, value, step);
        if (threadIdx.x % 32 >= step) value = plus(value, before);
    }
    return value;
}

/// A block for each chunk of a line, or (`is_short`) a warp for each line. With `is_first` it only adds up.
template <class T>
__global__ void __launch_bounds__(THREADS) scan_rows(const __grid_constant__ ScanPlan p, const char* x, char* out,
                                                     Upcast<T>* totals, bool is_first) {
    using W = Upcast<T>;
    constexpr int ITEMS = ROW_ITEMS, WARPS = THREADS / 32;
    __shared__ W sums[2][WARPS];
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t lanes = p.is_short ? 32 : THREADS, lane = p.is_short ? threadIdx.x % 32 : threadIdx.x;
    const uint32_t line = p.is_short ? blockIdx.x * WARPS + warp : blockIdx.x / p.chunks;
    const uint32_t chunk = p.is_short ? 0 : blockIdx.x - line * p.chunks;
    if (line >= p.lines.numel) return;  // whole warps, and only where warps do not meet
    int64_t offset[2];
    p.lines.offsets(line, offset);
    x += offset[0];
    out += offset[1];
    W carry = W(0);
    int parity = 0;
    // The sum over the block of the threads' values, and (in `before`) of the warps before this one.
    auto over_block = [&](W value, W& before) {
        if (threadIdx.x % 32 == 31) sums[parity][warp] = value;
        __syncthreads();
        W total = W(0);
        before = W(0);
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            if (w == warp) before = total;
            total = plus(total, sums[parity][w]);
        }
        parity ^= 1;
        return total;
    };
    if (!is_first && chunk > 0) {
        W part = W(0), before;
        for (uint32_t c = lane; c < chunk; c += lanes) part = plus(part, totals[int64_t(line) * p.chunks + c]);
        carry = over_block(scan_warp(part), before);
    }
    const int64_t begin = chunk * p.chunk, end = min(begin + p.chunk, p.n);
    for (int64_t base = begin; base < end; base += lanes * ITEMS) {
        const int64_t i = base + lane * ITEMS;
        const bool is_packet = p.has_packets && i + ITEMS <= end;
        W sum[ITEMS];
        if (is_packet) {
            const auto packet = *reinterpret_cast<const Packet<T, ITEMS>*>(x + i * sizeof(T));
#pragma unroll
            for (int k = 0; k < ITEMS; ++k) sum[k] = number(packet.v[k]);
        } else {
#pragma unroll
            for (int k = 0; k < ITEMS; ++k)
                sum[k] = i + k < end ? number(*reinterpret_cast<const T*>(x + (i + k) * p.x_stride)) : W(0);
        }
#pragma unroll
        for (int k = 1; k < ITEMS; ++k) sum[k] = plus(sum[k], sum[k - 1]);
        const W reached = scan_warp(sum[ITEMS - 1]);
        W before = W(0), total, start = __shfl_up_sync(~0u, reached, 1);
        if (threadIdx.x % 32 == 0) start = W(0);
        if (p.is_short) total = __shfl_sync(~0u, reached, 31);
        else total = over_block(reached, before);
        start = plus(carry, plus(before, start));
        carry = plus(carry, total);
        if (is_first) continue;
        if (is_packet) {
            Packet<T, ITEMS> packet;
#pragma unroll
            for (int k = 0; k < ITEMS; ++k) packet.v[k] = result<T>(plus(start, sum[k]), p.is_bool);
            *reinterpret_cast<Packet<T, ITEMS>*>(out + i * sizeof(T)) = packet;
        } else {
#pragma unroll
            for (int k = 0; k < ITEMS; ++k)
                if (i + k < end)
                    *reinterpret_cast<T*>(out + (i + k) * p.out_stride) = result<T>(plus(start, sum[k]), p.is_bool);
        }
    }
    if (is_first && lane == 0) totals[int64_t(line) * p.chunks + chunk] = carry;
}

/// 32 neighbouring lines in a block, each for 8 threads.
template <class T>
__global__ void __launch_bounds__(THREADS) scan_columns(const __grid_constant__ ScanPlan p, const char* x, char* out,
                                                        Upcast<T>* totals, bool is_first) {
    using W = Upcast<T>;
    constexpr int ITEMS = COLUMN_ITEMS, ALONG = THREADS / 32;
    __shared__ W sums[2][ALONG][32];
    const uint32_t row = threadIdx.x / 32, column = threadIdx.x % 32;
    const uint32_t blocks = (p.lines.numel + 31) / 32, chunk = blockIdx.x / blocks;
    const uint32_t line = (blockIdx.x - chunk * blocks) * 32 + column;
    const bool is_active = line < p.lines.numel;
    int64_t offset[2] = {};
    if (is_active) p.lines.offsets(line, offset);
    x += offset[0];
    out += offset[1];
    W carry = W(0);
    int parity = 0;
    auto over_block = [&](W value, W& before) {
        sums[parity][row][column] = value;
        __syncthreads();
        W total = W(0);
        before = W(0);
#pragma unroll
        for (int r = 0; r < ALONG; ++r) {
            if (r == row) before = total;
            total = plus(total, sums[parity][r][column]);
        }
        parity ^= 1;
        return total;
    };
    if (!is_first && chunk > 0) {
        W part = W(0), before;
        for (uint32_t c = row; is_active && c < chunk; c += ALONG)
            part = plus(part, totals[int64_t(line) * p.chunks + c]);
        carry = over_block(part, before);
    }
    const int64_t begin = chunk * p.chunk, end = min(begin + p.chunk, p.n);
    for (int64_t base = begin; base < end; base += ALONG * ITEMS) {
        const int64_t i = base + row * ITEMS;
        W sum[ITEMS];
#pragma unroll
        for (int k = 0; k < ITEMS; ++k)
            sum[k] = is_active && i + k < end ? number(*reinterpret_cast<const T*>(x + (i + k) * p.x_stride)) : W(0);
#pragma unroll
        for (int k = 1; k < ITEMS; ++k) sum[k] = plus(sum[k], sum[k - 1]);
        W before;
        const W total = over_block(sum[ITEMS - 1], before), start = plus(carry, before);
        carry = plus(carry, total);
        if (is_first || !is_active) continue;
#pragma unroll
        for (int k = 0; k < ITEMS; ++k)
            if (i + k < end)
                *reinterpret_cast<T*>(out + (i + k) * p.out_stride) = result<T>(plus(start, sum[k]), p.is_bool);
    }
    if (is_first && is_active && row == 0) totals[int64_t(line) * p.chunks + chunk] = carry;
}

template <class T>
class CumSum final : public Kernel {
public:
    static constexpr int64_t PACKET = sizeof(Packet<T, ROW_ITEMS>);

    CumSum(const ReductionLoops& loops, const ScanPlan& plan)
        : lines_(cut<2>(loops.kept)), plan_(plan), is_columns_(loops.is_columns) {
        plan_.has_packets = plan.x_stride == sizeof(T) && plan.out_stride == sizeof(T);
        for (const Piece<2>& piece : lines_)
            for (int k = 0; k < 2; ++k) {
                plan_.has_packets &= piece.start[k] % PACKET == 0;
                for (int d = 0; d < piece.layout.ndim; ++d)
                    plan_.has_packets &= piece.layout.stride[k][d] % PACKET == 0;
            }
        plan_.is_short = !is_columns_ && plan.n <= 32 * ROW_ITEMS * 2;
    }

    void run(char* const* data, const Scalar*) const override {
        for (const Piece<2>& piece : lines_) {
            ScanPlan p = plan_;
            p.lines = piece.layout;
            const char* x = data[1] + piece.start[0];
            char* out = data[0] + piece.start[1];
            p.has_packets &= is_aligned(x, PACKET) && is_aligned(out, PACKET);
            const int64_t lines = p.lines.numel;
            const int64_t blocks = ceil_div(lines, is_columns_ ? 32 : p.is_short ? THREADS / 32 : 1);
            split(p, blocks);
            if (p.chunks == 1) {
                launch(p, blocks, x, out, nullptr, false);
                continue;
            }
            const Scratch<Upcast<T>> totals(lines * p.chunks);
            launch(p, blocks * p.chunks, x, out, totals.data(), true);
            launch(p, blocks * p.chunks, x, out, totals.data(), false);
        }
    }

private:
    void split(ScanPlan& p, int64_t blocks) const {
        const int64_t tile = is_columns_ ? THREADS / 32 * COLUMN_ITEMS : THREADS * ROW_ITEMS, sms = multiprocessors();
        int64_t chunks = 1;
        if (p.n > 8 * tile && blocks < 2 * sms) chunks = std::min(ceil_div(p.n, 4 * tile), ceil_div(16 * sms, blocks));
        p.chunk = ceil_div(ceil_div(p.n, chunks), tile) * tile;
        p.chunks = uint32_t(ceil_div(p.n, p.chunk));
    }

    void launch(const ScanPlan& p, int64_t blocks, const char* x, char* out, Upcast<T>* totals, bool is_first) const {
        if (is_columns_)
            scan_columns<T><<<unsigned(blocks), THREADS, 0, stream_handle()>>>(p, x, out, totals, is_first);
        else scan_rows<T><<<unsigned(blocks), THREADS, 0, stream_handle()>>>(p, x, out, totals, is_first);
        check_launch("cumsum");
    }

    std::vector<Piece<2>> lines_;
    ScanPlan plan_;
    bool is_columns_;
};

KernelPtr cumsum(const Request& request) {
    Operand out = request.operands[0], x = request.operands[1];
    if (x.shape.empty()) out.shape = x.shape = out.strides = x.strides = {1};  // a 0-d operand has dim 0
    const int64_t dim = request.attrs.integer("dim");
    if (dim < 0 || dim >= x.ndim()) throw std::invalid_argument("cumsum along a dim that is not there");
    const ReductionLoops loops = reduction_loops(out, x, {dim});
    if (loops.kept.numel == 0 || loops.reduced.numel == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    const int64_t size = size_of(x.dtype);
    ScanPlan plan = {};
    plan.n = x.shape[size_t(dim)];
    plan.x_stride = x.strides[size_t(dim)] * size;
    plan.out_stride = out.strides[size_t(dim)] * size;
    plan.is_bool = x.dtype == DType::boolean;
    return visit_device(x.dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        return std::make_unique<CumSum<T>>(loops, plan);
    });
}

// --- arange ---------------------------------------------------------------------------------------------------------

constexpr int AT_ONCE = 8;

template <class T>
__device__ inline T element(int64_t i, Scalar start, Scalar step, bool is_bool) {
    if constexpr (std::is_integral_v<T>) {
        const uint64_t exact = uint64_t(start.i) + uint64_t(i) * uint64_t(step.i);
        return is_bool ? T(exact != 0) : T(exact);
    } else {
        // The product is rounded before the sum, as in NumPy, and the sum to T at once.
        const double exact = __dadd_rn(start.f, __dmul_rn(double(i), step.f));
        if constexpr (std::is_same_v<T, __half>) return __double2half(exact);
        else if constexpr (std::is_same_v<T, __nv_bfloat16>) return __double2bfloat16(exact);
        else return T(exact);
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS) arange_kernel(char* out, int64_t stride, int64_t n, Scalar start,
                                                         Scalar step, bool is_bool) {
    const int64_t first = int64_t(blockIdx.x) * THREADS * AT_ONCE + threadIdx.x;
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) {
        const int64_t i = first + k * THREADS;
        if (i < n) *reinterpret_cast<T*>(out + i * stride) = element<T>(i, start, step, is_bool);
    }
}

KernelPtr arange(const Request& request) {
    const Operand& out = request.operands[0];
    const int64_t n = out.shape[0], stride = out.strides[0] * size_of(out.dtype);
    const bool is_bool = out.dtype == DType::boolean;
    return visit_device(out.dtype, [=]<class T>(Tag<T>) {
        return make_kernel(0, [=](char* const* data, const Scalar* scalars) {
            if (n == 0) return;
            launch_kernel("arange", arange_kernel<T>, unsigned(ceil_div(n, THREADS * AT_ONCE)), THREADS,
                          data[0], stride, n, scalars[1], scalars[2], is_bool);
        });
    });
}

}  // namespace

void add_scans(Registry& registry) {
    registry["cumsum"] = cumsum;
    registry["arange"] = arange;
}

}  // namespace norch::reduction
