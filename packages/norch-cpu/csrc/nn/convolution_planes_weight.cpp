// The gradient of the weight of a convolution of planes: see convolution_planes.h.
#include <cmath>

#include "common/staging.h"
#include "nn/convolution_planes.h"
#include "runtime/allocator.h"

namespace norch::nn::planes {
namespace {

constexpr int TAPS_AT_ONCE = 5;
constexpr int64_t IMAGE_ELEMENTS = 2048;  // of images whose products are summed together

/// Adds to the lanes of each of some taps t the products grad[i] * x[i + distance[t]], of C channels' gradients; whole vectors.
template <class T, int C>
void add_products(const T* grad, int64_t room, const T* x, const int64_t* distance, int64_t count, T* lanes, int64_t apart) {
    constexpr int L = SIMD_WIDTH<T>;
    vector_t<T, L> sums[C][TAPS_AT_ONCE];
    NORCH_UNROLL
    for (int o = 0; o < C; ++o) {
        NORCH_UNROLL
        for (int t = 0; t < TAPS_AT_ONCE; ++t) sums[o][t] = load_vector<L>(lanes + o * apart + t * L);
    }
    for (int64_t i = 0; i < count; i += L) {
        vector_t<T, L> g[C];
        NORCH_UNROLL
        for (int o = 0; o < C; ++o) g[o] = load_vector<L>(grad + o * room + i);
        NORCH_UNROLL
        for (int t = 0; t < TAPS_AT_ONCE; ++t) {
            auto seen = load_vector<L>(x + i + distance[t]);
            if constexpr (C > 1) load_once(seen);
            NORCH_UNROLL
            for (int o = 0; o < C; ++o) sums[o][t] += seen * g[o];
        }
    }
    NORCH_UNROLL
    for (int o = 0; o < C; ++o) {
        NORCH_UNROLL
        for (int t = 0; t < TAPS_AT_ONCE; ++t) store_vector(lanes + o * apart + t * L, sums[o][t]);
    }
}

/// The sum of a tap's lanes, which become 0.
template <class T>
__attribute__((noinline)) T take_sum(T* lanes) {
    constexpr int L = SIMD_WIDTH<T>;
    for (int width = L / 2; width; width /= 2)
        for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    const T sum = lanes[0];
    std::fill_n(lanes, L, T(0));
    return sum;
}

/// One tap's sum without what lies between the rows, where 0 times infinity is no 0.
template <class T>
T sum_rows(const T* grad, const T* x, const Pass& pass, int64_t pitch) {
    T sum = 0;
    for (int64_t y = 0; y < pass.rows; ++y)
        for (int64_t i = 0; i < pass.columns; ++i) sum += grad[y * pitch + i] * x[y * pitch + i];
    return sum;
}

}  // namespace

/// The products of some images are summed by lanes, what these give one after the other.
template <class T>
[[gnu::cold]] KernelPtr weight_grad(const Request& r) {
    constexpr int L = SIMD_WIDTH<T>;
    const Operand &out = r.operands[0], &grad = r.operands[1];
    Planes planes = of_result(r, grad, r.operands[2], out);
    const DType dtype = out.dtype;
    const double ns = planes.group_ns() * double(planes.batch) * 2;
    const auto g = grad.strides;
    return make_kernel(ns * double(planes.groups), [=, planes = std::move(planes)](char* const* data, const Scalar*) {
        const Pass& pass = planes.passes[0];
        const int64_t pitch = planes.copy.pitch, count = (pass.rows - 1) * pitch + pass.columns;
        const int64_t all = int64_t(pass.distance.size());
        const int64_t whole = (all + TAPS_AT_ONCE - 1) / TAPS_AT_ONCE * TAPS_AT_ONCE;
        const int64_t images = std::max<int64_t>(1, IMAGE_ELEMENTS / count);
        parallel_for(planes.groups, ns, [&](int64_t begin, int64_t end) {
            const int64_t room = pass.rows * pitch + SLACK<T>;
            Scratch<T> copies(planes.source_size() + SLACK<T>), flat(TOGETHER<T> * room);
            std::fill_n(copies.data(), planes.source_size() + SLACK<T>, T(0));
            std::fill_n(flat.data(), TOGETHER<T> * room, T(0));
            const Numbers x(data[2], dtype);
            std::vector<T> sums(size_t(all * planes.to)), lanes(size_t(whole * planes.to * L), T(0));
            std::vector<int64_t> distance(pass.distance);
            distance.resize(size_t(whole), 0);
            for (int64_t group = begin; group < end; ++group) {
                const auto take_grad = [&](int64_t n, int64_t o, T* to) __attribute__((noinline)) {
                    const Numbers grads(data[1], dtype);
                    load_tile(plane_of(to, pitch), grads.plane(n * g[0] + (group * planes.to + o) * g[1], g[2], g[3]), pass.rows,
                              pass.columns, grads.size, grads.convert);
                };
                std::fill(sums.begin(), sums.end(), T(0));
                for (int64_t first = 0, last; first < planes.batch; first = last) {
                    last = std::min(planes.batch, first + images);
                    for (int64_t n = first; n < last; ++n) {
                        planes.fill(x, n, group, copies.data());
                        for (int64_t o = 0, here; o < planes.to; o += here) {
                            here = std::min<int64_t>(TOGETHER<T>, planes.to - o);
                            for (int64_t k = 0; k < here; ++k) take_grad(n, o + k, flat.data() + k * room);
                            const auto add = here == TOGETHER<T> ? &add_products<T, TOGETHER<T>> : &add_products<T, 1>;
                            for (int64_t t = 0; t < whole; t += TAPS_AT_ONCE)
                                add(flat.data(), room, copies.data(), distance.data() + t, count, lanes.data() + (o * whole + t) * L, whole * L);
                        }
                    }
                    for (int64_t o = 0; o < planes.to; ++o)
                        for (int64_t t = 0; t < all; ++t) {
                            T sum = take_sum(lanes.data() + (o * whole + t) * L);
                            if (!std::isfinite(sum)) {
                                sum = 0;
                                for (int64_t n = first; n < last; ++n) {
                                    planes.fill(x, n, group, copies.data());
                                    take_grad(n, o, flat.data());
                                    sum += sum_rows(flat.data(), copies.data() + distance[size_t(t)], pass, pitch);
                                }
                            }
                            sums[size_t(o * all + t)] += sum;
                        }
                }
                const Numbers to(data[0], dtype);
                for (int64_t o = 0; o < planes.to; ++o)
                    for (int64_t i = 0; i < all; ++i) {
                        char* const at = to.data + (group * planes.weight_group + o * planes.weight_to + pass.weight[size_t(i)]) * to.size;
                        const char* sum = reinterpret_cast<const char*>(&sums[size_t(o * all + i)]);
                        convert_line(sum, computed_dtype(dtype), 1, at, dtype);
                    }
            }
        });
    });
}

template KernelPtr weight_grad<float>(const Request& r);
template KernelPtr weight_grad<double>(const Request& r);

}  // namespace norch::nn::planes
