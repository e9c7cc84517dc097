// grid_sample2d, grid_sample3d and their gradients. The gradient of the images is the same in every run: the places of the
// grid are sorted by the cell between elements in which they lie, once for all channels, and each element gathers from the
// cells around it.
#include <algorithm>

#include "nn/sampling.cuh"
#include "runtime/families.h"

namespace norch::nn {
namespace sampling {
namespace {

template <class T, int D>
__global__ void __launch_bounds__(THREADS) sample_kernel(const __grid_constant__ Sampling s, uint32_t threads, T* out,
                                                         const T* image, const T* grid) {
    constexpr int COUNT = 1 << D;
    const uint32_t f = blockIdx.x * THREADS + threadIdx.x;
    if (f >= threads) return;
    const Part part(s, s.places, f);
    const Corners<T, D> corners(s, grid, part.n, part.p);
    out += (int64_t(part.n) * s.channels + part.first) * s.places.divisor + part.p;
    image += part.n * s.image.n + part.first * s.image.c;
    if (s.is_nearest) {
#pragma unroll (16 >> D)
        for (int c = part.first; c < part.last; ++c, image += s.image.c, out += s.places.divisor)
            *out = corners.is_in[0] ? image[corners.at[0]] : T(0);
        return;
    }
    T weight[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) weight[i] = corners.is_in[i] ? corners.weight(i) : T(0);
#pragma unroll (16 >> D)
    for (int c = part.first; c < part.last; ++c, image += s.image.c, out += s.places.divisor) {
        T x[COUNT], sum = T(0);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) x[i] = image[corners.at[i]];
#pragma unroll
        for (int i = 0; i < COUNT; ++i) sum += (corners.is_in[i] ? x[i] : T(0)) * weight[i];
        *out = sum;
    }
}

template <class T, int D>
__global__ void __launch_bounds__(THREADS) grid_grad_kernel(const __grid_constant__ Sampling s,
                                                            const __grid_constant__ Strides strides, T* out, const T* grad,
                                                            const T* image, const T* grid) {
    constexpr int COUNT = 1 << D;
    const uint32_t f = blockIdx.x * THREADS + threadIdx.x;
    if (f >= s.all_places()) return;
    const int n = int(s.places.quotient(f));
    const uint32_t p = f - n * s.places.divisor;
    T by[D] = {};
    if (!s.is_nearest) {
        const Corners<T, D> corners(s, grid, n, p);
        grad += n * strides.n + s.offset<D>(strides, p);
        image += n * s.image.n;
        T sums[COUNT] = {};
#pragma unroll (16 >> D)
        for (int c = 0; c < s.channels; ++c, grad += strides.c, image += s.image.c) {
            const T g = *grad;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) sums[i] += g * image[corners.at[i]];
        }
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            if (!corners.is_in[i]) continue;
#pragma unroll
            for (int d = 0; d < D; ++d) {
                const T slope = corners.near[d].slope;
                by[d] += sums[i] * (corners.weight(i, d) * (i >> d & 1 ? slope : -slope));
            }
        }
    }
#pragma unroll
    for (int d = 0; d < D; ++d) out[D * int64_t(f) + d] = by[d];
}

// --- The gradient of the images -------------------------------------------------------------------------------------

/// The cell of each place, of all images; places outside are in a last one of their own.
template <class T, int D>
__global__ void __launch_bounds__(THREADS) find_cells(const __grid_constant__ Sampling s, const T* grid, uint32_t* cells,
                                                      uint32_t* places) {
    const uint32_t f = blockIdx.x * THREADS + threadIdx.x;
    if (f >= s.all_places()) return;
    const int n = int(s.places.quotient(f));
    const Corners<T, D> corners(s, grid, n, f - n * s.places.divisor);
    int64_t cell = n;
    bool is_outside = false;
#pragma unroll
    for (int d = D - 1; d >= 0; --d) {
        is_outside = is_outside || corners.near[d].first == OUTSIDE;
        cell = cell * (s.size[d] + 1) + corners.near[d].first + 1;
    }
    cells[f] = uint32_t(is_outside ? s.images * s.cells : cell);
    places[f] = f;
}

