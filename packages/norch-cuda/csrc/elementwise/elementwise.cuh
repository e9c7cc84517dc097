// The driver of the elementwise kernels: any layout of the operands, 16-byte accesses where they allow it.
//
// A family is a struct F with
//     using In, Out           the element types of the inputs and of the output: a type, or a group of types, see below
//     static constexpr int INPUTS
//     using First             the type of the first input, where it is another
//     static constexpr int BLOCKS  at least how many a multiprocessor has at once; may be left out
//     load_first, VEC         how the first input is loaded, where it is converted, and at most how many elements at once
//     template <int K> __device__ void operator()(computed<Out> (&y)[K], const computed<In> (&x)[INPUTS][K]) const
// where the ops of the family are told apart at run time, outside the loop over K: the branch costs nothing beside the
// memory, and one kernel serves all of them. OneOf is the family of a list of ops.
#pragma once

#include <algorithm>

#include "runtime/type_groups.cuh"

namespace norch::elementwise {

/// The element type of a family's first input: F::First where it differs from the others.
template <class F, class = void>
struct FirstOf {
    using type = typename F::In;
};
template <class F>
struct FirstOf<F, std::void_t<typename F::First>> {
    using type = typename F::First;
};

template <class F>
constexpr bool LOADS_FIRST = requires { F::VEC; };

template <class F>
struct Inputs {
    const char* data[F::INPUTS];                 // null for a scalar
    computed<typename F::In> scalar[F::INPUTS];
    DType dtype[F::INPUTS + 1];                  // the output's first
};

template <class T, int VEC, class C, int K>
__device__ inline void load_packet(C (&x)[K], int at, const char* data, bool is_broadcast) {
    if (VEC == 1 || is_broadcast) {
        C value = C(upcast(*reinterpret_cast<const T*>(data)));
#pragma unroll
        for (int j = 0; j < VEC; ++j) x[at + j] = value;
    } else {
        auto packet = *reinterpret_cast<const Packet<T, VEC>*>(data);
#pragma unroll
        for (int j = 0; j < VEC; ++j) x[at + j] = C(upcast(packet.v[j]));
    }
}

template <class T, int VEC, class C, int K>
__device__ inline void store_packet(char* data, const C (&y)[K], int at) {
    Packet<T, VEC> packet;
#pragma unroll
    for (int j = 0; j < VEC; ++j) packet.v[j] = downcast<T>(computed<T>(y[at + j]));
    *reinterpret_cast<Packet<T, VEC>*>(data) = packet;
}

/// How many blocks a multiprocessor is to have at once, where a family says so: F::BLOCKS.
template <class F>
constexpr int BLOCKS_OF = [] {
    if constexpr (requires { F::BLOCKS; }) return F::BLOCKS;
    else return 1;
}();

/// VEC divides the number of elements.
template <class F, int VEC, int UNROLL>
__global__ void __launch_bounds__(THREADS, VEC > 1 ? BLOCKS_OF<F> : 1)
    map_kernel(const __grid_constant__ Layout<F::INPUTS + 1> layout, char* out, const __grid_constant__ Inputs<F> inputs,
               const F f) {
    using In = typename F::In;
    using First = typename FirstOf<F>::type;
    using Out = typename F::Out;
    constexpr int N = F::INPUTS + 1, K = VEC * UNROLL;
    const uint32_t first = (blockIdx.x * (THREADS * UNROLL) + threadIdx.x) * VEC;
    constexpr uint32_t STEP = THREADS * VEC;
    computed<In> x[F::INPUTS][K] = {};
    int64_t offset[UNROLL][N] = {};
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
        if (first + u * STEP < layout.numel) layout.offsets(first + u * STEP, offset[u]);
#pragma unroll
    for (int k = 0; k < F::INPUTS; ++k) {
        const bool is_broadcast = layout.stride[k + 1][0] == 0;
        auto load = [&]<class T>(Tag<T>) {
#pragma unroll
            for (int u = 0; u < UNROLL; ++u)
                if (first + u * STEP < layout.numel)
                    load_packet<T, VEC>(x[k], u * VEC, inputs.data[k] + offset[u][k + 1], is_broadcast);
        };
        if (!inputs.data[k]) {
#pragma unroll
            for (int j = 0; j < K; ++j) x[k][j] = inputs.scalar[k];
        } else if (k > 0) {
            with_type<In>(inputs.dtype[k + 1], load);
        } else if constexpr (LOADS_FIRST<F>) {
#pragma unroll
            for (int u = 0; u < UNROLL; ++u)
                if (first + u * STEP < layout.numel)
                    f.template load_first<VEC>(x[k], u * VEC, inputs.data[k] + offset[u][k + 1], is_broadcast);
        } else {
            with_type<First>(inputs.dtype[k + 1], load);
        }
    }
    computed<Out> y[K];
    f(y, x);
    with_type<Out>(inputs.dtype[0], [&]<class T>(Tag<T>) {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (first + u * STEP < layout.numel) store_packet<T, VEC>(out + offset[u][0], y, u * VEC);
    });
}

/// How the pieces of some loops may be accessed: VEC elements at once, or one by one.
template <int N>
bool allows_packets(const Layout<N>& layout, int vec, const int64_t (&itemsize)[N], const bool (&is_scalar)[N]) {
    if (layout.ndim == 0) return false;
    if (layout.ndim > 1 && layout.size[0].divisor % uint32_t(vec)) return false;
    for (int k = 0; k < N; ++k) {
        if (is_scalar[k]) continue;
        const bool is_broadcast = k > 0 && layout.stride[k][0] == 0;
        if (!is_broadcast && layout.stride[k][0] != itemsize[k]) return false;
        for (int d = 1; !is_broadcast && d < layout.ndim; ++d)
            if (layout.stride[k][d] % (vec * itemsize[k])) return false;
    }
    return true;
}

template <class F>
class Map final : public Kernel {
public:
    static constexpr int N = F::INPUTS + 1;
    using In = typename F::In;
    using Out = typename F::Out;
    static constexpr int VEC = [] {
        if constexpr (LOADS_FIRST<F>) return F::VEC;
        else return std::min(PACKET<In>, PACKET<Out>);
    }();
    // A copy by one packet a thread reached 4.25 TB/s on an H200, by two 4.12: short blocks leave fewer gaps.
    static constexpr int UNROLL = VEC >= 8 || F::INPUTS == 1 ? 1 : 2;

