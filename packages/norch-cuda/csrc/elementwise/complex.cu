// complex_mul: products of complex numbers, each a pair of elements along the last dim.
#include "common/layout.h"
#include "runtime/device.cuh"
#include "runtime/families.h"

namespace norch::elementwise {
namespace {

template <class T>
struct alignas(2 * sizeof(T)) Pair {
    T re, im;
};

struct Numbers {
    Layout<3> layout;  // of out, a, b, but for the parts
    int64_t part[3];   // from a real part to the imaginary one
    bool is_pair[3];   // whether they are read, or written, at once
    bool conjugates;   // b
};

// Rounded after each operation, so that a number times its own conjugate is real.
__device__ inline float product(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double product(double a, double b) { return __dmul_rn(a, b); }

template <class T>
__device__ inline Pair<T> number_at(const char* data, int64_t part, bool is_pair) {
    if (is_pair) return *reinterpret_cast<const Pair<T>*>(data);
    return {*reinterpret_cast<const T*>(data), *reinterpret_cast<const T*>(data + part)};
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    multiply_numbers(const __grid_constant__ Numbers p, char* out, const char* a, const char* b) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.layout.numel) return;
    int64_t offset[3];
    p.layout.offsets(i, offset);
    const Pair<T> x = number_at<T>(a + offset[1], p.part[1], p.is_pair[1]);
    Pair<T> y = number_at<T>(b + offset[2], p.part[2], p.is_pair[2]);
    if (p.conjugates) y.im = -y.im;
    const Pair<T> z = {product(x.re, y.re) - product(x.im, y.im), product(x.re, y.im) + product(x.im, y.re)};
    out += offset[0];
    if (p.is_pair[0]) {
        *reinterpret_cast<Pair<T>*>(out) = z;
    } else {
        *reinterpret_cast<T*>(out) = z.re;
        *reinterpret_cast<T*>(out + p.part[0]) = z.im;
    }
}

template <class T>
KernelPtr make_complex_mul(const Request& request) {
    std::vector<Operand> numbers = request.operands;
    Numbers p = {};
    p.conjugates = request.attrs.flag("conj");
    for (size_t k = 0; k < 3; ++k) {
        Operand& o = numbers[k];
        if (o.is_scalar || o.dtype != numbers[0].dtype || o.shape.back() != 2) return nullptr;
        p.part[k] = o.strides.back() * int64_t(sizeof(T));
        o.shape.pop_back(), o.strides.pop_back();
        p.is_pair[k] = p.part[k] == int64_t(sizeof(T));
        for (int64_t stride : o.strides) p.is_pair[k] &= stride % 2 == 0;
    }
    const std::vector<Piece<3>> pieces = cut<3>(collapse(numbers));
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        for (const Piece<3>& piece : pieces) {
            Numbers now = p;
            now.layout = piece.layout;
            char* at[3];
            for (int k = 0; k < 3; ++k) {
                at[k] = data[k] + piece.start[k];
                now.is_pair[k] &= is_aligned(at[k], 2 * sizeof(T));
            }
            launch_kernel("complex_mul", multiply_numbers<T>, unsigned(ceil_div(piece.layout.numel, THREADS)), THREADS, now,
                          at[0], at[1], at[2]);
        }
    });
}

KernelPtr complex_mul(const Request& request) {
    switch (request.operands[0].dtype) {
        case DType::f32: return make_complex_mul<float>(request);
        case DType::f64: return make_complex_mul<double>(request);
        default: return nullptr;
    }
}

}  // namespace

void add_complex(Registry& registry) { registry["complex_mul"] = complex_mul; }

}  // namespace norch::elementwise