/// The places of each cell lie from `begin` to before `end`; `rests` is how far behind the first neighbours they are.
template <class T, int D>
struct Lists {
    struct Rest {
        T along[D];
    };
    uint32_t *begin, *end, *places;
    Rest* rests;
};

template <class T, int D>
__global__ void __launch_bounds__(THREADS) list_cells(const __grid_constant__ Sampling s, const T* grid,
                                                      const uint32_t* cells, const Lists<T, D> lists) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x, count = s.all_places();
    if (i >= count) return;
    indexing::note_edges(cells, i, count, lists.begin, lists.end);
    const uint32_t f = lists.places[i];
    const int n = int(s.places.quotient(f));
    const Corners<T, D> corners(s, grid, n, f - n * s.places.divisor);
    typename Lists<T, D>::Rest rest;
#pragma unroll
    for (int d = 0; d < D; ++d) rest.along[d] = corners.near[d].rest;
    lists.rests[i] = rest;
}

/// A thread for CHANNELS channels of an element of the images.
template <class T, int D>
__global__ void __launch_bounds__(THREADS)
    gather_kernel(const __grid_constant__ Sampling s, const __grid_constant__ FastDivide elements, uint32_t threads,
                  const __grid_constant__ Strides strides, T* out, const T* grad, const Lists<T, D> lists) {
    constexpr int COUNT = 1 << D;
    const uint32_t f = blockIdx.x * THREADS + threadIdx.x;
    const Part part(s, elements, min(f, threads - 1));  // warps stay together
    T sums[CHANNELS] = {};
    auto add = [&](T(&to)[CHANNELS], const Part& part, uint32_t at, uint32_t corner) {
        const uint32_t p = lists.places[at] - part.n * s.places.divisor;
        const auto rest = lists.rests[at];
        T weight = T(1);
#pragma unroll
        for (int d = D - 1; d >= 0; --d) weight *= corner >> d & 1 ? rest.along[d] : T(1) - rest.along[d];
        if (s.is_nearest) weight = T(1);
        const T* from = grad + part.n * strides.n + part.first * strides.c + s.offset<D>(strides, p);
#pragma unroll
        for (int c = 0; c < CHANNELS; ++c)
            if (part.first + c < part.last) to[c] += from[c * strides.c] * weight;
    };
    // The cell whose first neighbour the element is, and those where it is the second along some dims.
    int64_t cell = 0, scale = 1, steps[D];
    int rest = int(part.p);
#pragma unroll
    for (int d = 0; d < D; ++d) {
        const int place = d + 1 == D ? rest : rest % s.size[d];
        cell += (place + 1) * scale;
        steps[d] = scale;
        scale *= s.size[d] + 1;
        rest /= s.size[d];
    }
    cell += part.n * s.cells;
#pragma unroll 1
    for (int i = 0; i < (s.is_nearest ? 1 : COUNT); ++i) {
        int64_t at = cell;
#pragma unroll
        for (int d = 0; d < D; ++d) at -= (i >> d & 1) * steps[d];
        add_list(sums, part, lists.begin[at], lists.end[at], uint32_t(i), add);
    }
    if (f < threads) write_part(out, sums, part, s.channels, elements.divisor);
}

// --- Kernels --------------------------------------------------------------------------------------------------------

template <class T, int D>
KernelPtr sample(const Request& r) {
    const Sampling s(r, r.operands[1], r.operands[2]);
    const int64_t threads = int64_t(s.images) * s.groups * s.places.divisor;
    if (r.operands[0].numel() == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        launch_kernel("grid_sample", sample_kernel<T, D>, blocks_of(threads), THREADS, s, uint32_t(threads),
                      reinterpret_cast<T*>(data[0]), reinterpret_cast<const T*>(data[1]),
                      reinterpret_cast<const T*>(data[2]));
    });
}