    Map(const Request& request, F f) : f_(f) {
        for (int k = 0; k < N; ++k) {
            is_scalar_[k] = request.operands[k].is_scalar;
            dtype_[k] = request.operands[k].dtype;
            itemsize_[k] = size_of(dtype_[k]);
        }
        for (const Piece<N>& piece : cut<N>(collapse(request.operands)))
            pieces_.push_back({piece, allows_packets<N>(piece.layout, VEC, itemsize_, is_scalar_)});
    }

    void run(char* const* data, const Scalar* scalars) const override {
        for (const auto& [piece, has_packets] : pieces_) {
            char* out = data[0] + piece.start[0];
            Inputs<F> inputs = {};
            inputs.dtype[0] = dtype_[0];
            bool is_vector = has_packets && is_aligned(out, VEC * itemsize_[0]);
            for (int k = 0; k < F::INPUTS; ++k) {
                inputs.dtype[k + 1] = dtype_[k + 1];
                if (is_scalar_[k + 1]) {
                    inputs.scalar[k] = scalar_as<computed<In>>(scalars[k + 1], dtype_[k + 1]);
                } else {
                    inputs.data[k] = data[k + 1] + piece.start[k + 1];
                    is_vector &= piece.layout.stride[k + 1][0] == 0 || is_aligned(inputs.data[k], VEC * itemsize_[k + 1]);
                }
            }
            const uint32_t left = piece.layout.numel % VEC;
            if (!is_vector || (left && piece.layout.numel < FEW))
                launch<1, UNALIGNED>(piece.layout, out, inputs);
            else if (left)
                launch_apart(piece.layout, left, out, inputs);
            else
                launch<VEC, UNROLL>(piece.layout, out, inputs);
        }
    }

private:
    static constexpr int UNALIGNED = 4;
    static constexpr uint32_t FEW = 1 << 16;  // elements that a second launch would not be worth

