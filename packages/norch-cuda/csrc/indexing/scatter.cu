// scatter: where an index comes twice, which of its values is kept is left open, and may change from run to run. Of
// scatter_reduce the extremes, for which the order does not matter.
#include <bit>

#include "common/staging.h"
#include "indexing/indexing.cuh"
#include "runtime/families.h"

namespace norch::indexing {
namespace {

template <class P>
__global__ void __launch_bounds__(THREADS) scatter_elements(const __grid_constant__ Layout<3> layout, char* out,
                                                            const char* src, const char* index, const Chosen chosen,
                                                            const ErrorSink sink) {
    constexpr int U = INDEX_UNROLL;
    const Places<3> at(layout);
    int64_t k[U];
    P value[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
        if (!at.is_there(u)) continue;
        value[u] = *reinterpret_cast<const P*>(src + at.offset[u][0]);
        k[u] = *reinterpret_cast<const int64_t*>(index + at.offset[u][2]);
    }
#pragma unroll
    for (int u = 0; u < U; ++u)
        if (at.is_there(u) && find_place(k[u], chosen, sink))
            *reinterpret_cast<P*>(out + at.offset[u][1] + k[u] * chosen.step) = value[u];
}

class Scatter final : public Kernel {
public:
    /// The loops are those of src, which is what is walked along; then out, index.
    Scatter(const Loops& loops, DType dtype, const Chosen& chosen)
        : loops_(loops, size_of(dtype), chosen.step), chosen_(chosen) {}

    void run(char* const* data, const Scalar*) const override {
        loops_.each(data[0], data[2], [&]<class P>(Tag<P>, const Piece<3>& piece) {
            launch_kernel("a scatter", scatter_elements<P>, index_blocks(piece.layout.numel), THREADS, piece.layout,
                          data[0] + piece.start[1], data[2] + piece.start[0], data[1] + piece.start[2], chosen_,
                          error_sink());
        });
    }

private:
    IndexedLoops loops_;
    Chosen chosen_;
};

KernelPtr scatter(const Request& r) {
    const Operand &out = r.operands[0], &index = r.operands[1], &src = r.operands[2];
    const int dim = int(r.attrs.integer("dim"));
    return std::make_unique<Scatter>(collapse({src, indexed(out, index.shape, dim), index}), out.dtype,
                                     chosen_along(r.op, out, dim));
}

// --- Extremes -------------------------------------------------------------------------------------------------------

/// Whether x is to take the place of y, which is then there no more: NaN wins, and of zeros the one with the right sign.
template <bool LARGEST, class T>
__device__ inline bool takes_place(T x, T y) {
    if constexpr (!std::is_integral_v<T>) {
        if (y != y) return false;
        if (x != x) return true;
        if (x == y && x == T(0)) return LARGEST ? signbit(y) && !signbit(x) : signbit(x) && !signbit(y);
    }
    return LARGEST ? x > y : x < y;
}

template <size_t SIZE>
using Word = std::conditional_t<SIZE == 2, unsigned short, std::conditional_t<SIZE == 4, unsigned, unsigned long long>>;

template <bool LARGEST, class T>
__global__ void __launch_bounds__(THREADS) extreme_elements(const __grid_constant__ Layout<3> layout, char* out,
                                                            const char* src, const char* index, const Chosen chosen,
                                                            const ErrorSink sink) {
    using W = Word<sizeof(T)>;
    const Places<3> at(layout);
#pragma unroll
    for (int u = 0; u < INDEX_UNROLL; ++u) {
        if (!at.is_there(u)) continue;
        int64_t k = *reinterpret_cast<const int64_t*>(index + at.offset[u][2]);
        if (!find_place(k, chosen, sink)) continue;
        const T x = *reinterpret_cast<const T*>(src + at.offset[u][0]);
        W* const place = reinterpret_cast<W*>(out + at.offset[u][1] + k * chosen.step);
        W seen = *reinterpret_cast<volatile W*>(place);
        while (takes_place<LARGEST>(upcast(x), upcast(std::bit_cast<T>(seen)))) {
            const W found = atomicCAS(place, seen, std::bit_cast<W>(x));
            if (found == seen) break;
            seen = found;
        }
    }
}

/// out, input, src, index: a copy of input, over which one value each is written first where input does not count.
KernelPtr scatter_extreme(const Request& r) {
    const Operand &out = r.operands[0], &src = r.operands[2], &index = r.operands[3];
    const int64_t given = r.attrs.integer("dim");
    const int dim = int(given < 0 ? given + out.ndim() : given);
    if (out.shape.empty() || index.dtype != DType::i64 || src.dtype != out.dtype || size_of(out.dtype) < 2) return nullptr;
    std::shared_ptr<Kernel> first;
    if (!r.attrs.flag("include_self")) {
        Request one{"scatter", {out, index, src}, {}};
        one.attrs.values["dim"] = {Attrs::Value::integer, dim};
        first = scatter(one);
    }
    const std::shared_ptr<Kernel> copy = copy_kernel(out, r.operands[1]);
    const auto pieces = cut<3>(collapse({src, indexed(out, index.shape, dim), index}));
    const Chosen chosen = chosen_along("scatter_reduce", out, dim);
    const bool is_largest = r.attrs.text("reduce") == "amax";
    return visit_device(out.dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        if constexpr (sizeof(T) < 2) return nullptr;
        else return make_kernel(0, [=](char* const* data, const Scalar* scalars) {
            run_copy(*copy, data[0], data[1]);
            char* const operands[] = {data[0], data[3], data[2]};
            if (first) first->run(operands, scalars);
            for (const Piece<3>& piece : pieces) {
                auto* kernel = is_largest ? extreme_elements<true, T> : extreme_elements<false, T>;
                launch_kernel("a scatter_reduce", kernel, index_blocks(piece.layout.numel), THREADS, piece.layout,
                              data[0] + piece.start[1], data[2] + piece.start[0], data[3] + piece.start[2], chosen,
                              error_sink());
            }
        });
    });
}

}  // namespace

void add_scatter(Registry& registry) {
    registry["scatter"] = scatter;
    registry["functional_scatter_extreme"] = scatter_extreme;
}

}  // namespace norch::indexing
