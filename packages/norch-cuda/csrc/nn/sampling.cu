// grid_sample2d and its gradients. The gradient of the images is the same in every run: the places of the grid are sorted
// by the cell between four elements in which they lie, once for all channels, and each element gathers from its four cells.
#include <algorithm>

#include "indexing/sorting.h"
#include "runtime/allocator.h"
#include "runtime/device.cuh"
#include "runtime/families.h"

namespace norch::nn {
namespace {
namespace sampling {

constexpr int CHANNELS = 8;  // of a thread
constexpr int OUTSIDE = -2;

/// What is asked for: places of a grid (n, rows, columns, 2) in images (n, c, h, w). Strides count elements.
struct Sampling {
    int images, channels, h, w, groups;  // of CHANNELS channels
    FastDivide places, columns, by_group;
    int64_t image[4], grid[4];
    bool is_nearest, align, is_zeros, is_reflected;

    Sampling(const Request& r, const Operand& x, const Operand& g)
        : images(int(x.shape[0])), channels(int(x.shape[1])), h(int(x.shape[2])), w(int(x.shape[3])),
          groups(int(ceil_div(channels, CHANNELS))), places(divisor(g.shape[1] * g.shape[2])), columns(divisor(g.shape[2])),
          by_group(divisor(groups)), is_nearest(r.attrs.text("mode") == "nearest"), align(r.attrs.flag("align_corners")),
          is_zeros(r.attrs.text("padding_mode") == "zeros"), is_reflected(r.attrs.text("padding_mode") == "reflection") {
        for (size_t d = 0; d < 4; ++d) image[d] = x.strides[d], grid[d] = g.strides[d];
    }
    static FastDivide divisor(int64_t n) { return FastDivide(uint32_t(std::max<int64_t>(n, 1))); }
    /// Of an image: between its elements, and before the first.
    __host__ __device__ int64_t cells() const { return int64_t(h + 1) * (w + 1); }
    __host__ __device__ uint32_t all_places() const { return images * places.divisor; }
};

__device__ inline float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double rounded_product(double a, double b) { return __dmul_rn(a, b); }

/// The first of the two neighbours along a dim (of "nearest" the only one), from -1 on, or OUTSIDE, where neither is in
/// the image; how far behind it the place is, and what this changes by with the grid's number.
template <class T>
struct Near {
    int first;
    T rest, slope;

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
    __device__ void reflect(T& x, T low, T span) {
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

/// The neighbours of place p of image n: where they lie in a plane (the first element, outside) and their weights.
template <class T>
struct Corners {
    Near<T> x, y;
    int64_t at[4];
    bool is_in[4];

    __device__ Corners(const Sampling& s, const T* numbers, int n, uint32_t p) : Corners(s, numbers_of(s, numbers, n, p), 0) {}
    __device__ T weight(int i) const { return y.weight(i / 2) * x.weight(i % 2); }

private:
    struct Numbers {
        T x, y;
    };
    __device__ static Numbers numbers_of(const Sampling& s, const T* grid, int n, uint32_t p) {
        const uint32_t row = s.columns.quotient(p), column = p - row * s.columns.divisor;
        grid += n * s.grid[0] + row * s.grid[1] + column * s.grid[2];
        return {grid[0], grid[s.grid[3]]};
    }
    __device__ Corners(const Sampling& s, Numbers given, int) : x(s, given.x, s.w), y(s, given.y, s.h) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            is_in[i] = y.is_in(i / 2, s.h) && x.is_in(i % 2, s.w);
            at[i] = is_in[i] ? (y.first + i / 2) * s.image[2] + (x.first + i % 2) * s.image[3] : 0;
        }
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

template <class T>
__global__ void __launch_bounds__(THREADS) sample_kernel(const __grid_constant__ Sampling s, uint32_t threads, T* out,
                                                         const T* image, const T* grid) {
    const uint32_t f = blockIdx.x * THREADS + threadIdx.x;
    if (f >= threads) return;
    const Part part(s, s.places, f);
    const Corners<T> corners(s, grid, part.n, part.p);
    out += (int64_t(part.n) * s.channels + part.first) * s.places.divisor + part.p;
    image += part.n * s.image[0] + part.first * s.image[1];
    if (s.is_nearest) {
#pragma unroll 4
        for (int c = part.first; c < part.last; ++c, image += s.image[1], out += s.places.divisor)
            *out = corners.is_in[0] ? image[corners.at[0]] : T(0);
        return;
    }
    T weight[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) weight[i] = corners.weight(i);
#pragma unroll 4
    for (int c = part.first; c < part.last; ++c, image += s.image[1], out += s.places.divisor) {
        T x[4], sum = T(0);
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = image[corners.at[i]];
#pragma unroll
        for (int i = 0; i < 4; ++i) sum += (corners.is_in[i] ? x[i] : T(0)) * (corners.is_in[i] ? weight[i] : T(0));
        *out = sum;
    }
}

/// Strides of a gradient of the samples (n, c, rows, columns).
struct Strides {
    int64_t n, c, row, column;

    explicit Strides(const Operand& o) : n(o.strides[0]), c(o.strides[1]), row(o.strides[2]), column(o.strides[3]) {}
    __device__ int64_t place(const Sampling& s, uint32_t p) const {
        const uint32_t line = s.columns.quotient(p);
        return line * row + (p - line * s.columns.divisor) * column;
    }
};

template <class T>
__global__ void __launch_bounds__(THREADS) grid_grad_kernel(const __grid_constant__ Sampling s, const Strides strides,
                                                            T* out, const T* grad, const T* image, const T* grid) {
    const uint32_t f = blockIdx.x * THREADS + threadIdx.x;
    if (f >= s.all_places()) return;
    const int n = int(s.places.quotient(f));
    const uint32_t p = f - n * s.places.divisor;
    T by_x = T(0), by_y = T(0);
    if (!s.is_nearest) {
        const Corners<T> corners(s, grid, n, p);
        grad += n * strides.n + strides.place(s, p);
        image += n * s.image[0];
        T sums[4] = {};
#pragma unroll 4
        for (int c = 0; c < s.channels; ++c, grad += strides.c, image += s.image[1]) {
            const T g = *grad;
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[i] += g * image[corners.at[i]];
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (!corners.is_in[i]) continue;
            by_x += sums[i] * (corners.y.weight(i / 2) * (i % 2 ? corners.x.slope : -corners.x.slope));
            by_y += sums[i] * (corners.x.weight(i % 2) * (i / 2 ? corners.y.slope : -corners.y.slope));
        }
    }
    out[2 * int64_t(f)] = by_x, out[2 * int64_t(f) + 1] = by_y;
}

// --- The gradient of the images -------------------------------------------------------------------------------------

/// The cell of each place, of all images; places outside are in a last one of their own.
template <class T>
__global__ void __launch_bounds__(THREADS) find_cells(const __grid_constant__ Sampling s, const T* grid, uint32_t* cells,
                                                      uint32_t* places) {
    const uint32_t f = blockIdx.x * THREADS + threadIdx.x;
    if (f >= s.all_places()) return;
    const int n = int(s.places.quotient(f));
    const Corners<T> corners(s, grid, n, f - n * s.places.divisor);
    const bool is_outside = corners.x.first == OUTSIDE || corners.y.first == OUTSIDE;
    cells[f] = uint32_t(is_outside ? s.images * s.cells()
                                   : n * s.cells() + (corners.y.first + 1) * (s.w + 1) + corners.x.first + 1);
    places[f] = f;
}

/// The places of each cell lie from `begin` to before `end`; `rest` is how far behind the first neighbours they are.
template <class T>
struct Lists {
    uint32_t *begin, *end, *places;
    Packet<T, 2>* rest;
};

template <class T>
__global__ void __launch_bounds__(THREADS) list_cells(const __grid_constant__ Sampling s, const T* grid,
                                                      const uint32_t* cells, const Lists<T> lists) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x, count = s.all_places();
    if (i >= count) return;
    const uint32_t cell = cells[i], f = lists.places[i];
    if (i == 0 || cells[i - 1] != cell) lists.begin[cell] = i;
    if (i + 1 == count || cells[i + 1] != cell) lists.end[cell] = i + 1;
    const int n = int(s.places.quotient(f));
    const Corners<T> corners(s, grid, n, f - n * s.places.divisor);
    lists.rest[i] = {{corners.x.rest, corners.y.rest}};
}

constexpr uint32_t LONG = 64;  // places of a cell that a warp adds up together

/// A thread for CHANNELS channels of an element of the images.
template <class T>
__global__ void __launch_bounds__(THREADS)
    gather_kernel(const __grid_constant__ Sampling s, const __grid_constant__ FastDivide elements, uint32_t threads,
                  const Strides strides, T* out, const T* grad, const Lists<T> lists) {
    const uint32_t f = blockIdx.x * THREADS + threadIdx.x, lane = threadIdx.x % 32;
    const Part part(s, elements, min(f, threads - 1));  // warps stay together
    const int y = int(part.p) / s.w, x = int(part.p) - y * s.w;
    T sums[CHANNELS] = {};
    auto add = [&](T(&to)[CHANNELS], const Part& part, uint32_t at, int corner) {
        const uint32_t p = lists.places[at] - part.n * s.places.divisor;
        const Packet<T, 2> rest = lists.rest[at];
        const T by_x = corner % 2 ? rest.v[0] : T(1) - rest.v[0], by_y = corner / 2 ? rest.v[1] : T(1) - rest.v[1];
        const T weight = s.is_nearest ? T(1) : by_y * by_x;
        const T* from = grad + part.n * strides.n + part.first * strides.c + strides.place(s, p);
#pragma unroll
        for (int c = 0; c < CHANNELS; ++c)
            if (part.first + c < part.last) to[c] += from[c * strides.c] * weight;
    };
    uint32_t begin[4], end[4];
    const int corners = s.is_nearest ? 1 : 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int64_t cell = part.n * s.cells() + (y + 1 - i / 2) * (s.w + 1) + x + 1 - i % 2;
        begin[i] = i < corners ? lists.begin[cell] : 0;
        end[i] = i < corners ? lists.end[cell] : 0;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const bool is_long = end[i] - begin[i] > LONG;
        if (!is_long)
            for (uint32_t at = begin[i]; at < end[i]; ++at) add(sums, part, at, i);
        for (unsigned left = __ballot_sync(~0u, is_long); left; left &= left - 1) {
            const int source = __ffs(int(left)) - 1;
            Part theirs = part;
            theirs.n = __shfl_sync(~0u, part.n, source);
            theirs.first = __shfl_sync(~0u, part.first, source);
            theirs.last = __shfl_sync(~0u, part.last, source);
            const uint32_t stop = __shfl_sync(~0u, end[i], source);
            T some[CHANNELS] = {};
            for (uint32_t at = __shfl_sync(~0u, begin[i], source) + lane; at < stop; at += 32) add(some, theirs, at, i);
#pragma unroll
            for (int c = 0; c < CHANNELS; ++c) {
#pragma unroll
                for (int step = 16; step > 0; step /= 2) some[c] += __shfl_xor_sync(~0u, some[c], step);
                if (int(lane) == source) sums[c] += some[c];
            }
        }
    }
    if (f >= threads) return;
    out += (int64_t(part.n) * s.channels + part.first) * elements.divisor + part.p;
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c)
        if (part.first + c < part.last) out[int64_t(c) * elements.divisor] = sums[c];
}

// --- Kernels --------------------------------------------------------------------------------------------------------

unsigned blocks_of(int64_t threads) { return unsigned(ceil_div(threads, THREADS)); }

template <class T>
KernelPtr sample(const Request& r) {
    const Sampling s(r, r.operands[1], r.operands[2]);
    const int64_t threads = int64_t(s.images) * s.groups * s.places.divisor;
    if (r.operands[0].numel() == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        launch_kernel("grid_sample", sample_kernel<T>, blocks_of(threads), THREADS, s, uint32_t(threads),
                      reinterpret_cast<T*>(data[0]), reinterpret_cast<const T*>(data[1]),
                      reinterpret_cast<const T*>(data[2]));
    });
}

template <class T>
KernelPtr grid_grad(const Request& r) {
    const Operand& grid = r.operands[0];
    const Sampling s(r, r.operands[2], r.operands[3]);
    const Strides strides(r.operands[1]);
    if (grid.numel() == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        launch_kernel("grid_sample's gradient", grid_grad_kernel<T>, blocks_of(s.all_places()), THREADS, s, strides,
                      reinterpret_cast<T*>(data[0]), reinterpret_cast<const T*>(data[1]),
                      reinterpret_cast<const T*>(data[2]), reinterpret_cast<const T*>(data[3]));
    });
}