template <class T, int D>
KernelPtr grid_grad(const Request& r) {
    const Operand& grid = r.operands[0];
    const Sampling s(r, r.operands[2], r.operands[3]);
    const Strides strides(r.operands[1]);
    if (grid.numel() == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        launch_kernel("grid_sample's gradient", grid_grad_kernel<T, D>, blocks_of(s.all_places()), THREADS, s, strides,
                      reinterpret_cast<T*>(data[0]), reinterpret_cast<const T*>(data[1]),
                      reinterpret_cast<const T*>(data[2]), reinterpret_cast<const T*>(data[3]));
    });
}

template <class T, int D>
KernelPtr input_grad(const Request& r) {
    const Operand& out = r.operands[0];
    const int64_t places = r.operands[2].numel() / D, numel = out.numel();
    if (numel == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    if (places == 0) return nullptr;
    const Sampling s(r, out, r.operands[2]);
    const Strides strides(r.operands[1]);
    const FastDivide elements(uint32_t(s.size[0] * s.size[1] * s.size[2]));
    const int64_t cells = s.images * s.cells + 1, threads = int64_t(s.images) * s.groups * elements.divisor;
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        const T *const grad = reinterpret_cast<const T*>(data[1]), *const grid = reinterpret_cast<const T*>(data[2]);
        const indexing::CellLists found(places, cells);
        const Scratch<typename Lists<T, D>::Rest> rests(found.stored());
        launch_kernel("grid_sample's gradient", find_cells<T, D>, blocks_of(places), THREADS, s, grid, found.cells(),
                      found.places());
        const indexing::KeyedPlaces sorted = found.sort();
        const Lists<T, D> lists{found.begin(), found.end(), sorted.places, rests.data()};
        launch_kernel("grid_sample's gradient", list_cells<T, D>, blocks_of(places), THREADS, s, grid, sorted.keys, lists);
        launch_kernel("grid_sample's gradient", gather_kernel<T, D>, blocks_of(threads), THREADS, s, elements,
                      uint32_t(threads), strides, reinterpret_cast<T*>(data[0]), grad, lists);
    });
}

/// `image`, `grid`: which operands these are.
template <class F>
KernelPtr floating(const Request& r, size_t image, size_t grid, const F& make) {
    constexpr int64_t LIMIT = (int64_t(1) << 31) - THREADS;
    const Operand &out = r.operands[0], &x = r.operands[image], &g = r.operands[grid];
    for (const Operand& operand : r.operands)
        if (operand.dtype != out.dtype || operand.numel() > LIMIT) return nullptr;
    int64_t cells = x.shape[0], places = x.shape[0];
    for (size_t d = 2; d < x.shape.size(); ++d) cells *= x.shape[d] + 1, places *= g.shape[d - 1];
    if (!out.is_contiguous() || cells > LIMIT || places > LIMIT) return nullptr;
    const std::string& mode = r.attrs.text("mode");
    if (mode != "bilinear" && mode != "nearest") return nullptr;
    auto with_dims = [&]<class T>(T) {
        return x.ndim() == 4 ? make(T(), std::integral_constant<int, 2>()) : make(T(), std::integral_constant<int, 3>());
    };
    if (out.dtype == DType::f32) return with_dims(float());
    return out.dtype == DType::f64 ? with_dims(double()) : nullptr;
}

KernelPtr any_sample(const Request& r) {
    return floating(r, 1, 2, [&]<class T, int D>(T, std::integral_constant<int, D>) { return sample<T, D>(r); });
}
KernelPtr any_input_grad(const Request& r) {
    return floating(r, 0, 2, [&]<class T, int D>(T, std::integral_constant<int, D>) { return input_grad<T, D>(r); });
}
KernelPtr any_grid_grad(const Request& r) {
    return floating(r, 2, 3, [&]<class T, int D>(T, std::integral_constant<int, D>) { return grid_grad<T, D>(r); });
}

}  // namespace
}  // namespace sampling

void add_sampling(Registry& registry) {
    registry["grid_sample2d"] = registry["grid_sample3d"] = sampling::any_sample;
    registry["grid_sample2d_input_grad"] = registry["grid_sample3d_input_grad"] = sampling::any_input_grad;
    registry["grid_sample2d_grid_grad"] = registry["grid_sample3d_grid_grad"] = sampling::any_grid_grad;
}

}  // namespace norch::nn
