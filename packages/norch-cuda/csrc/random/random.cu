// random, exponential_draw. What each kind of draw makes of the words is defined in norch.numpy_backend.philox.
#include "random/boxmuller.cuh"
#include "random/philox.cuh"
#include "runtime/families.h"

namespace norch::random {
namespace {

// Each kind of draw makes PER elements of a block.

struct Bits {
    using Out = int64_t;
    static constexpr int PER = 4;
    __device__ void make(const uint4& w, int64_t (&y)[4]) const {
        y[0] = w.x, y[1] = w.y, y[2] = w.z, y[3] = w.w;
    }
};

struct Bits64 {
    using Out = int64_t;
    static constexpr int PER = 2;
    __device__ void make(const uint4& w, int64_t (&y)[2]) const {
        y[0] = int64_t((uint64_t(w.x) << 32 | w.y) >> 1);
        y[1] = int64_t((uint64_t(w.z) << 32 | w.w) >> 1);
    }
};

/// The leading `digits` bits as a fraction; exact in float32 and in T.
template <class T, int digits>
struct Uniform {
    using Out = T;
    static constexpr int PER = 4;
    __device__ static T one(uint32_t w) {
        return downcast<T>(float(int32_t(w >> (32 - digits))) * (1.0f / float(1 << digits)));
    }
    __device__ void make(const uint4& w, T (&y)[4]) const {
        y[0] = one(w.x), y[1] = one(w.y), y[2] = one(w.z), y[3] = one(w.w);
    }
};

struct Uniform64 {
    using Out = double;
    static constexpr int PER = 2;
    __device__ void make(const uint4& w, double (&y)[2]) const {
        y[0] = uniform64(w.x, w.y);
        y[1] = uniform64(w.z, w.w);
    }
};

template <class T>
struct Normal {
    using Out = T;
    static constexpr int PER = 4;
    __device__ void make(const uint4& w, T (&y)[4]) const {
        const float2 a = box_muller(w.x >> 8, w.y >> 8), b = box_muller(w.z >> 8, w.w >> 8);
        y[0] = downcast<T>(a.x), y[1] = downcast<T>(a.y), y[2] = downcast<T>(b.x), y[3] = downcast<T>(b.y);
    }
};

struct Normal64 {
    using Out = double;
    static constexpr int PER = 2;
    __device__ void make(const uint4& w, double (&y)[2]) const {
        const double2 pair = box_muller(uniform64(w.x, w.y), uniform64(w.z, w.w));
        y[0] = pair.x;
        y[1] = pair.y;
    }
};

/// Of float32 or float64 uniforms, which 1 less is exact of; at least `least`.
template <class T, class Uniforms>
struct Exponential {
    using Out = T;
    static constexpr int PER = Uniforms::PER;
    T least, rate;
    __device__ void make(const uint4& w, T (&y)[PER]) const {
        Uniforms().make(w, y);
#pragma unroll
        for (int j = 0; j < PER; ++j) {
            y[j] = y[j] < least ? least : -log(T(1) - y[j]);
            if (rate != T(1)) y[j] /= rate;
        }
    }
};

constexpr int64_t PART = int64_t(1) << 31;  // elements of one launch

/// n elements of a draw, from the start of the block on that has this low word.
template <class Draw>
__global__ void __launch_bounds__(THREADS) draw_kernel(const __grid_constant__ Philox philox, const Draw draw,
                                                       typename Draw::Out* out, uint32_t block, uint32_t n,
                                                       bool is_packed) {
    using T = typename Draw::Out;
    constexpr int PER = Draw::PER, BLOCKS = std::max(2, 16 / int(PER * sizeof(T)));
    constexpr int VEC = std::min(PER, 16 / int(sizeof(T)));
    const uint32_t start = (blockIdx.x * (THREADS * BLOCKS) + threadIdx.x) * PER;
#pragma unroll
    for (int b = 0; b < BLOCKS; ++b) {
        const uint32_t i = start + b * (THREADS * PER);
        if (i >= n) return;
        T y[PER];
        draw.make(philox(block + i / PER), y);
        if (is_packed && i + PER <= n) {
#pragma unroll
            for (int v = 0; v < PER; v += VEC) {
                Packet<T, VEC> packet;
#pragma unroll
                for (int j = 0; j < VEC; ++j) packet.v[j] = y[v + j];
                *reinterpret_cast<Packet<T, VEC>*>(out + i + v) = packet;
            }
        } else {
#pragma unroll
            for (int j = 0; j < PER; ++j)
                if (i + j < n) out[i + j] = y[j];
        }
    }
}

/// Into any layout, one element a thread: a block is made again for each of its elements.
template <class Draw>
__global__ void __launch_bounds__(THREADS) draw_strided(const __grid_constant__ Philox philox, const Draw draw, char* out,
                                                        const __grid_constant__ Layout<1> layout, int64_t first) {
    using T = typename Draw::Out;
    constexpr int PER = Draw::PER;
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= layout.numel) return;
    const uint64_t count = uint64_t(first) + i;
    T y[PER];
    draw.make(philox.any(count / PER), y);
    T chosen = y[0];
#pragma unroll
    for (int j = 1; j < PER; ++j)
        if (count % PER == j) chosen = y[j];
    int64_t offset[1];
    layout.offsets(i, offset);
    *reinterpret_cast<T*>(out + offset[0]) = chosen;
}

/// `seed`: which of the scalars it is; the offset is behind it.
template <class Draw>
KernelPtr contiguous_draw(int64_t n, const Draw& draw, int seed) {
    using T = typename Draw::Out;
    constexpr int PER = Draw::PER, BLOCKS = std::max(2, 16 / int(PER * sizeof(T)));
    return make_kernel(0, [=](char* const* data, const Scalar* s) {
        const bool is_packed = is_aligned(data[0], 16);
        for (int64_t first = 0; first < n; first += PART) {
            const int64_t count = std::min(PART, n - first);
            const uint64_t block = uint64_t(first) / PER;
            const Philox philox(uint64_t(s[seed].i), uint64_t(s[seed + 1].i), block);
            const auto blocks = unsigned(ceil_div(count, THREADS * PER * BLOCKS));
            auto* out = reinterpret_cast<T*>(data[0]) + first;
            launch_kernel("random numbers", draw_kernel<Draw>, blocks, THREADS,
                          philox, draw, out, uint32_t(block), uint32_t(count), is_packed);
        }
    });
}

template <class Draw>
KernelPtr draw(const Request& request, const Draw& draw = {}, int seed = 1) {
    const Operand& out = request.operands[0];
    if (out.is_contiguous()) return contiguous_draw(out.numel(), draw, seed);
    const auto pieces = cut<1>(row_major_loops({&out}));
    return make_kernel(0, [=](char* const* data, const Scalar* s) {
        const Philox philox(uint64_t(s[seed].i), uint64_t(s[seed + 1].i));
        int64_t first = 0;
        for (const Piece<1>& piece : pieces) {
            const auto blocks = unsigned(ceil_div(piece.layout.numel, THREADS));
            launch_kernel("random numbers", draw_strided<Draw>, blocks, THREADS,
                          philox, draw, data[0] + piece.start[0], piece.layout, first);
            first += piece.layout.numel;
        }
    });
}

KernelPtr random(const Request& request) {
    const std::string& kind = request.attrs.text("kind");
    const DType dtype = request.operands[0].dtype;
    if (kind == "bits" && dtype == DType::i64) return draw<Bits>(request);
    if (kind == "bits64" && dtype == DType::i64) return draw<Bits64>(request);
    if (kind == "uniform") {
        switch (dtype) {
            case DType::f64: return draw<Uniform64>(request);
            case DType::f32: return draw<Uniform<float, 24>>(request);
            case DType::f16: return draw<Uniform<__half, 11>>(request);
            case DType::bf16: return draw<Uniform<__nv_bfloat16, 8>>(request);
            default: break;
        }
    }
    if (kind == "normal") {
        switch (dtype) {
            case DType::f64: return draw<Normal64>(request);
            case DType::f32: return draw<Normal<float>>(request);
            case DType::f16: return draw<Normal<__half>>(request);
            case DType::bf16: return draw<Normal<__nv_bfloat16>>(request);
            default: break;
        }
    }
    return nullptr;
}

KernelPtr exponential_draw(const Request& request) {
    const DType dtype = request.operands[0].dtype;
    const double rate = request.attrs.number("rate");
    if (dtype == DType::f32)
        return draw(request, Exponential<float, Uniform<float, 24>>{1e-38f, float(rate)}, 2);
    return dtype == DType::f64 ? draw(request, Exponential<double, Uniform64>{1e-300, rate}, 2) : nullptr;
}

}  // namespace

void add_random(Registry& registry) {
    registry["random"] = random;
    registry["exponential_draw"] = exponential_draw;
}

}  // namespace norch::random
