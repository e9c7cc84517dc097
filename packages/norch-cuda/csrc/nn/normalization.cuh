// What the kernels of normalisation share: which requests they take, and weights in either of two dtypes.
#pragma once

#include "nn/rows.cuh"
#include "common/staging.h"

namespace norch::nn {

/// Weight or bias: null, or numbers of the rows' own type T, or (is_upcast) of what that is computed in.
struct Parameter {
    const char* data;
    bool is_upcast;

    template <class T>
    __device__ computed<T> at(int64_t i, computed<T> otherwise) const {
        if (!data) return otherwise;
        if (is_upcast) return reinterpret_cast<const computed<T>*>(data)[i];
        return computed<T>(upcast(reinterpret_cast<const T*>(data)[i]));
    }
    template <class T, int VEC>
    __device__ void load(computed<T>* x, int64_t i, computed<T> otherwise) const {
        using C = computed<T>;
        if (!data) {
#pragma unroll
            for (int j = 0; j < VEC; ++j) x[j] = otherwise;
        } else if (is_upcast) {
            constexpr int PART = VEC < PER_16_BYTES<C> ? VEC : PER_16_BYTES<C>;
#pragma unroll
            for (int j = 0; j < VEC; j += PART) load_values<C, PART>(x + j, reinterpret_cast<const C*>(data) + i + j);
        } else {
            load_values<T, VEC>(x, reinterpret_cast<const T*>(data) + i);
        }
    }
};

/// Of numbers less their mean, which was rounded: what is left of it, and their variance. sums: of squares and numbers.
template <class C>
struct Centre {
    __device__ Centre(const C* sums, C share, bool is_centred) : off(is_centred ? sums[1] * share : C(0)) {
        variance = sums[0] * share - off * off;
        if (variance < C(0)) variance = C(0);
    }
    C off, variance;
};

/// What a kernel on rows of `like` takes a weight in: as it is, or in the compute dtype.
inline DType parameter_dtype(const Operand& weight, const Operand& like) {
    return weight.dtype == like.dtype ? like.dtype : computed_dtype(like.dtype);
}

/// Calls f(Tag<T>) with the type of a 16-bit float.
template <class F>
auto visit_half(DType dtype, const F& f) {
    return dtype == DType::f16 ? f(Tag<__half>{}) : f(Tag<__nv_bfloat16>{});
}

KernelPtr layer_norm_grad(const Request& request);  // normalization_grad.cu
KernelPtr rms_norm_grad(const Request& request);
KernelPtr residual_norm_grad(const Request& request);
void add_channel_normalization(Registry&);  // channelnorm.cu: batch_norm
void add_running_normalization(Registry&);  // runningnorm.cu

}  // namespace norch::nn