template <class T>
KernelPtr input_grad(const Request& r) {
    const Operand& out = r.operands[0];
    const int64_t places = r.operands[2].numel() / 2, numel = out.numel();
    if (numel == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    if (places == 0) return nullptr;
    const Sampling s(r, out, r.operands[2]);
    const Strides strides(r.operands[1]);
    const FastDivide elements(uint32_t(s.h * s.w));
    const int64_t cells = s.images * s.cells() + 1, threads = int64_t(s.images) * s.groups * elements.divisor;
    int bits = 0;
    while ((int64_t(1) << bits) < cells) ++bits;
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        const T *const grad = reinterpret_cast<const T*>(data[1]), *const grid = reinterpret_cast<const T*>(data[2]);
        const int64_t stored = ceil_div(places, 64) * 64;
        const Scratch<uint32_t> keys(2 * stored), order(2 * stored), edges(2 * cells);
        const Scratch<Packet<T, 2>> rest(stored);
        launch_kernel("grid_sample's gradient", find_cells<T>, blocks_of(places), THREADS, s, grid, keys.data(), order.data());
        const indexing::KeyedPlaces sorted = indexing::sort_places({keys.data(), order.data()}, stored, places, bits);
        check(cudaMemsetAsync(edges.data(), 0, 2 * cells * sizeof(uint32_t), stream_handle()), "clearing lists");
        const Lists<T> lists{edges.data(), edges.data() + cells, sorted.places, rest.data()};
        launch_kernel("grid_sample's gradient", list_cells<T>, blocks_of(places), THREADS, s, grid, sorted.keys, lists);
        launch_kernel("grid_sample's gradient", gather_kernel<T>, blocks_of(threads), THREADS, s, elements,
                      uint32_t(threads), strides, reinterpret_cast<T*>(data[0]), grad, lists);
    });
}

