// scatter_add. Whole rows of floats are row_sums.cu's, long lines along the dim scatter_add_lines.cu's, few elements for many
// places row_runs.cu's. Integers are added by atomics. So are floats, yet with the same result in every run: as integers, in
// units that the largest addend of each place decides, which makes the order of additions meaningless (the idea of J. Demmel
// and H. Nguyen, "Fast reproducible floating-point summation", ARITH 2013, with one bin of 62 bits; two for float64).
#include "indexing/exact_sum.cuh"
#include "indexing/indexing.cuh"
#include "indexing/row_sums.cuh"
#include "indexing/scatter_add_lines.h"
#include "runtime/allocator.h"
#include "runtime/families.h"

namespace norch::indexing {
namespace {

// --- Atomics --------------------------------------------------------------------------------------------------------

template <class T>
__device__ inline void atomic_add(T* to, T x) {
    if constexpr (sizeof(T) == 8 && std::is_integral_v<T>) {
        atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(x));
    } else if constexpr (std::is_same_v<T, int16_t>) {
        auto* word = reinterpret_cast<unsigned short*>(to);
        unsigned short seen = *word, expected;
        do {
            expected = seen;
            seen = atomicCAS(word, expected, static_cast<unsigned short>(expected + static_cast<unsigned short>(x)));
        } while (seen != expected);
    } else if constexpr (sizeof(T) == 1) {
        // The word around the byte; a block of memory starts and ends with whole ones.
        const uintptr_t address = reinterpret_cast<uintptr_t>(to);
        auto* word = reinterpret_cast<unsigned*>(address & ~uintptr_t(3));
        const unsigned shift = unsigned(address & 3) * 8;
        unsigned seen = *word, expected;
        do {
            expected = seen;
            const unsigned sum = ((expected >> shift) + unsigned(uint8_t(x))) & 0xff;
            seen = atomicCAS(word, expected, (expected & ~(0xffu << shift)) | sum << shift);
        } while (seen != expected);
    } else {
        atomicAdd(to, x);
    }
}

enum class Way { alone, atomic, set };  // no place comes twice; it may; bools: a true one sets

template <class T>
__global__ void __launch_bounds__(THREADS) add_elements(const __grid_constant__ Layout<3> layout, char* out,
                                                        const char* src, const char* index, const Chosen chosen,
                                                        const Way way, const ErrorSink sink) {
    constexpr int U = INDEX_UNROLL;
    const Places<3> at(layout);
    int64_t k[U];
    T x[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
        if (!at.is_there(u)) continue;
        x[u] = *reinterpret_cast<const T*>(src + at.offset[u][0]);
        k[u] = *reinterpret_cast<const int64_t*>(index + at.offset[u][2]);
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
        if (!at.is_there(u) || !find_place(k[u], chosen, sink)) continue;
        T* place = reinterpret_cast<T*>(out + at.offset[u][1] + k[u] * chosen.step);
        if (way == Way::alone) {
            *place = downcast<T>(Add::apply(upcast(*place), upcast(x[u])));
        } else if (way == Way::atomic) {
            atomic_add(place, x[u]);
        } else if constexpr (std::is_same_v<T, uint8_t>) {
            if (x[u]) *place = 1;
        }
    }
}

// --- Sums in integers -----------------------------------------------------------------------------------------------

/// Calls f(place, address of the output, addend) for each element.
template <class T, class F>
__device__ inline void each_addend(const Layout<4>& layout, char* out, const char* src, const char* index,
                                   const Chosen& chosen, const ExactSums& sums, const ErrorSink* sink, const F& f) {
    constexpr int U = INDEX_UNROLL;
    const Places<4> at(layout);
    int64_t k[U];
    double x[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
        if (!at.is_there(u)) continue;
        x[u] = double(upcast(*reinterpret_cast<const T*>(src + at.offset[u][0])));
        k[u] = *reinterpret_cast<const int64_t*>(index + at.offset[u][2]);
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
        if (!at.is_there(u)) continue;
        if (k[u] < 0) k[u] += chosen.size;
        if (uint64_t(k[u]) >= uint64_t(chosen.size)) {
            if (sink) report_index(*sink, chosen.op, k[u] < 0 ? k[u] - chosen.size : k[u], chosen.size);
            continue;
        }
        f(at.offset[u][3] + k[u] * sums.step, out + at.offset[u][1] + k[u] * chosen.step, x[u]);
    }
}

/// First: the largest exponent at each place. Whoever comes first to a place clears its sum.
template <class T>
__global__ void __launch_bounds__(THREADS) note_addends(const __grid_constant__ Layout<4> layout, char* out,
                                                        const char* src, const char* index, const Chosen chosen,
                                                        const ExactSums sums, const ErrorSink sink) {
    each_addend<T>(layout, out, src, index, chosen, sums, &sink, [&](int64_t place, char*, double x) {
        if (!note(sums.seen + place, x)) return;
        sums.high[place] = 0;
        if (sums.low) sums.low[place] = 0;
    });
}

/// Then the sums.
template <class T>
__global__ void __launch_bounds__(THREADS) add_addends(const __grid_constant__ Layout<4> layout, char* out,
                                                       const char* src, const char* index, const Chosen chosen,
                                                       const ExactSums sums) {
    each_addend<T>(layout, out, src, index, chosen, sums, nullptr, [&](int64_t place, char*, double x) {
        add_in_units<T>(sums.seen[place], sums.headroom, sums.high + place, sums.low + place, x);
    });
}

/// Last, one of those who added to a place writes it.
template <class T>
__global__ void __launch_bounds__(THREADS) write_sums(const __grid_constant__ Layout<4> layout, char* out,
                                                      const char* src, const char* index, const Chosen chosen,
                                                      const ExactSums sums) {
    each_addend<T>(layout, out, src, index, chosen, sums, nullptr, [&](int64_t place, char* to, double) {
        const uint32_t seen = atomicExch(sums.seen + place, 0u);
        if (!seen) return;
        write_sum(*reinterpret_cast<T*>(to), seen, sums.headroom, sums.high[place], sums.low ? sums.low[place] : 0);
    });
}

/// Past this much memory for the sums, floats are added by plain atomics, whose order shows in the last bits.
constexpr int64_t MAX_SCRATCH = int64_t(8) << 30;
/// And past so much those are sorted that are fewer than the places by FEW times.
constexpr int64_t LARGE_SCRATCH = int64_t(256) << 20, FEW = 4;

template <class T>
class ReproducibleAdd final : public Kernel {
public:
    ReproducibleAdd(const Loops& loops, const Chosen& chosen, int64_t places, int64_t step, int64_t count)
        : pieces_(cut<4>(loops)), chosen_(chosen), places_(places), step_(step), headroom_(bits_of(count)) {}

