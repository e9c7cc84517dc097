// grid_sample2d_bicubic and its gradients. The gradient of the images is the same in every run: places are sorted by the
// first of their neighbours, and each element gathers from those that have it among their neighbours.
#include <algorithm>
#include <climits>

#include "nn/sampling.cuh"
#include "runtime/families.h"

namespace norch::nn {
namespace sampling {
namespace {

constexpr int TAPS = 4, NOWHERE = INT_MIN;

/// A dim of the images, its positions from -TAPS on. What is farther outside is as one of them: from behind the border on
/// all is the border, and a reflection repeats itself. Positions before 0 are the first element, also of NaN.
struct CubicLine {
    int size, period, firsts;  // period: 0 where nothing repeats; firsts: where the first neighbours may be
    bool is_zeros, align;

    CubicLine(const Sampling& s, int dim) : size(s.size[dim]), is_zeros(s.is_zeros), align(s.align) {
        period = s.is_reflected ? 2 * (align ? size - 1 : size) : 0;
        firsts = TAPS + (period ? period : size + 1);
    }
    template <class T>
    __device__ int first(T x) const {
        if (is_zeros) return x > T(-TAPS) && x < T(size) ? int(x) : NOWHERE;
        if (period) {
            x = fmod(x, T(period));
            if (x < T(0)) x += T(period);
        }
        return x > T(-TAPS) ? (period || x < T(size) ? int(x) : size) : -TAPS;
    }
    /// The element at a position, -1 for none.
    __device__ int element(int position) const {
        if (is_zeros) return position >= 0 && position < size ? position : -1;
        if (!period || position < 0) return min(max(position, 0), size - 1);
        const int at = position % period;
        return at < size ? at : mirrored(at);
    }
    /// How many positions are an element, and the i-th of them.
    __device__ int count(int element) const {
        if (is_zeros) return 1;
        const int before = element == 0 ? TAPS : 0;
        return period ? before + copies(element) + mirrored_copies(element) : 1 + before + (element + 1 == size ? TAPS : 0);
    }
    __device__ int position(int element, int i) const {
        const int own = period ? copies(element) : 1, others = period ? mirrored_copies(element) : 0;
        if (i < own) return element + i * period;
        if (i < own + others) return mirrored(element) + (i - own) * period;
        i -= own + others;
        return element == 0 && i < TAPS ? -1 - i : size + i - (element == 0 ? TAPS : 0);
    }

private:
    __device__ int mirrored(int at) const { return period - at - (align ? 0 : 1); }
    __device__ int copies(int at) const { return 1 + (period + TAPS - 2 - at) / period; }
    __device__ int mirrored_copies(int element) const {
        const int at = mirrored(element);
        return at == element || at == period ? 0 : copies(at);
    }
};

struct Cubic {
    Sampling s;
    CubicLine line[2];
    int64_t cells;  // of an image

    Cubic(const Request& r, const Operand& x, const Operand& g)
        : s(r, x, g), line{CubicLine(s, 0), CubicLine(s, 1)}, cells(int64_t(line[0].firsts) * line[1].firsts) {}
};

/// The weight of neighbour k of a place that is t behind the second (Keys, 1981, with a = -0.75), and what it changes by
/// with t.
template <class T>
__device__ inline T cubic_weight(int k, T t) {
    constexpr T a = T(-0.75);
    const T d = k == 0 ? t + T(1) : k == 1 ? t : k == 2 ? T(1) - t : T(2) - t;
    return k == 1 || k == 2 ? ((a + T(2)) * d - (a + T(3))) * d * d + T(1) : ((a * d - T(5) * a) * d + T(8) * a) * d - T(4) * a;
}
template <class T>
__device__ inline T cubic_change(int k, T t) {
    constexpr T a = T(-0.75);
    const T d = k == 0 ? t + T(1) : k == 1 ? t : k == 2 ? T(1) - t : T(2) - t;
    const T by = k == 1 || k == 2 ? (T(3) * (a + T(2)) * d - T(2) * (a + T(3))) * d
                                  : (T(3) * a * d - T(10) * a) * d + T(8) * a;
    return k < 2 ? by : -by;
}

/// Where the first neighbours of place p of image n are, and how far behind the second ones it is.
template <class T>
struct CubicPlace {
    int first[2];
    T rest[2];

