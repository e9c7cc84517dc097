// cross_product: a thread for each vector of 3 along a dim.
#include "common/layout.h"
#include "runtime/families.h"
#include "runtime/type_groups.cuh"

namespace norch::elementwise {
namespace {

struct Vectors {
    Layout<3> layout;   // of out, a, b, but for the dim
    int64_t stride[3];  // along that
    DType dtype;
};

/// a b - c d, rounded after each operation, so that the product of a vector with itself is 0.
__device__ inline float difference(float a, float b, float c, float d) { return __fsub_rn(__fmul_rn(a, b), __fmul_rn(c, d)); }
__device__ inline double difference(double a, double b, double c, double d) {
    return __dsub_rn(__dmul_rn(a, b), __dmul_rn(c, d));
}

template <class Group>
__global__ void __launch_bounds__(THREADS)
    cross_vectors(const __grid_constant__ Vectors v, char* out, const char* a, const char* b) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= v.layout.numel) return;
    int64_t offset[3];
    v.layout.offsets(i, offset);
    with_type<Group>(v.dtype, [&]<class T>(Tag<T>) {
        computed<T> x[3], y[3];
#pragma unroll
        for (int k = 0; k < 3; ++k) {
            x[k] = upcast(*reinterpret_cast<const T*>(a + offset[1] + k * v.stride[1]));
            y[k] = upcast(*reinterpret_cast<const T*>(b + offset[2] + k * v.stride[2]));
        }
#pragma unroll
        for (int k = 0; k < 3; ++k) {
            const int next = (k + 1) % 3, last = (k + 2) % 3;
            *reinterpret_cast<T*>(out + offset[0] + k * v.stride[0]) =
                downcast<T>(computed<T>(difference(x[next], y[last], x[last], y[next])));
        }
    });
}

/// Null for integers, which norch's formula serves.
KernelPtr cross_product(const Request& request) {
    const auto& operands = request.operands;
    const int64_t dim = request.attrs.integer("dim");
    Vectors v = {};
    v.dtype = operands[0].dtype;
    for (const Operand& o : operands)
        if (o.is_scalar || o.dtype != v.dtype || o.shape != operands[0].shape) return nullptr;
    const int64_t at = dim < 0 ? dim + operands[0].ndim() : dim;
    if (!is_floating(v.dtype) || at < 0 || at >= operands[0].ndim() || operands[0].shape[size_t(at)] != 3) return nullptr;
    for (size_t k = 0; k < 3; ++k) v.stride[k] = operands[k].strides[size_t(at)] * size_of(v.dtype);
    const std::vector<Piece<3>> pieces = cut<3>(collapse(operands, dims_but(operands[0].ndim(), at)));
    return visit_floating_groups(v.dtype, [&]<class Group>(Tag<Group>) -> KernelPtr {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            for (const Piece<3>& piece : pieces) {
                Vectors now = v;
                now.layout = piece.layout;
                launch_kernel("cross_product", cross_vectors<Group>, unsigned(ceil_div(piece.layout.numel, THREADS)), THREADS,
                              now, data[0] + piece.start[0], data[1] + piece.start[1], data[2] + piece.start[2]);
            }
        });
    });
}

}  // namespace

void add_cross(Registry& registry) { registry["cross_product"] = cross_product; }

}  // namespace norch::elementwise