    void run(char* const* data, const Scalar*) const override {
        if (pieces_.empty()) return;
        Scratch<> scratch(size_t(places_ * BYTES_PER_PLACE<T>));
        ExactSums sums = {};
        sums.high = reinterpret_cast<unsigned long long*>(scratch.data());
        if (sizeof(T) == 8) sums.low = sums.high + places_;
        sums.seen = reinterpret_cast<uint32_t*>(sums.high + places_ * (sizeof(T) == 8 ? 2 : 1));
        sums.step = step_;
        sums.headroom = headroom_;
        check(cudaMemsetAsync(sums.seen, 0, size_t(places_) * sizeof(uint32_t), stream_handle()), "clearing sums");
        each(data, [&](const Piece<4>& piece, unsigned blocks, char* out, char* src, char* index) {
            note_addends<T><<<blocks, THREADS, 0, stream_handle()>>>(piece.layout, out, src, index, chosen_,
                                                                     at(sums, piece), error_sink());
        });
        each(data, [&](const Piece<4>& piece, unsigned blocks, char* out, char* src, char* index) {
            add_addends<T><<<blocks, THREADS, 0, stream_handle()>>>(piece.layout, out, src, index, chosen_,
                                                                    at(sums, piece));
        });
        each(data, [&](const Piece<4>& piece, unsigned blocks, char* out, char* src, char* index) {
            write_sums<T><<<blocks, THREADS, 0, stream_handle()>>>(piece.layout, out, src, index, chosen_,
                                                                   at(sums, piece));
        });
    }

private:
    static ExactSums at(ExactSums sums, const Piece<4>& piece) {
        sums.seen += piece.start[3];
        sums.high += piece.start[3];
        if (sums.low) sums.low += piece.start[3];
        return sums;
    }

    template <class F>
    void each(char* const* data, const F& f) const {
        for (const Piece<4>& piece : pieces_) {
            f(piece, index_blocks(piece.layout.numel), data[0] + piece.start[1], data[2] + piece.start[0],
              data[1] + piece.start[2]);
            check_launch("a scatter_add");
        }
    }

    std::vector<Piece<4>> pieces_;
    Chosen chosen_;
    int64_t places_, step_;
    int headroom_;
};

template <class T>
class PlainAdd final : public Kernel {
public:
    PlainAdd(const Loops& loops, const Chosen& chosen, Way way) : pieces_(cut<3>(loops)), chosen_(chosen), way_(way) {}