    __device__ CubicPlace(const Cubic& c, const T* grid, int n, uint32_t p) {
        grid += n * c.s.grid.n + c.s.offset<2>(c.s.grid, p);
#pragma unroll
        for (int d = 0; d < 2; ++d) {  // in the order of the decomposition, rounded as there
            const T number = grid[d * c.s.grid.c], size = T(c.s.size[d]);
            const T x = c.s.align ? rounded_product((number + T(1)) / T(2), size - T(1))
                                  : (rounded_product(number + T(1), size) - T(1)) / T(2);
            const T before = floor(x);
            first[d] = c.line[d].first(before - T(1));
            rest[d] = x - before;
        }
    }
    __device__ bool is_anywhere() const { return first[0] != NOWHERE && first[1] != NOWHERE; }
};

/// The neighbours of a place: how far the element at each row and column of theirs is from the channel's first, -1 for
/// none.
template <class T>
struct CubicTaps {
    int at[2][TAPS];

    __device__ CubicTaps(const Cubic& c, const CubicPlace<T>& place) {
#pragma unroll
        for (int d = 0; d < 2; ++d)
#pragma unroll
            for (int k = 0; k < TAPS; ++k) {
                const int element = place.is_anywhere() ? c.line[d].element(place.first[d] + k) : -1;
                at[d][k] = element < 0 ? -1 : element * int(c.s.image.step[d]);
            }
    }
    /// Calls f(row, column, the element).
    template <class F>
    __device__ void each(const T* channel, const F& f) const {
        T x[TAPS * TAPS];
#pragma unroll
        for (int i = 0; i < TAPS * TAPS; ++i) {
            const int row = at[1][i / TAPS], column = at[0][i % TAPS];
            x[i] = row < 0 || column < 0 ? T(0) : channel[row + column];
        }
#pragma unroll
        for (int i = 0; i < TAPS * TAPS; ++i) f(i / TAPS, i % TAPS, x[i]);
    }
};

template <class T>
__global__ void __launch_bounds__(THREADS) cubic_kernel(const __grid_constant__ Cubic c, uint32_t threads, T* out,
                                                        const T* image, const T* grid) {
    const uint32_t f = blockIdx.x * THREADS + threadIdx.x;
    if (f >= threads) return;
    const Part part(c.s, c.s.places, f);
    const CubicPlace<T> place(c, grid, part.n, part.p);
    const CubicTaps<T> taps(c, place);
    T weight[2][TAPS];
#pragma unroll
    for (int d = 0; d < 2; ++d)
#pragma unroll
        for (int k = 0; k < TAPS; ++k) weight[d][k] = taps.at[d][k] < 0 ? T(0) : cubic_weight(k, place.rest[d]);
    out += (int64_t(part.n) * c.s.channels + part.first) * c.s.places.divisor + part.p;
    image += part.n * c.s.image.n + part.first * c.s.image.c;
#pragma unroll 1
    for (int i = part.first; i < part.last; ++i, image += c.s.image.c, out += c.s.places.divisor) {
        T rows[TAPS] = {}, sum = T(0);
        taps.each(image, [&](int k, int j, T x) { rows[k] += x * weight[0][j]; });
#pragma unroll
        for (int k = 0; k < TAPS; ++k) sum += rows[k] * weight[1][k];
        *out = sum;
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS) cubic_grid_grad(const __grid_constant__ Cubic c,
                                                           const __grid_constant__ Strides strides, T* out, const T* grad,
                                                           const T* image, const T* grid) {
    const uint32_t f = blockIdx.x * THREADS + threadIdx.x;
    if (f >= c.s.all_places()) return;
    const int n = int(c.s.places.quotient(f));
    const uint32_t p = f - n * c.s.places.divisor;
    const CubicPlace<T> place(c, grid, n, p);
    const CubicTaps<T> taps(c, place);
    grad += n * strides.n + c.s.offset<2>(strides, p);
    image += n * c.s.image.n;
    T sums[TAPS][TAPS] = {};
#pragma unroll 1
    for (int i = 0; i < c.s.channels; ++i, grad += strides.c, image += c.s.image.c) {
        const T g = *grad;
        taps.each(image, [&](int k, int j, T x) { sums[k][j] += g * x; });
    }
    T by[2] = {};
#pragma unroll
    for (int k = 0; k < TAPS; ++k)
#pragma unroll
        for (int j = 0; j < TAPS; ++j) {
            if (taps.at[1][k] < 0 || taps.at[0][j] < 0) continue;
            by[0] += sums[k][j] * cubic_weight(k, place.rest[1]) * cubic_change(j, place.rest[0]);
            by[1] += sums[k][j] * cubic_change(k, place.rest[1]) * cubic_weight(j, place.rest[0]);
        }
#pragma unroll
    for (int d = 0; d < 2; ++d) out[2 * int64_t(f) + d] = by[d] * (T(c.s.align ? c.s.size[d] - 1 : c.s.size[d]) / T(2));
}

// --- The gradient of the images -------------------------------------------------------------------------------------

/// The cell of each place, which is where its first neighbours are; places outside are in a last one of their own.
template <class T>
__global__ void __launch_bounds__(THREADS) find_cubic_cells(const __grid_constant__ Cubic c, const T* grid,
                                                            uint32_t* cells, uint32_t* places) {
    const uint32_t f = blockIdx.x * THREADS + threadIdx.x;
    if (f >= c.s.all_places()) return;
    const int n = int(c.s.places.quotient(f));
    const CubicPlace<T> place(c, grid, n, f - n * c.s.places.divisor);
    int64_t cell = c.s.images * c.cells;
    if (place.is_anywhere())
        cell = (int64_t(n) * c.line[1].firsts + place.first[1] + TAPS) * c.line[0].firsts + place.first[0] + TAPS;
    cells[f] = uint32_t(cell);
    places[f] = f;
}

/// The places of each cell lie from `begin` to before `end`; `cells` and `rests` are theirs, in the same order.
template <class T>
struct CubicLists {
    uint32_t *begin, *end;
    const uint32_t *cells, *places;
    T* rests;  // two for each place
};

template <class T>
__global__ void __launch_bounds__(THREADS) list_cubic_cells(const __grid_constant__ Cubic c, const T* grid,
                                                            const CubicLists<T> lists) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x, count = c.s.all_places();
    if (i >= count) return;
    indexing::note_edges(lists.cells, i, count, lists.begin, lists.end);
    const uint32_t f = lists.places[i];
    const int n = int(c.s.places.quotient(f));
    const CubicPlace<T> place(c, grid, n, f - n * c.s.places.divisor);
#pragma unroll
    for (int d = 0; d < 2; ++d) lists.rests[2 * int64_t(i) + d] = place.rest[d];
}

/// A thread for CHANNELS channels of an element of the images. The four cells in a row that have an element among their
/// places' neighbours lie side by side.
template <class T>
__global__ void __launch_bounds__(THREADS)
    gather_cubic(const __grid_constant__ Cubic c, const __grid_constant__ FastDivide elements, uint32_t threads,
                 const __grid_constant__ Strides strides, T* out, const T* grad, const CubicLists<T> lists) {
    const uint32_t f = blockIdx.x * THREADS + threadIdx.x;
    const Part part(c.s, elements, min(f, threads - 1));  // warps stay together
    const int y = int(part.p) / c.s.size[0], x = int(part.p) - y * c.s.size[0];
    const int along = c.line[0].count(x), count = along * c.line[1].count(y);
    T sums[CHANNELS] = {};
    /// `last`: the cell whose first neighbour the element is; k: in which of the neighbours' rows it lies.
    auto add = [&](T(&to)[CHANNELS], const Part& part, uint32_t at, int k, uint32_t last) {
        const uint32_t p = lists.places[at] - part.n * c.s.places.divisor;
        const T weight = cubic_weight(k, lists.rests[2 * int64_t(at) + 1]) *
                         cubic_weight(int(last - lists.cells[at]), lists.rests[2 * int64_t(at)]);
        const T* from = grad + part.n * strides.n + part.first * strides.c + c.s.offset<2>(strides, p);
#pragma unroll
        for (int i = 0; i < CHANNELS; ++i)
            if (part.first + i < part.last) to[i] += from[i * strides.c] * weight;
    };
#pragma unroll 1
    for (int a = 0; __any_sync(~0u, a < count); ++a) {
        const int position_y = a < count ? c.line[1].position(y, a / along) : 0;
        const int column = (a < count ? c.line[0].position(x, a % along) : 0) + TAPS;
#pragma unroll 1
        for (int k = 0; k < TAPS; ++k) {
            const int row = position_y + TAPS - k;
            const int64_t last = (int64_t(part.n) * c.line[1].firsts + row) * c.line[0].firsts + column;
            uint32_t begin = 0, end = 0;
            if (a < count && row >= 0 && row < c.line[1].firsts)
#pragma unroll
                for (int j = TAPS - 1; j >= 0; --j) {
                    if (column < j || column - j >= c.line[0].firsts) continue;
                    const uint32_t first = lists.begin[last - j], stop = lists.end[last - j];
                    if (first == stop) continue;
                    if (begin == end) begin = first;
                    end = stop;
                }
            const auto of_row = [&](T(&to)[CHANNELS], const Part& part, uint32_t at, uint32_t last) {
                add(to, part, at, k, last);
            };
            add_list(sums, part, begin, end, uint32_t(last), of_row);
        }
    }
    if (f < threads) write_part(out, sums, part, c.s.channels, elements.divisor);
}

// --- Kernels --------------------------------------------------------------------------------------------------------

constexpr int64_t CUBIC_LIMIT = (int64_t(1) << 31) - THREADS;

template <class T>
KernelPtr cubic_sample(const Request& r, const Cubic& c) {
    const int64_t threads = int64_t(c.s.images) * c.s.groups * c.s.places.divisor;
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        launch_kernel("grid_sample", cubic_kernel<T>, blocks_of(threads), THREADS, c, uint32_t(threads),
                      reinterpret_cast<T*>(data[0]), reinterpret_cast<const T*>(data[1]),
                      reinterpret_cast<const T*>(data[2]));
    });
}

template <class T>
KernelPtr cubic_grid(const Request& r, const Cubic& c) {
    const Strides strides(r.operands[1]);
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        launch_kernel("grid_sample's gradient", cubic_grid_grad<T>, blocks_of(c.s.all_places()), THREADS, c, strides,
                      reinterpret_cast<T*>(data[0]), reinterpret_cast<const T*>(data[1]),
                      reinterpret_cast<const T*>(data[2]), reinterpret_cast<const T*>(data[3]));
    });
}

