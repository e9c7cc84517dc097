// What kernels of grid_sample share: what is asked for, the neighbours of a place, and sums over lists of places.
#pragma once

#include <algorithm>

#include "indexing/cell_lists.cuh"

namespace norch::nn::sampling {

constexpr int CHANNELS = 8;  // of a thread
constexpr int OUTSIDE = -2;

/// Strides, in elements, of images, gradients and grids (n, c, *dims) or (n, *dims, c); those of dims innermost first.
struct Strides {
    int64_t n, c, step[3] = {};

    Strides(const Operand& o, bool is_grid = false) : n(o.strides[0]), c(is_grid ? o.strides.back() : o.strides[1]) {
        const size_t last = o.strides.size() - (is_grid ? 2 : 1);
        for (size_t d = 0; d + 2 < o.strides.size(); ++d) step[d] = o.strides[last - d];
    }
};

/// What is asked for: places of a grid (n, *out, D) in images (n, c, *in) of D dims, each of which is innermost first.
struct Sampling {
    int images, channels, groups, size[3] = {1, 1, 1};  // groups of CHANNELS channels
    int64_t cells = 1;  // of an image: between its elements, and before the first
    FastDivide places, out[2], by_group;
    Strides image, grid;
    bool is_nearest, align, is_zeros, is_reflected;

    Sampling(const Request& r, const Operand& x, const Operand& g)
        : images(int(x.shape[0])), channels(int(x.shape[1])), groups(int(ceil_div(channels, CHANNELS))),
          by_group(divisor(groups)), image(x), grid(g, true), is_nearest(r.attrs.text("mode") == "nearest"),
          align(r.attrs.flag("align_corners")), is_zeros(r.attrs.text("padding_mode") == "zeros"),
          is_reflected(r.attrs.text("padding_mode") == "reflection") {
        const size_t dims = x.shape.size() - 2;
        int64_t count = 1;
        for (size_t d = 0; d < dims; ++d) {
            size[d] = int(x.shape[dims + 1 - d]);
            cells *= size[d] + 1;
            count *= g.shape[dims - d];
            if (d < 2) out[d] = divisor(g.shape[dims - d]);
        }
        places = divisor(count);
    }
    static FastDivide divisor(int64_t n) { return FastDivide(uint32_t(std::max<int64_t>(n, 1))); }
    __host__ __device__ uint32_t all_places() const { return images * places.divisor; }
    /// How far place p of an image is from the first, by strides of the places.
    template <int D>
    __device__ int64_t offset(const Strides& strides, uint32_t p) const {
        const uint32_t line = out[0].quotient(p);
        const int64_t along = (p - line * out[0].divisor) * strides.step[0];
        if (D == 2) return along + line * strides.step[1];
        const uint32_t plane = out[1].quotient(line);
        return along + (line - plane * out[1].divisor) * strides.step[1] + plane * strides.step[2];
    }
};

__device__ inline float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double rounded_product(double a, double b) { return __dmul_rn(a, b); }

/// The first of the two neighbours along a dim (of "nearest" the only one), from -1 on, or OUTSIDE, where neither is in
/// the image; how far behind it the place is, and what this changes by with the grid's number.
template <class T>
struct Near {
    int first;
    T rest, slope;

    Near() = default;
    /// In the order of the decomposition, rounded as there: neighbours are to be the same.
    __device__ Near(const Sampling& s, T x, int size) {
        const T last = T(size - 1), span = s.align ? last : T(size);
        x = s.align ? rounded_product((x + T(1)) / T(2), last) : (rounded_product(x + T(1), T(size)) - T(1)) / T(2);
        slope = span / T(2);
        if (s.is_reflected) reflect(x, s.align ? T(0) : T(-0.5), span);
        if (!s.is_zeros) {
            if (!(x > T(0) && x < last)) slope = T(0);
            x = x > T(0) ? (x < last ? x : last) : T(0);
        }
        const T at = s.is_nearest ? rint(x) : floor(x);
        rest = x - at;
        first = at >= (s.is_nearest ? T(0) : T(-1)) && at <= last ? int(at) : OUTSIDE;
    }
    __device__ bool is_in(int k, int size) const { return first + k >= 0 && first + k < size; }
    __device__ T weight(int k) const { return k ? rest : T(1) - rest; }

private:
    __device__ __noinline__ void reflect(T& x, T low, T span) {  // rare, and long
        if (span == T(0)) {
            x = slope = T(0);
            return;
        }
        T away = x - low;
        if (away < T(0)) away = -away, slope = -slope;
        const T over = fmod(away, span);
        const bool is_odd = fmod(floor(away / span), T(2)) != T(0);
        if (is_odd) slope = -slope;
        x = (is_odd ? span - over : over) + low;
    }
};

/// The neighbours of place p of image n: where they lie in a channel (the first element, outside), and which of them are
/// in the image. Bit d of a neighbour's number says whether it is the second along dim d.
template <class T, int D>
struct Corners {
    static constexpr int COUNT = 1 << D;
    Near<T> near[D];
    int64_t at[COUNT];
    bool is_in[COUNT];