    void run(char* const* data, const Scalar*) const override {
        for (const Piece<3>& piece : pieces_) {
            launch_kernel("a scatter_add", add_elements<T>, index_blocks(piece.layout.numel), THREADS, piece.layout,
                          data[0] + piece.start[1], data[2] + piece.start[0], data[1] + piece.start[2], chosen_, way_,
                          error_sink());
        }
    }

private:
    std::vector<Piece<3>> pieces_;
    Chosen chosen_;
    Way way_;
};

/// Of floats, where an index serves a whole row; null elsewhere.
KernelPtr add_rows(const Request& r, const Chosen& chosen, int dim) {
    const Operand &out = r.operands[0], &index = r.operands[1], &src = r.operands[2];
    if (!is_floating(out.dtype) || index.ndim() < 2) return nullptr;
    const Loops loops = collapse({indexed(out, index.shape, dim), index, src}, dims_but(index.ndim(), dim));
    const int64_t itemsize = size_of(out.dtype);
    if (loops.ndim() != 1 || loops.numel < 8 || loops.strides[1][0] != 0) return nullptr;
    if (loops.strides[0][0] != itemsize || loops.strides[2][0] != itemsize) return nullptr;
    Operand list = index;
    list.shape = {index.shape[dim]};
    list.strides = {index.strides[dim]};
    KernelPtr kernel = row_sums_kernel(
        {out.dtype, list, chosen.size, loops.numel, out.strides[dim], src.strides[dim], true, true, -1, chosen.op});
    if (!kernel) return nullptr;
    std::shared_ptr<Kernel> sums = std::move(kernel);
    return make_kernel(0, [sums](char* const* data, const Scalar* scalars) {
        char* const operands[] = {data[0], data[2], data[1]};
        sums->run(operands, scalars);
    });
}

/// The elements of the memory that a view spans; -1 where it is not counted upwards or by 32 bits.
int64_t span_of(const Operand& o) {
    int64_t span = 1;
    for (int d = 0; d < o.ndim(); ++d) {
        if (o.strides[d] < 0) return -1;
        span += std::max<int64_t>(o.shape[d] - 1, 0) * o.strides[d];
    }
    return span < int64_t(UINT32_MAX) ? span : -1;
}

KernelPtr scatter_add(const Request& r) {
    const Operand &out = r.operands[0], &index = r.operands[1], &src = r.operands[2];
    const int dim = int(r.attrs.integer("dim"));
    const Chosen chosen = chosen_along(r.op, out, dim);
    const Operand to = indexed(out, index.shape, dim);
    const int64_t count = size_along(index, dim);
    Operand place = index;  // where the sums of an element are: one byte each, as far as strides go
    place.dtype = DType::u8;
    if (index.ndim()) place.shape[dim] = chosen.size;
    const int64_t places = place.numel();
    place.strides.assign(index.shape.size(), 1);
    for (int d = index.ndim() - 2; d >= 0; --d) place.strides[d] = place.strides[d + 1] * place.shape[d + 1];
    const int64_t step = index.ndim() ? place.strides[dim] : 0;
    if (count > 1)
        if (KernelPtr kernel = add_rows(r, chosen, dim)) return kernel;
    return visit_device(out.dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        if constexpr (!std::is_integral_v<T>) {
            if (KernelPtr kernel = add_by_lines(r, chosen, dim)) return kernel;
            const int64_t span = span_of(out);
            if (count > 1 && places * BYTES_PER_PLACE<T> > LARGE_SCRATCH && index.numel() < places / FEW && span > 0 &&
                span_of(src) > 0)
                if (KernelPtr kernel = sorted_element_sums(collapse({src, to, index}), out.dtype, chosen, span))
                    return kernel;
            if (count > 1 && places * BYTES_PER_PLACE<T> <= MAX_SCRATCH) {
                const Loops loops = collapse({src, to, index, indexed(place, index.shape, dim)});
                return std::make_unique<ReproducibleAdd<T>>(loops, chosen, places, step, count);
            }
        }
        const Way way = out.dtype == DType::boolean ? Way::set : count > 1 ? Way::atomic : Way::alone;
        return std::make_unique<PlainAdd<T>>(collapse({src, to, index}), chosen, way);
    });
}

}  // namespace

void add_scatter_add(Registry& registry) { registry["scatter_add"] = scatter_add; }

}  // namespace norch::indexing