template <class T>
KernelPtr cubic_input(const Request& r, const Cubic& c) {
    const Strides strides(r.operands[1]);
    const FastDivide elements(uint32_t(c.s.size[0] * c.s.size[1]));
    const int64_t places = c.s.all_places(), cells = c.s.images * c.cells + 1;
    const int64_t threads = int64_t(c.s.images) * c.s.groups * elements.divisor;
    if (cells > CUBIC_LIMIT) return nullptr;
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        const T *const grad = reinterpret_cast<const T*>(data[1]), *const grid = reinterpret_cast<const T*>(data[2]);
        const indexing::CellLists found(places, cells);
        const Scratch<T> rests(2 * found.stored());
        launch_kernel("grid_sample's gradient", find_cubic_cells<T>, blocks_of(places), THREADS, c, grid, found.cells(),
                      found.places());
        const indexing::KeyedPlaces sorted = found.sort();
        const CubicLists<T> lists{found.begin(), found.end(), sorted.keys, sorted.places, rests.data()};
        launch_kernel("grid_sample's gradient", list_cubic_cells<T>, blocks_of(places), THREADS, c, grid, lists);
        launch_kernel("grid_sample's gradient", gather_cubic<T>, blocks_of(threads), THREADS, c, elements,
                      uint32_t(threads), strides, reinterpret_cast<T*>(data[0]), grad, lists);
    });
}

