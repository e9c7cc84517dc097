// Sums of rows by index, where rows have many indices each and some may have most of them, and of single elements, where
// they are few for the places there are: the indices are sorted and cut into pieces of one length. A piece adds up its
// runs of equal rows, then those that go on in other pieces are joined.
#include <algorithm>

#include "indexing/row_sums.cuh"
#include "indexing/sorting.h"
#include "runtime/allocator.h"

namespace norch::indexing {
namespace {
namespace runs {

__global__ void __launch_bounds__(THREADS) number_places(uint32_t* places, int64_t count) {
    const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count) places[i] = uint32_t(i);
}

/// Threads lie in groups of `lanes`, each of which has a piece. `heads` and `tails` are the sums of the first and the last
/// run of equal rows in a piece, which may go on in others; tails only where that is another run.
struct Runs {
    int64_t n, rows, features, out_stride, src_stride;
    int length, pieces, lanes;  // length: of a piece, in indices
    bool adds;
    const uint32_t *keys, *places;
};

template <class T, class C, int VEC>
__device__ inline void write_sum(const Runs& r, T* out, uint32_t row, int64_t column, const Packet<C, VEC>& sum) {
    if (row >= r.rows) return;
    T* const to = out + row * r.out_stride + column;
#pragma unroll
    for (int v = 0; v < VEC; ++v) {
        if (!r.adds) to[v] = downcast<T>(sum.v[v]);
        else if (sum.v[v] != C(0)) to[v] = downcast<T>(upcast(to[v]) + sum.v[v]);
    }
}

template <class T, int VEC>
__global__ void __launch_bounds__(THREADS) sum_runs(const Runs r, const T* src, T* out, computed<T>* heads,
                                                    computed<T>* tails) {
    using C = computed<T>;
    constexpr int U = 8;
    const int piece = blockIdx.x * (THREADS / r.lanes) + threadIdx.x / r.lanes;
    const int64_t column = (int64_t(blockIdx.y) * r.lanes + threadIdx.x % r.lanes) * VEC;
    if (piece >= r.pieces || column >= r.features) return;
    const int64_t begin = int64_t(piece) * r.length, end = min(begin + r.length, r.n);
    const uint32_t first = r.keys[begin];
    uint32_t now = first;
    Packet<C, VEC> sum = {};
    auto put = [&](C* to) { *reinterpret_cast<Packet<C, VEC>*>(to + piece * r.features + column) = sum; };
    for (int64_t base = begin; base < end; base += U) {
        Packet<T, VEC> x[U];
        uint32_t row[U];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const int64_t at = min(base + u, end - 1);
            row[u] = r.keys[at];
            x[u] = *reinterpret_cast<const Packet<T, VEC>*>(src + int64_t(r.places[at]) * r.src_stride + column);
        }
#pragma unroll
        for (int u = 0; u < U; ++u) {
            if (base + u >= end) break;
            if (row[u] != now) {
                if (now == first) put(heads);
                else write_sum<T, C, VEC>(r, out, now, column, sum);
                now = row[u];
                sum = {};
            }
#pragma unroll
            for (int v = 0; v < VEC; ++v) sum.v[v] += upcast(x[u].v[v]);
        }
    }
    put(now == first ? heads : tails);
}

/// Of the runs that begin in a piece those that a neighbour may have part of: with what follows in the next pieces.
template <class T, int VEC>
__global__ void __launch_bounds__(THREADS) join_runs(const Runs r, T* out, const computed<T>* heads,
                                                     const computed<T>* tails) {
    using C = computed<T>;
    using Sum = Packet<C, VEC>;
    const int piece = blockIdx.x * (THREADS / r.lanes) + threadIdx.x / r.lanes;
    const int64_t column = (int64_t(blockIdx.y) * r.lanes + threadIdx.x % r.lanes) * VEC;
    if (piece >= r.pieces || column >= r.features) return;
    const auto first_of = [&](int p) { return r.keys[int64_t(p) * r.length]; };
    const auto last_of = [&](int p) { return r.keys[min(int64_t(p + 1) * r.length, r.n) - 1]; };
    const uint32_t first = first_of(piece), last = last_of(piece);
    const auto sum_of = [&](const C* sums, int p) { return *reinterpret_cast<const Sum*>(sums + p * r.features + column); };
    // Most runs end in the next piece; of long ones several pieces are read at once.
    const auto join = [&](Sum sum, uint32_t row) {
        constexpr int U = 8;
        bool goes_on = true;
        for (int p = piece + 1; p < r.pieces && goes_on;) {
            const int count = p < piece + 3 ? 1 : U;
            Sum more[U];
            uint32_t rows[U];
#pragma unroll
            for (int u = 0; u < U; ++u) {
                if (u >= count) break;
                const int at = min(p + u, r.pieces - 1);
                rows[u] = first_of(at);
                more[u] = sum_of(heads, at);
            }
#pragma unroll
            for (int u = 0; u < U; ++u) {
                if (u >= count || !goes_on) break;
                goes_on = p + u < r.pieces && rows[u] == row;
                if (!goes_on) break;
#pragma unroll
                for (int v = 0; v < VEC; ++v) sum.v[v] += more[u].v[v];
            }
            p += count;
        }
        write_sum<T, C, VEC>(r, out, row, column, sum);
    };
    const bool begins = piece == 0 || last_of(piece - 1) != first;
    if (first == last) {
        if (begins) join(sum_of(heads, piece), first);
        return;
    }
    if (begins) write_sum<T, C, VEC>(r, out, first, column, sum_of(heads, piece));
    join(sum_of(tails, piece), last);
}

/// Of operands out, src: their rows' sums by the keys that are sorted. `sums` has two of each piece.
template <class T, int V>
void sum_sorted(Runs r, char* const* data, computed<T>* sums) {
    r.lanes = THREADS;
    while (r.lanes > 1 && (r.lanes / 2) * V >= r.features) r.lanes /= 2;
    const dim3 grid(unsigned(ceil_div(r.pieces, THREADS / r.lanes)), unsigned(ceil_div(r.features, r.lanes * V)));
    auto* const out = reinterpret_cast<T*>(data[0]);
    auto* const tails = sums + r.pieces * r.features;
    launch_kernel("summing rows", sum_runs<T, V>, grid, THREADS, r, reinterpret_cast<const T*>(data[1]), out, sums, tails);
    launch_kernel("summing rows", join_runs<T, V>, grid, THREADS, r, out, sums, tails);
}

/// Cuts n indices into pieces, about `wanted` of them.
void cut_into_pieces(Runs& r, int64_t wanted) {
    r.length = int(std::clamp<int64_t>(ceil_div(r.n, wanted), 32, 512));
    r.pieces = int(ceil_div(r.n, r.length));
}

int bits_up_to(int64_t largest) {
    int bits = 0;
    while ((int64_t(1) << bits) <= largest) ++bits;
    return bits;
}

template <class T>
class SortedSumsKernel final : public Kernel {
public:
    static constexpr int VEC = sizeof(T) == 8 ? 2 : 4;
    using C = computed<T>;

