// dropout: the uniforms that `random` would draw, compared as they are made.
#include <cmath>

#include "random/philox.cuh"
#include "runtime/families.h"

namespace norch::nn {
namespace {

using random::Philox;

/// What is dropped: words w with w >> 8 < threshold, those whose float32 uniform is less than p in float32.
struct Drop {
    uint32_t threshold;
    double scale;

    explicit Drop(double p) : scale(p < 1 ? 1 / (1 - p) : 0.0) {
        const double fraction = std::ceil(double(float(p)) * 0x1p24);
        threshold = fraction > 0 ? uint32_t(std::min(fraction, 0x1p24)) : 0;
    }
    template <class T>
    __device__ T operator()(T x, uint32_t word) const {
        using C = computed<T>;
        return downcast<T>(word >> 8 >= threshold ? C(upcast(x) * C(scale)) : C(0));
    }
};

constexpr int64_t PART = int64_t(1) << 31;  // elements of one launch

/// Both operands row by row without gaps and aligned; VEC elements at once, which are whole blocks but for float64.
template <class T>
__global__ void __launch_bounds__(THREADS) drop_kernel(const __grid_constant__ Philox philox, T* out, const T* x,
                                                       uint32_t block, uint32_t n, const Drop drop) {
    constexpr int VEC = sizeof(T) == 2 ? 8 : 4, UNROLL = 2;
    const uint32_t start = (blockIdx.x * (THREADS * UNROLL) + threadIdx.x) * VEC;
    Packet<T, VEC> value[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const uint32_t i = start + u * (THREADS * VEC);
        if (i + VEC <= n) {
            value[u] = *reinterpret_cast<const Packet<T, VEC>*>(x + i);
        } else {
#pragma unroll
            for (int j = 0; j < VEC; ++j)
                if (i + j < n) value[u].v[j] = x[i + j];
        }
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const uint32_t i = start + u * (THREADS * VEC);
        if (i >= n) return;
#pragma unroll
        for (int j = 0; j < VEC; j += 4) {
            const uint4 w = philox(block + (i + j) / 4);
            value[u].v[j] = drop(value[u].v[j], w.x);
            value[u].v[j + 1] = drop(value[u].v[j + 1], w.y);
            value[u].v[j + 2] = drop(value[u].v[j + 2], w.z);
            value[u].v[j + 3] = drop(value[u].v[j + 3], w.w);
        }
        if (i + VEC <= n) {
            *reinterpret_cast<Packet<T, VEC>*>(out + i) = value[u];
        } else {
#pragma unroll
            for (int j = 0; j < VEC; ++j)
                if (i + j < n) out[i + j] = value[u].v[j];
        }
    }
}

/// Of any layout, one element a thread.
template <class T>
__global__ void __launch_bounds__(THREADS) drop_strided(const __grid_constant__ Philox philox, char* out, const char* x,
                                                        const __grid_constant__ Layout<2> layout, int64_t first,
                                                        const Drop drop) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= layout.numel) return;
    int64_t offset[2];
    layout.offsets(i, offset);
    const uint64_t count = uint64_t(first) + i;
    const uint4 w = philox.any(count / 4);
    const uint32_t word = count & 2 ? (count & 1 ? w.w : w.z) : (count & 1 ? w.y : w.x);
    *reinterpret_cast<T*>(out + offset[0]) = drop(*reinterpret_cast<const T*>(x + offset[1]), word);
}

template <class T>
class Dropout final : public Kernel {
public:
    explicit Dropout(const Request& request)
        : n_(request.operands[0].numel()),
          is_contiguous_(request.operands[0].is_contiguous() && request.operands[1].is_contiguous()),
          p_is_float_(is_floating(request.operands[2].dtype)),
          pieces_(cut<2>(row_major_loops({&request.operands[0], &request.operands[1]}))) {}

    void run(char* const* data, const Scalar* s) const override {
        const Drop drop(p_is_float_ ? s[2].f : double(s[2].i));
        const auto seed = uint64_t(s[3].i), offset = uint64_t(s[4].i);
        constexpr int PER_THREAD = sizeof(T) == 2 ? 16 : 8;
        constexpr size_t ALIGNMENT = alignof(Packet<T, PER_THREAD / 2>);
        if (is_contiguous_ && is_aligned(data[0], ALIGNMENT) && is_aligned(data[1], ALIGNMENT)) {
            for (int64_t first = 0; first < n_; first += PART) {
                const int64_t count = std::min(PART, n_ - first);
                const uint64_t block = uint64_t(first) / 4;
                launch_kernel("dropout", drop_kernel<T>, unsigned(ceil_div(count, THREADS * PER_THREAD)), THREADS,
                              Philox(seed, offset, block), reinterpret_cast<T*>(data[0]) + first,
                              reinterpret_cast<const T*>(data[1]) + first, uint32_t(block), uint32_t(count), drop);
            }
            return;
        }
        const Philox philox(seed, offset);
        int64_t first = 0;
        for (const Piece<2>& piece : pieces_) {
            launch_kernel("dropout", drop_strided<T>, unsigned(ceil_div(piece.layout.numel, THREADS)), THREADS,
                          philox, data[0] + piece.start[0], data[1] + piece.start[1], piece.layout, first, drop);
            first += piece.layout.numel;
        }
    }

private:
    int64_t n_;
    bool is_contiguous_, p_is_float_;
    std::vector<Piece<2>> pieces_;
};

KernelPtr dropout(const Request& request) {
    if (!request.operands[2].is_scalar || request.operands[0].dtype != request.operands[1].dtype) return nullptr;
    return visit_floating_device(request.operands[0].dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        return std::make_unique<Dropout<T>>(request);
    });
}

}  // namespace

void add_dropout(Registry& registry) { registry["dropout"] = dropout; }

}  // namespace norch::nn
