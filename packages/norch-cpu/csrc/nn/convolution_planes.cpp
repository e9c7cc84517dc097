// Convolution of images whose channels are planes, with few channels in each group, and its gradients. A plane is copied
// with zeros around it; then an element of the result, counted in rows of that copy's length, sees its taps at distances
// that are the same for all, so that vectors of them go over the ends of rows. Of a stride s every s-th row and column of
// the copy are a plane of their own.
#include <cmath>

#include "common/staging.h"
#include "nn/convolution.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"
#include "runtime/tile.h"

namespace norch::nn {
namespace {

constexpr int VECTORS = 8;        // of results that are computed together
constexpr int TAPS_AT_ONCE = 5;   // in the gradient of the weight
constexpr int64_t IMAGE_ELEMENTS = 2048;  // of images whose products are summed together there

/// Elements of an operand: T, or 16-bit floats, whose planes become float32 as a whole.
struct Numbers {
    char* data;
    int64_t size;
    Convert convert;

    Numbers(char* data, DType dtype) : data(data), size(size_of(dtype)), convert(conversion_of(dtype)) {}
    Plane plane(int64_t i, int64_t row, int64_t column) const { return {data + i * size, row * size, column * size}; }
};

template <class T>
Plane plane_of(T* data, int64_t row) {
    return {reinterpret_cast<char*>(data), row * int64_t(sizeof(T)), sizeof(T)};
}

/// Along one dim: place y sees, for tap i, row (y + shift[i]) of phase[i]; a row of the copy is row * step + phase - pad of
/// the plane.
struct Axis {
    int64_t step, pad, rows;  // rows: of one phase
    std::vector<int64_t> index, shift, phase;  // of each tap: its index in the weight, and where it is

    static Axis forward(int64_t taps, int64_t stride, int64_t dilation, int64_t pad, int64_t places) {
        Axis axis{stride, pad, 0, {}, {}, {}};
        for (int64_t i = 0; i < taps; ++i) {
            axis.index.push_back(i);
            axis.shift.push_back(i * dilation / stride);
            axis.phase.push_back(i * dilation % stride);
        }
        axis.rows = places + axis.shift.back();
        return axis;
    }
};

/// A plane's copy, and how it is filled.
struct Copy {
    int64_t phase_rows, pitch;  // of one phase
    int64_t step_y, step_x, top, left;

    int64_t numel() const { return step_y * step_x * phase_rows * pitch; }

    /// The elements that a plane has; those around them are 0 already. Strides are in elements.
    template <class T>
    __attribute__((noinline)) void fill(const T* from, int64_t row, int64_t column, int64_t h, int64_t w, T* to) const {
        const int64_t first_y = std::max<int64_t>(0, -top);
        int64_t phase_y = (first_y + top) % step_y, row_y = (first_y + top) / step_y;
        for (int64_t y = first_y; y < h && row_y < phase_rows; ++y) {
            T* line = to + (phase_y * step_x * phase_rows + row_y) * pitch;
            for (int64_t phase = 0; phase < step_x; ++phase, line += phase_rows * pitch) {
                // Columns k * step + phase - left of the plane.
                const int64_t first = step_x == 1 ? std::max<int64_t>(0, left) : std::max<int64_t>(0, (left - phase + step_x - 1) / step_x);
                const int64_t end = std::min(pitch, step_x == 1 ? w + left : (w - 1 + left - phase + step_x) / step_x);
                copy_line(from + y * row + (first * step_x + phase - left) * column, step_x * column, end - first, line + first);
            }
            if (++phase_y == step_y) phase_y = 0, ++row_y;
        }
    }

    template <class T>
    static void copy_line(const T* from, int64_t step, int64_t count, T* to) {
        if (step == 1) {
            NORCH_INDEPENDENT
            for (int64_t i = 0; i < count; ++i) to[i] = from[i];
        } else if (step == 2) {
            NORCH_INDEPENDENT
            for (int64_t i = 0; i < count; ++i) to[i] = from[2 * i];
        } else {
            for (int64_t i = 0; i < count; ++i) to[i] = from[i * step];
        }
    }
};

/// Results that see the same taps: those of a plane, or of one phase of it.
struct Pass {
    int64_t rows, columns;
    int64_t out, out_row, out_column;       // in elements
    std::vector<int64_t> distance, weight;  // of each channel's taps: in the copies, and in the weight

