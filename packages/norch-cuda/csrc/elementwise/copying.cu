// copy between equal dtypes, fill, where: what moves elements and computes nothing. casting.cu has the casts.
#include "elementwise/elementwise.cuh"
#include "elementwise/interleaving.h"
#include "elementwise/joining.h"
#include "runtime/families.h"

namespace norch::elementwise {
namespace {

template <class T>
struct Where {
    using First = uint8_t;
    using In = T;
    using Out = T;
    static constexpr int INPUTS = 3;

    template <int K>
    __device__ void operator()(computed<T> (&y)[K], const computed<T> (&x)[3][K]) const {
#pragma unroll
        for (int i = 0; i < K; ++i) y[i] = x[0][i] != computed<T>(0) ? x[1][i] : x[2][i];
    }
};

// --- Transposed copies ----------------------------------------------------------------------------------------------

constexpr int TILE = 64;

/// Two dims of a copy that are exchanged: along dim 0 the output is contiguous, along dim 1 the input. The other dims
/// are the batch's.
struct Transposition {
    Layout<2> batch;
    int64_t out_stride, in_stride;  // bytes: of the output along dim 1, of the input along dim 0
    uint32_t size[2];
    FastDivide tiles[2];            // how many tiles there are along each
};

/// A tile through shared memory, so that both sides are accessed along their rows, VEC elements at once.
template <class T, int VEC>
__global__ void __launch_bounds__(THREADS) transpose_kernel(const __grid_constant__ Transposition t, char* out,
                                                            const char* in) {
    __shared__ T tile[TILE][TILE + 1];
    constexpr int ACROSS = TILE / VEC, DOWN = THREADS / ACROSS;
    const uint32_t rest = t.tiles[0].quotient(blockIdx.x), column = blockIdx.x - rest * t.tiles[0].divisor;
    const uint32_t batch = t.tiles[1].quotient(rest), row = rest - batch * t.tiles[1].divisor;
    int64_t start[2];
    t.batch.offsets(batch, start);
    out += start[0];
    in += start[1];
    const uint32_t first[2] = {column * TILE, row * TILE};
    const int x = threadIdx.x % ACROSS * VEC, y = threadIdx.x / ACROSS;
#pragma unroll
    for (int step = 0; step < TILE; step += DOWN) {
        const uint32_t i = first[0] + y + step, j = first[1] + x;
        if (i < t.size[0] && j < t.size[1]) {
            auto packet = *reinterpret_cast<const Packet<T, VEC>*>(in + i * t.in_stride + int64_t(j) * sizeof(T));
#pragma unroll
            for (int k = 0; k < VEC; ++k) tile[y + step][x + k] = packet.v[k];
        }
    }
    __syncthreads();
#pragma unroll
    for (int step = 0; step < TILE; step += DOWN) {
        const uint32_t i = first[0] + x, j = first[1] + y + step;
        if (i < t.size[0] && j < t.size[1]) {
            Packet<T, VEC> packet;
#pragma unroll
            for (int k = 0; k < VEC; ++k) packet.v[k] = tile[x + k][y + step];
            *reinterpret_cast<Packet<T, VEC>*>(out + j * t.out_stride + int64_t(i) * sizeof(T)) = packet;
        }
    }
}

template <class T>
class Transpose final : public Kernel {
public:
    static constexpr int VEC = sizeof(T) == 8 ? 2 : 4;

    /// For the dims 0 (innermost) and `across` of a layout.
    Transpose(const Layout<2>& layout, int across) {
        t_.size[0] = layout.size[0].divisor;
        t_.size[1] = layout.size[across].divisor;
        t_.in_stride = layout.stride[1][0];
        t_.out_stride = layout.stride[0][across];
        t_.batch.numel = layout.numel / t_.size[0] / t_.size[1];
        has_packets_ = t_.size[0] % VEC == 0 && t_.size[1] % VEC == 0 && t_.in_stride % (VEC * sizeof(T)) == 0 &&
                       t_.out_stride % (VEC * sizeof(T)) == 0;
        for (int d = 1; d < layout.ndim; ++d) {
            if (d == across) continue;
            t_.batch.size[t_.batch.ndim] = layout.size[d];
            for (int k = 0; k < 2; ++k) {
                t_.batch.stride[k][t_.batch.ndim] = layout.stride[k][d];
                has_packets_ &= layout.stride[k][d] % (VEC * sizeof(T)) == 0;
            }
            ++t_.batch.ndim;
        }
        for (int k = 0; k < 2; ++k) t_.tiles[k] = FastDivide(uint32_t(ceil_div(t_.size[k], TILE)));
    }

    void run(char* const* data, const Scalar*) const override {
        const unsigned blocks = t_.tiles[0].divisor * t_.tiles[1].divisor * t_.batch.numel;
        const size_t bytes = VEC * sizeof(T);
        if (has_packets_ && is_aligned(data[0], bytes) && is_aligned(data[1], bytes))
            launch_kernel("a transposed copy", transpose_kernel<T, VEC>, blocks, THREADS, t_, data[0], data[1]);
        else
            launch_kernel("a transposed copy", transpose_kernel<T, 1>, blocks, THREADS, t_, data[0], data[1]);
    }

private:
    Transposition t_ = {};
    bool has_packets_;
};

/// The kernel for a copy whose input is contiguous along another dim than its output, or null.
KernelPtr transpose(const Layout<2>& layout, int64_t itemsize) {
    if (layout.ndim < 2 || layout.stride[0][0] != itemsize || layout.stride[1][0] == itemsize) return nullptr;
    for (int d = 1; d < layout.ndim; ++d) {
        if (layout.stride[1][d] != itemsize || layout.size[d].divisor < 8 || layout.size[0].divisor < 8) continue;
        return visit_bits(itemsize, [&]<class T>(Tag<T>) -> KernelPtr {
            return std::make_unique<Transpose<T>>(layout, d);
        });
    }
    return nullptr;
}

/// From a scalar, or from a tensor of the same dtype.
KernelPtr fill(const Request& request) {
    return visit_bits(size_of(request.operands[0].dtype), [&]<class T>(Tag<T>) -> KernelPtr {
        return map_op<T, Identity, 1>(request);
    });
}

KernelPtr copy(const Request& request) {
    if (request.operands[0].dtype != request.operands[1].dtype) return cast(request);
    const auto pieces = cut<2>(collapse(request.operands));
    if (pieces.size() != 1) return fill(request);
    const int64_t itemsize = size_of(request.operands[0].dtype);
    if (KernelPtr kernel = transpose(pieces[0].layout, itemsize)) return kernel;
    return interleave(pieces[0].layout, itemsize, fill(request));
}

KernelPtr where(const Request& request) {
    return visit_bits(size_of(request.operands[0].dtype), [&]<class T>(Tag<T>) -> KernelPtr {
        return map(request, Where<T>{});
    });
}

}  // namespace

void add_copying(Registry& registry) {
    registry["copy"] = [](const Request& request) { return request.operands[1].is_scalar ? fill(request) : copy(request); };
    registry["fill"] = fill;
    registry["cat"] = registry["stack"] = join_parts;
    registry["where"] = where;
}

}  // namespace norch::elementwise