/// `image`, `grid`: which operands these are.
template <class F>
KernelPtr floating(const Request& r, size_t image, size_t grid, const F& make) {
    constexpr int64_t LIMIT = (int64_t(1) << 31) - THREADS;
    const Operand &out = r.operands[0], &x = r.operands[image];
    for (const Operand& operand : r.operands)
        if (operand.dtype != out.dtype || operand.numel() > LIMIT) return nullptr;
    const int64_t images = x.shape[0], h = x.shape[2], w = x.shape[3];
    if (!out.is_contiguous() || images * (h + 1) * (w + 1) > LIMIT) return nullptr;
    if (images * r.operands[grid].shape[1] * r.operands[grid].shape[2] > LIMIT) return nullptr;
    if (out.dtype == DType::f32) return make(float());
    return out.dtype == DType::f64 ? make(double()) : nullptr;
}

}  // namespace sampling
}  // namespace

void add_sampling(Registry& registry) {
    registry["grid_sample2d"] = [](const Request& r) {
        return sampling::floating(r, 1, 2, [&]<class T>(T) { return sampling::sample<T>(r); });
    };
    registry["grid_sample2d_input_grad"] = [](const Request& r) {
        return sampling::floating(r, 0, 2, [&]<class T>(T) { return sampling::input_grad<T>(r); });
    };
    registry["grid_sample2d_grid_grad"] = [](const Request& r) {
        return sampling::floating(r, 2, 3, [&]<class T>(T) { return sampling::grid_grad<T>(r); });
    };
}

}  // namespace norch::nn