    explicit SortedSumsKernel(const RowSums& sums)
        : dtype_(sums.index.dtype), chosen_{0, sums.rows, sums.wraps, sums.op}, padding_(sums.padding),
          index_(cut<1>(row_major_loops({&sums.index}))),
          has_packets_(sums.features % VEC == 0 && sums.out_stride % VEC == 0 && sums.src_stride % VEC == 0) {
        runs_.n = sums.index.numel(), runs_.rows = sums.rows, runs_.features = sums.features;
        runs_.out_stride = sums.out_stride, runs_.src_stride = sums.src_stride, runs_.adds = sums.adds;
        cut_into_pieces(runs_, 24 * multiprocessors());
    }

    void run(char* const* data, const Scalar*) const override {
        constexpr size_t bytes = VEC * sizeof(T);
        Runs r = runs_;
        const int64_t stored = ceil_div(r.n, 64) * 64;
        const Scratch<uint32_t> keys(2 * stored), places(2 * stored);
        const Scratch<C> sums(2 * r.pieces * r.features);
        auto* const out = reinterpret_cast<T*>(data[0]);
        launch_find_rows(index_, dtype_, chosen_, padding_, int32_t(r.rows), data[2], reinterpret_cast<int32_t*>(keys.data()));
        launch_kernel("numbering indices", number_places, unsigned(ceil_div(r.n, THREADS)), THREADS, places.data(), r.n);
        const KeyedPlaces sorted = sort_places({keys.data(), places.data()}, stored, r.n, bits_up_to(r.rows));
        r.keys = sorted.keys, r.places = sorted.places;
        if (!r.adds)
            check(cudaMemset2DAsync(out, r.out_stride * sizeof(T), 0, r.features * sizeof(T), r.rows, stream_handle()),
                  "clearing sums");
        if (has_packets_ && is_aligned(data[0], bytes) && is_aligned(data[1], bytes)) sum_sorted<T, VEC>(r, data, sums.data());
        else sum_sorted<T, 1>(r, data, sums.data());
    }

private:
    DType dtype_;
    Chosen chosen_;
    int64_t padding_;
    std::vector<Piece<1>> index_;
    bool has_packets_;
    Runs runs_ = {};
};

/// For each addend where it goes, `none` where that is nowhere, and where it lies: in elements.
__global__ void __launch_bounds__(THREADS)
    find_addends(const __grid_constant__ Layout<3> layout, const char* index, const Chosen chosen, int64_t itemsize,
                 uint32_t none, uint32_t* keys, uint32_t* places, const ErrorSink sink) {
    const Places<3> at(layout);
#pragma unroll
    for (int u = 0; u < INDEX_UNROLL; ++u) {
        if (!at.is_there(u)) continue;
        int64_t k = *reinterpret_cast<const int64_t*>(index + at.offset[u][2]);
        const bool is_found = find_place(k, chosen, sink);
        const uint32_t i = at.first + u * THREADS;
        keys[i] = is_found ? uint32_t((at.offset[u][1] + k * chosen.step) / itemsize) : none;
        places[i] = uint32_t(at.offset[u][0] / itemsize);
    }
}

/// scatter_add, of operands out, index, src.
template <class T>
class SortedElements final : public Kernel {
public:
    SortedElements(const Piece<3>& piece, const Chosen& chosen, int64_t span) : piece_(piece), chosen_(chosen) {
        runs_.n = piece.layout.numel, runs_.rows = span;
        runs_.features = runs_.out_stride = runs_.src_stride = 1;
        runs_.adds = true;
        cut_into_pieces(runs_, int64_t(24) * multiprocessors() * THREADS);
    }