    /// The packets and then, one by one, the elements that are left, whose layout has one dim.
    void launch_apart(Layout<N> layout, uint32_t left, char* out, Inputs<F> inputs) const {
        layout.numel -= left;
        launch<VEC, UNROLL>(layout, out, inputs);
        out += layout.numel * layout.stride[0][0];
        for (int k = 0; k < F::INPUTS; ++k)
            if (inputs.data[k]) inputs.data[k] += layout.numel * layout.stride[k + 1][0];
        layout.numel = left;
        launch<1, UNALIGNED>(layout, out, inputs);
    }

    template <int V, int U>
    void launch(const Layout<N>& layout, char* out, const Inputs<F>& inputs) const {
        const int64_t blocks = ceil_div(layout.numel, int64_t(THREADS) * V * U);
        launch_kernel("an elementwise kernel", map_kernel<F, V, U>, unsigned(blocks), THREADS, layout, out, inputs, f_);
    }

    struct Part {
        Piece<N> piece;
        bool has_packets;
    };
    std::vector<Part> pieces_;
    DType dtype_[N];
    int64_t itemsize_[N];
    bool is_scalar_[N];
    F f_;
};

template <class F>
KernelPtr map(const Request& request, F f) {
    return std::make_unique<Map<F>>(request, f);
}

// --- Families of ops ------------------------------------------------------------------------------------------------

template <class... Ops>
struct OpList {
    /// The number of an op of the list.
    template <class Op>
    static constexpr int index() {
        int at = 0, found = -1;
        ((found = std::is_same_v<Op, Ops> ? at : found, ++at), ...);
        return found;
    }
};

/// How an op is called: by its elements alone.
struct ApplyPlain {
    template <class Op, class... X>
    __device__ static auto call(X... x) {
        return Op::apply(x...);
    }
};

/// A family of INPUTS inputs of type T and results of type Out: the ops of a list, called by way of `Call`.
template <class T, class Result, int COUNT, class List, class Call = ApplyPlain>
struct OneOf;
template <class T, class Result, int COUNT, class... Ops, class Call>
struct OneOf<T, Result, COUNT, OpList<Ops...>, Call> : Call {
    using In = T;
    using Out = Result;
    static constexpr int INPUTS = COUNT;
    int op;

    OneOf(int op, Call call = {}) : Call(call), op(op) {}

    template <int K>
    __device__ void operator()(computed<Out> (&y)[K], const computed<T> (&x)[COUNT][K]) const {
        int at = 0;
        (void)((op == at++ && each<Ops>(y, x)) || ...);
    }

private:
    template <class Op, int K>
    __device__ bool each(computed<Out> (&y)[K], const computed<T> (&x)[COUNT][K]) const {
#pragma unroll
        for (int i = 0; i < K; ++i) {
            if constexpr (COUNT == 1) y[i] = this->template call<Op>(x[0][i]);
            else if constexpr (COUNT == 2) y[i] = this->template call<Op>(x[0][i], x[1][i]);
            else y[i] = this->template call<Op>(x[0][i], x[1][i], x[2][i]);
        }
        return true;
    }
};

/// The kernel of one op alone.
template <class T, class Op, int COUNT, class Call = ApplyPlain>
KernelPtr map_op(const Request& request, Call call = {}) {
    return map(request, OneOf<T, T, COUNT, OpList<Op>, Call>(0, call));
}

}  // namespace norch::elementwise