/// `image`, `grid`: which operands these are.
template <class F>
KernelPtr cubic(const Request& r, size_t image, size_t grid, const F& make) {
    const Operand &out = r.operands[0], &x = r.operands[image], &g = r.operands[grid];
    for (const Operand& operand : r.operands)
        if (operand.dtype != out.dtype || operand.numel() > CUBIC_LIMIT) return nullptr;
    if (!out.is_contiguous() || g.numel() / 2 * ceil_div(x.shape[1], CHANNELS) > CUBIC_LIMIT) return nullptr;
    if ((x.shape[2] - 1) * x.strides[2] + (x.shape[3] - 1) * x.strides[3] > CUBIC_LIMIT) return nullptr;
    if (out.numel() == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    if (g.numel() == 0) return nullptr;
    const Cubic c(r, x, g);
    if (out.dtype == DType::f32) return make(float(), c);
    return out.dtype == DType::f64 ? make(double(), c) : nullptr;
}

}  // namespace
}  // namespace sampling

void add_cubic_sampling(Registry& registry) {
    registry["grid_sample2d_bicubic"] = [](const Request& r) {
        return sampling::cubic(r, 1, 2, [&]<class T>(T, const sampling::Cubic& c) { return sampling::cubic_sample<T>(r, c); });
    };
    registry["grid_sample2d_bicubic_input_grad"] = [](const Request& r) {
        return sampling::cubic(r, 0, 2, [&]<class T>(T, const sampling::Cubic& c) { return sampling::cubic_input<T>(r, c); });
    };
    registry["grid_sample2d_bicubic_grid_grad"] = [](const Request& r) {
        return sampling::cubic(r, 2, 3, [&]<class T>(T, const sampling::Cubic& c) { return sampling::cubic_grid<T>(r, c); });
    };
}

}  // namespace norch::nn
