// cumprod, cummax, cummin, logcumsumexp, and the recurrence that their gradients are.
#include <limits>

#include "common/operands.h"
#include "reduction/scan.cuh"
#include "runtime/families.h"

namespace norch::reduction {
namespace {

/// Calls f(Tag<T>) with the type of a dtype whose numbers C holds.
template <class C, class F>
__device__ inline void with_numbers(DType dtype, const F& f) {
    if constexpr (std::is_integral_v<C>) {
        if (dtype == DType::i64) f(Tag<int64_t>{});
        else with_type<Integers>(dtype, f);
    } else {
        if constexpr (std::is_same_v<C, double>)
            if (dtype == DType::f64) return f(Tag<double>{});
        if (dtype == DType::f32) f(Tag<float>{});
        else with_type<Halves>(dtype, f);
    }
}

/// Elements of a dtype as numbers of type C.
template <class C>
struct Numbers {
    DType dtype;

    __device__ C load(const char* x) const {
        C out;
        with_numbers<C>(dtype, [&]<class T>(Tag<T>) { out = C(upcast(*reinterpret_cast<const T*>(x))); });
        return out;
    }
    __device__ void load_packet(C (&out)[ROW_ITEMS], const char* x) const {
        with_numbers<C>(dtype, [&]<class T>(Tag<T>) {
            const auto packet = *reinterpret_cast<const Packet<T, ROW_ITEMS>*>(x);
#pragma unroll
            for (int k = 0; k < ROW_ITEMS; ++k) out[k] = C(upcast(packet.v[k]));
        });
    }
    __device__ void store(char* out, C value) const {
        with_numbers<C>(dtype, [&]<class T>(Tag<T>) { *reinterpret_cast<T*>(out) = downcast<T>(computed<T>(value)); });
    }
    __device__ void store_packet(char* out, const C (&value)[ROW_ITEMS]) const {
        with_numbers<C>(dtype, [&]<class T>(Tag<T>) {
            Packet<T, ROW_ITEMS> packet;
#pragma unroll
            for (int k = 0; k < ROW_ITEMS; ++k) packet.v[k] = downcast<T>(computed<T>(value[k]));
            *reinterpret_cast<Packet<T, ROW_ITEMS>*>(out) = packet;
        });
    }
};

/// Of floats in float64, which a product of many leaves later than float32; of integers modulo 2**64.
template <class C>
struct RunningProduct {
    using State = C;
    static constexpr bool HAS_PACKETS = true;
    Numbers<C> numbers;

    __device__ static C identity() { return C(1); }
    __device__ static C combine(C a, C b) { return Mul::apply(a, b); }
    __device__ C load(const char* x, const char*, int64_t) const { return numbers.load(x); }
    __device__ void load_packet(C (&out)[ROW_ITEMS], const char* x, int64_t) const { numbers.load_packet(out, x); }
    __device__ void store(char* out, char*, C value) const { numbers.store(out, value); }
    __device__ void store_packet(char* out, char*, const C (&value)[ROW_ITEMS]) const { numbers.store_packet(out, value); }
};

template <class C>
struct Best {
    C value;
    int32_t index;  // -1: of no elements
};

/// The largest or smallest so far and its last index: NaN wins. `extra` are the indices.
template <class C, bool IS_LARGEST>
struct RunningExtreme {
    using State = Best<C>;
    static constexpr bool HAS_PACKETS = true;
    Numbers<C> numbers;

