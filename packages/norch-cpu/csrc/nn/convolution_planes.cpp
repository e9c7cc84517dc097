// Convolution of images whose channels are planes, with few channels in each group, and the gradient of its input: see
// convolution_planes.h.
#include "nn/convolution_planes.h"

#include "common/staging.h"
#include "runtime/allocator.h"

namespace norch::nn {
namespace planes {
namespace {

constexpr int VECTORS = 8;  // of results that are computed together

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

struct Correlation : Planes {
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

}  // namespace

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

namespace {

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

}  // namespace
}  // namespace planes

/// Images whose channels lie next to each other are copied to planes where so few are multiplied with so few.
constexpr int64_t FEW_CHANNELS = 4;

[[gnu::cold]] KernelPtr conv2d_planes(const Request& r) {
    using namespace planes;
    const bool of_weight = r.op == "conv2d_weight_grad", is_grad = r.op == "conv2d_input_grad";
    const Operand &out = r.operands[0], &source = r.operands[of_weight ? 2 : 1], &weight = r.operands[of_weight ? 0 : 2];
    const int64_t groups = r.attrs.integer("groups");
    const int64_t channels = is_grad ? weight.shape[1] : weight.shape[0] / groups;
    if (groups < 2 || channels > SIMD_WIDTH<float> / 2) return nullptr;
    for (const Operand& o : r.operands)
        if (!o.numel()) return nullptr;
    if (source.strides[3] != 1 && source.shape[3] != 1) {
        if (channels > FEW_CHANNELS) return nullptr;
        Request staged = r;
        std::vector<DType> dtypes;
        for (Operand& o : staged.operands) dtypes.push_back(o.dtype), o = contiguous(o);
        return Staged::make(r, 1, dtypes, conv2d_planes(staged));
    }
    const auto make = [&]<class T>(Tag<T>) -> KernelPtr {
        if (of_weight) return planes::weight_grad<T>(r);
        const DType dtype = out.dtype, computed = computed_dtype(dtype);
        auto taps = std::make_shared<const StagedOperand>(StagedOperand::contiguous_in(weight, computed));
        const bool has_bias = !is_grad && r.operands.size() == 4;
        auto start = std::make_shared<const StagedOperand>(has_bias ? StagedOperand::contiguous_in(r.operands[3], computed) : StagedOperand());
        Correlation found{is_grad ? of_input(r, out, source, taps->view) : of_result(r, out, source, taps->view)};
        const double work = found.group_ns() * double(found.batch * found.groups);
        return make_kernel(work, [=, found = std::move(found)](char* const* data, const Scalar*) {
            const Seen seen(*taps, data[2]), bias(*start, has_bias ? data[3] : nullptr);
            const auto at = [](const Seen& of) { return reinterpret_cast<const T*>(of.data()); };
            found.run(Numbers(data[1], dtype), at(seen), at(bias), Numbers(data[0], dtype));
        });
    };
    return out.dtype == DType::f64 ? make(Tag<double>{}) : make(Tag<float>{});
}

}  // namespace norch::nn