    __device__ Corners(const Sampling& s, const T* grid, int n, uint32_t p) {
        grid += n * s.grid.n + s.offset<D>(s.grid, p);
#pragma unroll
        for (int d = 0; d < D; ++d) near[d] = Near<T>(s, grid[d * s.grid.c], s.size[d]);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            is_in[i] = true;
            at[i] = 0;
#pragma unroll
            for (int d = 0; d < D; ++d) {
                is_in[i] = is_in[i] && near[d].is_in(i >> d & 1, s.size[d]);
                at[i] += (near[d].first + (i >> d & 1)) * s.image.step[d];
            }
            if (!is_in[i]) at[i] = 0;
        }
    }
    /// The product of the weights along all dims but one.
    __device__ T weight(int i, int but = -1) const {
        T product = T(1);
#pragma unroll
        for (int d = D - 1; d >= 0; --d)
            if (d != but) product *= near[d].weight(i >> d & 1);
        return product;
    }
};

/// Of thread f the place, the image, and its channels from `first` to before `last`.
struct Part {
    uint32_t p;
    int n, first, last;

    __device__ Part(const Sampling& s, const FastDivide& places, uint32_t f) {
        const uint32_t line = places.quotient(f);
        p = f - line * places.divisor;
        n = int(s.by_group.quotient(line));
        first = (int(line) - n * s.groups) * CHANNELS;
        last = min(first + CHANNELS, s.channels);
    }
};

// --- Sums over lists of places --------------------------------------------------------------------------------------

constexpr uint32_t LONG = 64;  // places of a list that a warp adds up together

/// add(sums, part, at, cell) for each `at` of a list. All threads of a warp come here.
template <class T, class Add>
__device__ inline void add_list(T (&sums)[CHANNELS], const Part& part, uint32_t begin, uint32_t end, uint32_t cell,
                                const Add& add) {
    const uint32_t lane = threadIdx.x % 32;
    const bool is_long = end - begin > LONG;
    if (!is_long)
        for (uint32_t at = begin; at < end; ++at) add(sums, part, at, cell);
    for (unsigned left = __ballot_sync(~0u, is_long); left; left &= left - 1) {
        const int source = __ffs(int(left)) - 1;
        Part theirs = part;
        theirs.n = __shfl_sync(~0u, part.n, source);
        theirs.first = __shfl_sync(~0u, part.first, source);
        theirs.last = __shfl_sync(~0u, part.last, source);
        const uint32_t stop = __shfl_sync(~0u, end, source), their_cell = __shfl_sync(~0u, cell, source);
        T some[CHANNELS] = {};
        for (uint32_t at = __shfl_sync(~0u, begin, source) + lane; at < stop; at += 32) add(some, theirs, at, their_cell);
#pragma unroll
        for (int c = 0; c < CHANNELS; ++c) {
#pragma unroll
            for (int step = 16; step > 0; step /= 2) some[c] += __shfl_xor_sync(~0u, some[c], step);
            if (int(lane) == source) sums[c] += some[c];
        }
    }
}

/// The sums of a part, to an output of as many elements for each channel.
template <class T>
__device__ inline void write_part(T* out, const T (&sums)[CHANNELS], const Part& part, int channels, uint32_t elements) {
    out += (int64_t(part.n) * channels + part.first) * elements + part.p;
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c)
        if (part.first + c < part.last) out[int64_t(c) * elements] = sums[c];
}

inline unsigned blocks_of(int64_t threads) { return unsigned(ceil_div(threads, THREADS)); }

}  // namespace norch::nn::sampling