    void add(int64_t in_copy, int64_t in_weight) {
        distance.push_back(in_copy);
        weight.push_back(in_weight);
    }
};

/// V vectors of out[i] = start + the sum over taps of weights[t] * x[i + distance[t]].
template <class T, int V>
void sum_taps(const T* x, const int64_t* distance, const T* weights, size_t taps, T start, T* out) {
    constexpr int L = SIMD_WIDTH<T>;
    vector_t<T, L> sums[V];
    NORCH_UNROLL
    for (int v = 0; v < V; ++v) sums[v] = vector_t<T, L>{} + start;
    for (size_t t = 0; t < taps; ++t) {
        const T* from = x + distance[t];
        const T weight = weights[t];
        NORCH_UNROLL
        for (int v = 0; v < V; ++v) sums[v] += load_vector<L>(from + v * L) * weight;
    }
    NORCH_UNROLL
    for (int v = 0; v < V; ++v) store_vector(out + v * L, sums[v]);
}

template <class T, int... V>
auto tap_kernel(int64_t vectors, std::integer_sequence<int, V...>) {
    static constexpr decltype(&sum_taps<T, 1>) kernels[] = {sum_taps<T, V + 1>...};
    return kernels[vectors - 1];
}

/// All of `count` results, and up to the end of a vector.
template <class T>
void sum_all_taps(const T* x, const int64_t* distance, const T* weights, size_t taps, T start, int64_t count, T* out) {
    constexpr int L = SIMD_WIDTH<T>;
    const int64_t vectors = (count + L - 1) / L, parts = (vectors + VECTORS - 1) / VECTORS;
    for (int64_t part = 0; part < parts; ++part) {
        const int64_t first = vectors * part / parts, here = vectors * (part + 1) / parts - first;
        tap_kernel<T>(here, std::make_integer_sequence<int, VECTORS>())(x + first * L, distance, weights, taps, start, out + first * L);
    }
}

/// Adds to the lanes of each of some taps t the products grad[i] * x[i + distance[t]]; whole vectors.
template <class T>
void add_products(const T* grad, const T* x, const int64_t* distance, int64_t count, T* lanes) {
    constexpr int L = SIMD_WIDTH<T>;
    vector_t<T, L> a[TAPS_AT_ONCE], b[TAPS_AT_ONCE] = {};
    NORCH_UNROLL
    for (int t = 0; t < TAPS_AT_ONCE; ++t) a[t] = load_vector<L>(lanes + t * L);
    for (int64_t i = 0; i < count; i += 2 * L) {
        const auto g = load_vector<L>(grad + i), h = load_vector<L>(grad + i + L);
        NORCH_UNROLL
        for (int t = 0; t < TAPS_AT_ONCE; ++t) {
            const T* from = x + i + distance[t];
            a[t] += load_vector<L>(from) * g;
            b[t] += load_vector<L>(from + L) * h;
        }
    }
    NORCH_UNROLL
    for (int t = 0; t < TAPS_AT_ONCE; ++t) store_vector(lanes + t * L, a[t] + b[t]);
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

/// Elements after the last that are read or written: vectors are whole.
template <class T>
constexpr int64_t SLACK = 2 * SIMD_WIDTH<T>;

/// A grouped correlation: of each group's planes of a source come the planes of a result.
struct Planes {
    Copy copy;
    std::vector<Pass> passes;
    int64_t batch, groups, from, to;           // channels of a group
    int64_t h, w;                              // of a plane of the source
    std::vector<int64_t> source, result;       // strides
    int64_t weight_group, weight_to;   // strides

    int64_t source_size() const { return from * copy.numel(); }
    int64_t result_size() const {
        int64_t most = 0;
        for (const Pass& pass : passes) most = std::max(most, pass.rows * copy.pitch);
        return most;
    }
    double group_ns() const {
        double products = 0;
        for (const Pass& pass : passes) products += double(pass.rows * copy.pitch * to) * double(pass.distance.size());
        return products / 16 + double(h * w * from) / 8 + 100;
    }

    /// `wide` has room for a plane of 16-bit floats.
    template <class T>
    void fill(const Numbers& x, int64_t n, int64_t group, T* wide, T* to) const {
        for (int64_t c = 0; c < from; ++c, to += copy.numel()) {
            const Plane plane = x.plane(n * source[0] + (group * from + c) * source[1], source[2], source[3]);
            if (x.convert == Convert::none) {
                copy.fill(reinterpret_cast<const T*>(plane.data), source[2], source[3], h, w, to);
            } else {
                load_tile(plane_of(wide, w), plane, h, w, x.size, x.convert);
                copy.fill(wide, w, 1, h, w, to);
            }
        }
    }

    template <class T>
    void run(const Numbers& x, const T* weight, const T* bias, const Numbers& out) const {
        parallel_for(batch * groups, group_ns(), [&](int64_t begin, int64_t end) {
            size_t taps = 0;
            for (const Pass& pass : passes) taps = std::max(taps, pass.distance.size());
            Scratch<T> copies(source_size() + VECTORS * SLACK<T>), flat(result_size() + SLACK<T>);
            std::fill_n(copies.data(), source_size() + VECTORS * SLACK<T>, T(0));
            std::vector<T> weights(taps);
            Scratch<T> wide(x.convert == Convert::none ? 0 : h * w);
            for (int64_t i = begin; i < end; ++i) {
                const int64_t n = i / groups, group = i % groups;
                fill(x, n, group, wide.data(), copies.data());
                for (int64_t o = 0; o < to; ++o) {
                    const int64_t channel = group * to + o;
                    const T start = bias ? bias[channel] : T(0);
                    for (const Pass& pass : passes) {
                        const T* own = weight + group * weight_group + o * weight_to;
                        const size_t used = pass.distance.size();
                        for (size_t t = 0; t < used; ++t) weights[t] = own[pass.weight[t]];
                        const int64_t count = (pass.rows - 1) * copy.pitch + pass.columns;
                        sum_all_taps(copies.data(), pass.distance.data(), weights.data(), used, start, count, flat.data());
                        bring(flat.data(), pass, out, n * result[0] + channel * result[1]);
                    }
                }
            }
        });
    }

    template <class T>
    void bring(T* flat, const Pass& pass, const Numbers& out, int64_t place) const {
        const Plane plane = out.plane(place + pass.out, pass.out_row, pass.out_column);
        if (out.convert == Convert::none) {
            for (int64_t y = 0; y < pass.rows; ++y) {
                const T* from = flat + y * copy.pitch;
                T* to = reinterpret_cast<T*>(plane.data) + y * pass.out_row;
                if (pass.out_column == 1) {
                    NORCH_INDEPENDENT
                    for (int64_t i = 0; i < pass.columns; ++i) to[i] = from[i];
                } else {
                    for (int64_t i = 0; i < pass.columns; ++i) to[i * pass.out_column] = from[i];
                }
            }
            return;
        }
        store_tile(plane, plane_of(flat, copy.pitch), pass.rows, pass.columns, out.size, out.convert);
    }
};

/// The correlation that conv2d is.
Planes of_result(const Request& r, const Operand& out, const Operand& x, const Operand& weight) {
    const auto &stride = r.attrs.integers("stride"), &pads = r.attrs.integers("pads"), &dilation = r.attrs.integers("dilation");
    const int64_t groups = r.attrs.integer("groups");
    const Axis y = Axis::forward(weight.shape[2], stride[0], dilation[0], pads[0], out.shape[2]);
    const Axis z = Axis::forward(weight.shape[3], stride[1], dilation[1], pads[2], out.shape[3]);
    Planes planes{{y.rows, z.rows, stride[0], stride[1], pads[0], pads[2]}, {}, out.shape[0], groups, weight.shape[1],
                  out.shape[1] / groups, x.shape[2], x.shape[3], x.strides, out.strides,
                  out.shape[1] / groups * weight.strides[0], weight.strides[0]};
    Pass pass{out.shape[2], out.shape[3], 0, out.strides[2], out.strides[3], {}, {}};
    for (int64_t c = 0; c < planes.from; ++c)
        for (size_t i = 0; i < y.index.size(); ++i)
            for (size_t j = 0; j < z.index.size(); ++j)
                pass.add(c * planes.copy.numel() + ((y.phase[i] * stride[1] + z.phase[j]) * y.rows + y.shift[i]) * z.rows + z.shift[j],
                         c * weight.strides[1] + y.index[i] * weight.strides[2] + z.index[j] * weight.strides[3]);
    planes.passes.push_back(std::move(pass));
    return planes;
}

/// The taps that reach places of one phase of conv2d's input, and how far before each of the result's they are.
std::vector<std::pair<int64_t, int64_t>> reaching(int64_t phase, int64_t taps, int64_t stride, int64_t dilation, int64_t pad) {
    std::vector<std::pair<int64_t, int64_t>> found;
    for (int64_t i = 0; i < taps; ++i) {
        const int64_t from = phase + pad - i * dilation;
        if (from % stride == 0) found.push_back({i, from / stride});
    }
    return found;
}

/// The correlations, one for each phase of the input's rows and columns, that give its gradient.
Planes of_input(const Request& r, const Operand& out, const Operand& grad, const Operand& weight) {
    const auto &stride = r.attrs.integers("stride"), &pads = r.attrs.integers("pads"), &dilation = r.attrs.integers("dilation");
    const int64_t groups = r.attrs.integer("groups"), kh = weight.shape[2], kw = weight.shape[3];
    const int64_t sy = stride[0], sx = stride[1], h = out.shape[2], w = out.shape[3];
    int64_t least[2] = {}, most[2] = {};
    for (int d = 0; d < 2; ++d)
        for (int64_t phase = 0; phase < stride[size_t(d)]; ++phase)
            for (auto [i, shift] : reaching(phase, d ? kw : kh, stride[size_t(d)], dilation[size_t(d)], pads[size_t(2 * d)])) {
                least[d] = std::min(least[d], shift);
                most[d] = std::max(most[d], shift);
            }
    const int64_t rows = (h + sy - 1) / sy + most[0] - least[0], pitch = (w + sx - 1) / sx + most[1] - least[1];
    Planes planes{{rows, pitch, 1, 1, -least[0], -least[1]}, {}, out.shape[0], groups, grad.shape[1] / groups, weight.shape[1],
                  grad.shape[2], grad.shape[3], grad.strides, out.strides, grad.shape[1] / groups * weight.strides[0],
                  weight.strides[1]};
    for (int64_t a = 0; a < std::min(sy, h); ++a)
        for (int64_t b = 0; b < std::min(sx, w); ++b) {
            Pass pass{(h - a + sy - 1) / sy, (w - b + sx - 1) / sx, a * out.strides[2] + b * out.strides[3],
                      sy * out.strides[2], sx * out.strides[3], {}, {}};
            for (int64_t c = 0; c < planes.from; ++c)
                for (auto [i, y] : reaching(a, kh, sy, dilation[0], pads[0]))
                    for (auto [j, x] : reaching(b, kw, sx, dilation[1], pads[2]))
                        pass.add(c * planes.copy.numel() + (y - least[0]) * pitch + x - least[1],
                                 c * weight.strides[0] + i * weight.strides[2] + j * weight.strides[3]);
            planes.passes.push_back(std::move(pass));
        }
    return planes;
}

/// One tap's sum without what lies between the rows, where 0 times infinity is no 0.
template <class T>
T sum_rows(const T* grad, const T* x, const Pass& pass, int64_t pitch) {
    T sum = 0;
    for (int64_t y = 0; y < pass.rows; ++y)
        for (int64_t i = 0; i < pass.columns; ++i) sum += grad[y * pitch + i] * x[y * pitch + i];
    return sum;
}

/// The gradient of the weight: the products of some images are summed by lanes, what these give one after the other.
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
            Scratch<T> copies(planes.source_size() + SLACK<T>), flat(pass.rows * pitch + SLACK<T>);
            std::fill_n(copies.data(), planes.source_size() + SLACK<T>, T(0));
            std::fill_n(flat.data(), pass.rows * pitch + SLACK<T>, T(0));
            const Numbers x(data[2], dtype);
            Scratch<T> wide(x.convert == Convert::none ? 0 : planes.h * planes.w);
            std::vector<T> sums(size_t(all * planes.to)), lanes(size_t(whole * planes.to * L), T(0));
            std::vector<int64_t> distance(pass.distance);
            distance.resize(size_t(whole), 0);
            for (int64_t group = begin; group < end; ++group) {
                const auto take_grad = [&](int64_t n, int64_t o) __attribute__((noinline)) {
                    const Numbers grads(data[1], dtype);
                    const Plane from = grads.plane(n * g[0] + (group * planes.to + o) * g[1], g[2], g[3]);
                    if (grads.convert != Convert::none)
                        return load_tile(plane_of(flat.data(), pitch), from, pass.rows, pass.columns, grads.size, grads.convert);
                    for (int64_t y = 0; y < pass.rows; ++y)
                        Copy::copy_line(reinterpret_cast<const T*>(from.data) + y * g[2], g[3], pass.columns, flat.data() + y * pitch);
                };
                std::fill(sums.begin(), sums.end(), T(0));
                for (int64_t first = 0, last; first < planes.batch; first = last) {
                    last = std::min(planes.batch, first + images);
                    for (int64_t n = first; n < last; ++n) {
                        planes.fill(x, n, group, wide.data(), copies.data());
                        for (int64_t o = 0; o < planes.to; ++o) {
                            take_grad(n, o);
                            for (int64_t t = 0; t < whole; t += TAPS_AT_ONCE)
                                add_products(flat.data(), copies.data(), distance.data() + t, count, lanes.data() + (o * whole + t) * L);
                        }
                    }
                    for (int64_t o = 0; o < planes.to; ++o)
                        for (int64_t t = 0; t < all; ++t) {
                            T sum = take_sum(lanes.data() + (o * whole + t) * L);
                            if (!std::isfinite(sum)) {
                                sum = 0;
                                for (int64_t n = first; n < last; ++n) {
                                    planes.fill(x, n, group, wide.data(), copies.data());
                                    take_grad(n, o);
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

}  // namespace

/// Images whose channels lie next to each other are copied to planes where so few are multiplied with so few.
constexpr int64_t FEW_CHANNELS = 4;

[[gnu::cold]] KernelPtr conv2d_planes(const Request& r) {
    const bool of_weight = r.op == "conv2d_weight_grad", is_grad = r.op == "conv2d_input_grad";
    const Operand &out = r.operands[0], &source = r.operands[of_weight ? 2 : 1], &weight = r.operands[of_weight ? 0 : 2];
    const int64_t groups = r.attrs.integer("groups");
    const int64_t channels = is_grad ? weight.shape[1] : weight.shape[0] / groups;
    if (groups < 2 || channels > SIMD_WIDTH<float> / 2) return nullptr;
    for (const Operand& o : r.operands)
        if (!o.numel()) return nullptr;
    if (source.strides[3] != 1 && source.shape[3] != 1) {
        if (channels > FEW_CHANNELS) return nullptr;
        Request planes = r;
        std::vector<DType> dtypes;
        for (Operand& o : planes.operands) dtypes.push_back(o.dtype), o = contiguous(o, o.dtype);
        return Staged::make(r, 1, dtypes, conv2d_planes(planes));
    }
    const auto make = [&]<class T>(Tag<T>) -> KernelPtr {
        if (of_weight) return weight_grad<T>(r);
        const DType dtype = out.dtype, computed = computed_dtype(dtype);
        auto taps = std::make_shared<const StagedOperand>(StagedOperand::contiguous_in(weight, computed));
        const bool has_bias = !is_grad && r.operands.size() == 4;
        auto start = std::make_shared<const StagedOperand>(has_bias ? StagedOperand::contiguous_in(r.operands[3], computed) : StagedOperand());
        Planes planes = is_grad ? of_input(r, out, source, taps->view) : of_result(r, out, source, taps->view);
        const double work = planes.group_ns() * double(planes.batch * planes.groups);
        return make_kernel(work, [=, planes = std::move(planes)](char* const* data, const Scalar*) {
            const Seen seen(*taps, data[2]), bias(*start, has_bias ? data[3] : nullptr);
            const auto at = [](const Seen& of) { return reinterpret_cast<const T*>(of.data()); };
            planes.run(Numbers(data[1], dtype), at(seen), at(bias), Numbers(data[0], dtype));
        });
    };
    return out.dtype == DType::f64 ? make(Tag<double>{}) : make(Tag<float>{});
}

}  // namespace norch::nn