    __device__ static State identity() { return {C(0), -1}; }
    __device__ static State combine(const State& a, const State& b) {
        const bool wins = (IS_LARGEST ? b.value >= a.value : b.value <= a.value) || b.value != b.value;
        const bool takes_b = b.index >= 0 && (a.index < 0 || wins);
        return {takes_b ? b.value : a.value, takes_b ? b.index : a.index};
    }
    __device__ State load(const char* x, const char*, int64_t i) const { return {numbers.load(x), int32_t(i)}; }
    __device__ void load_packet(State (&out)[ROW_ITEMS], const char* x, int64_t i) const {
        C value[ROW_ITEMS];
        numbers.load_packet(value, x);
#pragma unroll
        for (int k = 0; k < ROW_ITEMS; ++k) out[k] = {value[k], int32_t(i + k)};
    }
    __device__ void store(char* out, char* indices, const State& best) const {
        numbers.store(out, best.value);
        *reinterpret_cast<int64_t*>(indices) = best.index;
    }
    __device__ void store_packet(char* out, char* indices, const State (&best)[ROW_ITEMS]) const {
        C value[ROW_ITEMS];
        Packet<int64_t, ROW_ITEMS> index;
#pragma unroll
        for (int k = 0; k < ROW_ITEMS; ++k) value[k] = best[k].value, index.v[k] = best[k].index;
        numbers.store_packet(out, value);
        *reinterpret_cast<Packet<int64_t, ROW_ITEMS>*>(indices) = index;
    }
};

/// sum * exp(most), of numbers up to `most`.
template <class C>
struct ScaledSum {
    C most, sum;
};

template <class C>
struct RunningLogSum {
    using State = ScaledSum<C>;
    static constexpr bool HAS_PACKETS = true;
    Numbers<C> numbers;

    __device__ static State identity() { return {-std::numeric_limits<C>::infinity(), C(0)}; }
    __device__ static State combine(const State& a, const State& b) {
        const bool takes_b = b.most > a.most || b.most != b.most;
        const C most = takes_b ? b.most : a.most, sum = takes_b ? b.sum : a.sum, less = takes_b ? a.sum : b.sum;
        const C factor = a.most == b.most ? C(1) : C(::exp(-::fabs(a.most - b.most)));
        return {most, sum + less * factor};
    }
    __device__ static C result(const State& s) { return s.most + ::log(s.sum); }
    __device__ State load(const char* x, const char*, int64_t) const { return {numbers.load(x), C(1)}; }
    __device__ void load_packet(State (&out)[ROW_ITEMS], const char* x, int64_t) const {
        C value[ROW_ITEMS];
        numbers.load_packet(value, x);
#pragma unroll
        for (int k = 0; k < ROW_ITEMS; ++k) out[k] = {value[k], C(1)};
    }
    __device__ void store(char* out, char*, const State& s) const { numbers.store(out, result(s)); }
    __device__ void store_packet(char* out, char*, const State (&s)[ROW_ITEMS]) const {
        C value[ROW_ITEMS];
#pragma unroll
        for (int k = 0; k < ROW_ITEMS; ++k) value[k] = result(s[k]);
        numbers.store_packet(out, value);
    }
};

/// y -> sum + factor * y.
template <class C>
struct Step {
    C sum, factor;
};

/// y[i] = x[i] + factor[i] * y[i + 1], from the end on; `extra` are the factors, of which there is one less.
template <class C>
struct CarriedBack {
    using State = Step<C>;
    static constexpr bool HAS_PACKETS = false;

    __device__ static State identity() { return {C(0), C(1)}; }
    __device__ static State combine(const State& a, const State& b) {
        const bool is_first = a.sum == C(0) && a.factor == C(1);  // also where b's factor is infinite
        return {is_first ? b.sum : b.sum + b.factor * a.sum, a.factor * b.factor};
    }
    __device__ State load(const char* x, const char* factor, int64_t i) const {
        return {*reinterpret_cast<const C*>(x), i ? *reinterpret_cast<const C*>(factor) : C(0)};
    }
    __device__ void store(char* out, char*, const State& s) const { *reinterpret_cast<C*>(out) = s.sum; }
};

template <class C>
struct RunSum {
    C sum;
    uint32_t is_run, is_start;  // whether what is before belongs to it; whether it ends where the index names
};

/// From the end on the sums of what has the same index, at the place that the index names; elsewhere 0. `extra` are the
/// indices, `step` bytes apart.
template <class C>
struct RunSums {
    using State = RunSum<C>;
    static constexpr bool HAS_PACKETS = false;
    Numbers<C> numbers;
    int64_t step, last;

