// The gradient of the weight of a convolution of planes: see convolution_planes.h.
#include <cmath>

#include "common/scratch.h"
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
T sum_rows(const T* grad, const T* x, int64_t rows, int64_t columns, int64_t pitch) {
    constexpr int L = SIMD_WIDTH<T>;
    vector_t<T, L> lanes = {};
    T sum = 0;
    for (int64_t y = 0; y < rows; ++y, grad += pitch, x += pitch) {
        int64_t i = 0;
        for (; i + L <= columns; i += L) lanes += load_vector<L>(grad + i) * load_vector<L>(x + i);
        for (; i < columns; ++i) sum += grad[i] * x[i];
    }
    for (int l = 0; l < L; ++l) sum += lanes[l];
    return sum;
}

/// The sums of some source channels' taps, for all channels of a group's gradient.
template <class T>
struct WeightGrad {
    static constexpr int L = SIMD_WIDTH<T>;

    const Planes& planes;
    const std::vector<int64_t>& g;  // strides of the gradient
    Numbers grad, x;
    int64_t group, channel, channels;
    const Pass& pass = planes.passes[0];
    const int64_t pitch = planes.copy.pitch, each = int64_t(pass.distance.size()) / planes.from, all = channels * each;
    const int64_t whole = (all + TAPS_AT_ONCE - 1) / TAPS_AT_ONCE * TAPS_AT_ONCE, room = planes.result_size() + SLACK<T>;
    const int64_t source_size = channels * planes.copy.numel() + SLACK<T>;
    Scratch<T> copies{source_size}, flat{TOGETHER<T> * room};
    std::vector<T> sums = std::vector<T>(size_t(all * planes.to)), taken = sums, lanes = std::vector<T>(size_t(whole * planes.to * L));
    std::vector<int64_t> distance = std::vector<int64_t>(size_t(whole));

    void run() {
        std::fill_n(copies.data(), source_size, T(0));
        std::fill_n(flat.data(), TOGETHER<T> * room, T(0));
        for (int64_t t = 0; t < all; ++t) distance[size_t(t)] = pass.distance[size_t(t)];
        const int64_t parts = planes.batch * planes.tiles, few = std::max<int64_t>(1, IMAGE_ELEMENTS / planes.result_size());
        for (int64_t first = 0; first < parts; first += few) add(first, std::min(parts, first + few));
    }

private:
    void fill(int64_t part) {
        planes.fill(x, part / planes.tiles, group, channel, channels, start_of(part), copies.data());
    }
    int64_t start_of(int64_t part) const { return part % planes.tiles * planes.tile; }

    __attribute__((noinline)) void take_grad(int64_t part, int64_t o, T* to) const {
        const int64_t start = start_of(part), n = part / planes.tiles;
        load_tile(plane_of(to, pitch), grad.plane(n * g[0] + (group * planes.to + o) * g[1] + start * g[2], g[2], g[3]),
                  planes.rows_of(pass, start), pass.columns, grad.size, grad.convert);
        std::fill_n(to + planes.count_of(pass, start), L, T(0));  // up to the end of the last vector
    }

    /// Images, or tiles of them, are summed by lanes, what these give one after the other.
    void add(int64_t first, int64_t last) {
        for (int64_t part = first; part < last; ++part) {
            fill(part);
            const int64_t count = planes.count_of(pass, start_of(part));
            for (int64_t o = 0, here; o < planes.to; o += here) {
                here = std::min<int64_t>(TOGETHER<T>, planes.to - o);
                for (int64_t k = 0; k < here; ++k) take_grad(part, o + k, flat.data() + k * room);
                const auto add = for_channels<T>(here, [](auto c) { return &add_products<T, c.value>; });
                for (int64_t t = 0; t < whole; t += TAPS_AT_ONCE)
                    add(flat.data(), room, copies.data(), distance.data() + t, count, lanes.data() + (o * whole + t) * L, whole * L);
            }
        }
        T zero = 0;  // unless a sum is not finite
        for (int64_t o = 0; o < planes.to; ++o)
            for (int64_t t = 0; t < all; ++t) {
                const T sum = taken[size_t(o * all + t)] = take_sum(lanes.data() + (o * whole + t) * L);
                zero += sum * 0;
            }
        if (zero != 0 && !is_image_finite(first, last)) return add_rows(first, last);
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += taken[i];
    }

    bool is_image_finite(int64_t first, int64_t last) {
        for (int64_t part = first; part < last; ++part) {
            fill(part);
            for (int64_t i = 0; i < source_size; ++i)
                if (!std::isfinite(copies[i])) return false;
        }
        return true;
    }

    /// The same row by row: what of the image lies between a gradient's rows would be multiplied by 0.
    void add_rows(int64_t first, int64_t last) {
        for (int64_t part = first; part < last; ++part) {
            fill(part);
            for (int64_t o = 0; o < planes.to; ++o) {
                take_grad(part, o, flat.data());
                for (int64_t t = 0; t < all; ++t)
                    sums[size_t(o * all + t)] += sum_rows(flat.data(), copies.data() + distance[size_t(t)],
                                                          planes.rows_of(pass, start_of(part)), pass.columns, pitch);
            }
        }
    }
};

}  // namespace

template <class T>
[[gnu::cold]] KernelPtr weight_grad(const Request& r) {
    const Operand &out = r.operands[0], &grad = r.operands[1];
    Planes planes = of_result(r, grad, r.operands[2], out);
    const DType dtype = out.dtype;
    const double ns = planes.group_ns() * double(planes.batch) * 2;
    const auto g = grad.strides;
    const int64_t parts = std::clamp<int64_t>((2 * num_threads() + planes.groups - 1) / planes.groups, 1, planes.from);
    note_scratch(planes.scratch<T>(std::min<int64_t>(num_threads(), planes.groups * parts), planes.from / parts));
    return make_kernel(ns * double(planes.groups), [=, planes = std::move(planes)](char* const* data, const Scalar*) {
        parallel_for(planes.groups * parts, ns / double(parts), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t group = i / parts, part = i % parts, channel = planes.from * part / parts;
                WeightGrad<T> found{planes, g, Numbers(data[1], dtype), Numbers(data[2], dtype), group, channel,
                                    planes.from * (part + 1) / parts - channel};
                found.run();
                const Numbers to(data[0], dtype);
                for (int64_t o = 0; o < planes.to; ++o)
                    for (int64_t t = 0; t < found.all; ++t) {
                        const int64_t tap = planes.passes[0].weight[size_t(channel * found.each + t)];
                        char* const at = to.data + (group * planes.weight_group + o * planes.weight_to + tap) * to.size;
                        convert_line(reinterpret_cast<const char*>(&found.sums[size_t(o * found.all + t)]), computed_dtype(dtype), 1, at, dtype);
                    }
            }
        });
    });
}

template KernelPtr weight_grad<float>(const Request& r);
template KernelPtr weight_grad<double>(const Request& r);

}  // namespace norch::nn::planes
