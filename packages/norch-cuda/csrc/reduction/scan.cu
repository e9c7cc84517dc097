// cumsum and arange. Floats are added up in float64, integers modulo 2**64.
#include "reduction/scan.cuh"
#include "runtime/families.h"

namespace norch::reduction {
namespace {

template <class T>
struct RunningSum {
    using State = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
    static constexpr bool HAS_PACKETS = true, IS_COMMUTATIVE = true;
    bool is_bool;

    __device__ static State identity() { return State(0); }
    __device__ static State combine(State a, State b) { return Add::apply(a, b); }
    __device__ static State number(T x) { return State(upcast(x)); }
    __device__ T result(State sum) const { return downcast<T>(computed<T>(is_bool ? State(sum != 0) : sum)); }

    __device__ State load(const char* x, const char*, int64_t) const { return number(*reinterpret_cast<const T*>(x)); }
    __device__ void load_packet(State (&sum)[ROW_ITEMS], const char* x, int64_t) const {
        const auto packet = *reinterpret_cast<const Packet<T, ROW_ITEMS>*>(x);
#pragma unroll
        for (int k = 0; k < ROW_ITEMS; ++k) sum[k] = number(packet.v[k]);
    }
    __device__ void store(char* out, char*, State sum) const { *reinterpret_cast<T*>(out) = result(sum); }
    __device__ void store_packet(char* out, char*, const State (&sum)[ROW_ITEMS]) const {
        Packet<T, ROW_ITEMS> packet;
#pragma unroll
        for (int k = 0; k < ROW_ITEMS; ++k) packet.v[k] = result(sum[k]);
        *reinterpret_cast<Packet<T, ROW_ITEMS>*>(out) = packet;
    }
};

template <bool IS_REVERSED>
KernelPtr cumsum(const Request& request) {
    const DType dtype = request.operands[1].dtype;
    if (dtype != request.operands[0].dtype) return nullptr;
    return visit_device(dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        return scan_kernel(request, RunningSum<T>{dtype == DType::boolean}, {1, 0, 0}, IS_REVERSED);
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
    registry["cumsum"] = cumsum<false>;
    registry["cumsum_back"] = cumsum<true>;
    registry["arange"] = arange;
}

}  // namespace norch::reduction