    __device__ static State identity() { return {C(0), 1, 0}; }
    __device__ static State combine(const State& a, const State& b) {
        return {b.is_run ? b.sum + a.sum : b.sum, a.is_run & b.is_run, b.is_start};
    }
    __device__ State load(const char* x, const char* index, int64_t i) const {
        const int64_t own = *reinterpret_cast<const int64_t*>(index);
        const bool is_run = i > 0 && *reinterpret_cast<const int64_t*>(index + step) == own;
        return {numbers.load(x), is_run, own == last - i};
    }
    __device__ void store(char* out, char*, const State& s) const { numbers.store(out, s.is_start ? s.sum : C(0)); }
};

/// Calls f(Tag<C>, numbers) with what the dtype of the result, which x has too, is computed in; null for others.
template <class Float, class F>
KernelPtr with_computed(const Request& request, const Operand& x, const F& f) {
    const DType dtype = request.operands[0].dtype;
    if (x.dtype != dtype) return nullptr;
    if (!is_floating(dtype)) return dtype == DType::boolean ? nullptr : f(Tag<int64_t>{});
    return dtype == DType::f64 ? f(Tag<double>{}) : f(Tag<Float>{});
}

KernelPtr cumprod(const Request& request) {
    const Operand& x = request.operands[1];
    return with_computed<double>(request, x, [&]<class C>(Tag<C>) {
        return scan_kernel(request, RunningProduct<C>{x.dtype}, {1, 0, 0});
    });
}

template <bool IS_LARGEST>
KernelPtr running_extreme(const Request& request) {
    const Operand& x = request.operands[2];
    const int64_t dim = request.attrs.integer("dim");
    if (request.operands[1].dtype != DType::i64 || size_along(x, int(dim)) > std::numeric_limits<int32_t>::max())
        return nullptr;
    return with_computed<float>(request, x, [&]<class C>(Tag<C>) {
        return scan_kernel(request, RunningExtreme<C, IS_LARGEST>{x.dtype}, {2, 0, 1});
    });
}

KernelPtr logcumsumexp(const Request& request) {
    const Operand& x = request.operands[1];
    if (!is_floating(x.dtype)) return nullptr;
    return with_computed<float>(request, x, [&]<class C>(Tag<C>) -> KernelPtr {
        if constexpr (std::is_integral_v<C>) return nullptr;
        else return scan_kernel(request, RunningLogSum<C>{x.dtype}, {1, 0, 0});
    });
}

/// out, gradient, indices.
KernelPtr running_extreme_grad(const Request& request) {
    const Operand &grad = request.operands[1], &index = request.operands[2];
    const int dim = int(request.attrs.integer("dim"));
    if (!is_floating(grad.dtype) || index.dtype != DType::i64 || grad.shape != index.shape) return nullptr;
    return with_computed<float>(request, grad, [&]<class C>(Tag<C>) -> KernelPtr {
        if constexpr (std::is_integral_v<C>) return nullptr;
        else return scan_kernel(request, RunSums<C>{grad.dtype, stride_along(index, dim), size_along(grad, dim) - 1},
                                {1, 0, 2}, true);
    });
}

/// out, x, factor.
KernelPtr carried_back(const Request& request) {
    const DType dtype = request.operands[0].dtype;
    const int64_t dim = request.attrs.integer("dim");
    for (const Operand& o : request.operands)
        if (o.dtype != dtype || o.shape.empty()) return nullptr;
    Request seen = request;
    Operand& factor = seen.operands[2];
    if (factor.shape[size_t(dim)] + 1 != seen.operands[1].shape[size_t(dim)]) return nullptr;
    factor.shape = seen.operands[1].shape;
    if (dtype == DType::f32) return scan_kernel(seen, CarriedBack<float>{}, {1, 0, 2}, true);
    return dtype == DType::f64 ? scan_kernel(seen, CarriedBack<double>{}, {1, 0, 2}, true) : nullptr;
}

}  // namespace

void add_running(Registry& registry) {
    registry["cumprod"] = cumprod;
    registry["cummax"] = running_extreme<true>;
    registry["cummin"] = running_extreme<false>;
    registry["running_extreme_grad"] = running_extreme_grad;
    registry["logcumsumexp"] = logcumsumexp;
    registry["carried_back"] = carried_back;
}

}  // namespace norch::reduction