    void run(char* const* data, const Scalar*) const override {
        Runs r = runs_;
        const int64_t stored = ceil_div(r.n, 64) * 64;
        const Scratch<uint32_t> keys(2 * stored), places(2 * stored);
        const Scratch<computed<T>> sums(2 * r.pieces);
        launch_kernel("finding places", find_addends, index_blocks(piece_.layout.numel), THREADS, piece_.layout, data[1],
                      chosen_, int64_t(sizeof(T)), uint32_t(r.rows), keys.data(), places.data(), error_sink());
        const KeyedPlaces sorted = sort_places({keys.data(), places.data()}, stored, r.n, bits_up_to(r.rows));
        r.keys = sorted.keys, r.places = sorted.places;
        char* const operands[] = {data[0], data[2]};
        sum_sorted<T, 1>(r, operands, sums.data());
    }

private:
    Piece<3> piece_;
    Chosen chosen_;
    Runs runs_ = {};
};

}  // namespace runs
}  // namespace

KernelPtr sorted_row_sums(const RowSums& sums) {
    const int64_t n = sums.index.numel();
    if (n < 8192 || n < 8 * sums.rows || sums.features < 64) return nullptr;
    return visit_floating_device(sums.dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        return std::make_unique<runs::SortedSumsKernel<T>>(sums);
    });
}

KernelPtr sorted_element_sums(const Loops& loops, DType dtype, const Chosen& chosen, int64_t span) {
    const auto pieces = cut<3>(loops);
    if (pieces.size() != 1) return nullptr;
    return visit_floating_device(dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        return std::make_unique<runs::SortedElements<T>>(pieces[0], chosen, span);
    });
}

}  // namespace norch::indexing
