// Convolution of images whose channels are planes, with few channels in each group or in all, and the gradient of its input:
// see convolution_planes.h.
#include "nn/convolution_planes.h"

#include "common/scratch.h"
#include "common/staging.h"
#include "matmul/tiles.h"
#include "runtime/allocator.h"

namespace norch::nn {
namespace planes {
namespace {

constexpr int VECTORS = 6;  // of results of each channel that are computed together at most
template <class T, int C>
constexpr int VECTORS_OF = C < TOGETHER<T> || C == 1 ? VECTORS : 4;  // so many sums as there are registers for
constexpr size_t TAPS = 256;  // that are summed one after the other: long sums are made of short ones

/// Along one dim: place y sees, for tap i, row (y + shift[i]) of phase[i]; a row of the copy is row * step + phase - pad of
/// the plane.
struct Axis {
    std::vector<int64_t> shift, phase;

    Axis(int64_t taps, int64_t stride, int64_t dilation) {
        for (int64_t i = 0; i < taps; ++i) {
            shift.push_back(i * dilation / stride);
            phase.push_back(i * dilation % stride);
        }
    }
};

/// V vectors of out[o * room + i] = starts[o] + the sum over taps of weights[t * C + o] * x[i + distance[t]], for C channels o;
/// without `starts` the sum is added to what there is.
template <class T, int C, int V>
void sum_taps(const T* x, const int64_t* distance, const T* weights, size_t taps, const T* starts, T* out, int64_t room) {
    constexpr int L = SIMD_WIDTH<T>;
    vector_t<T, L> sums[C][V];
    NORCH_UNROLL
    for (int o = 0; o < C; ++o) {
        NORCH_UNROLL
        for (int v = 0; v < V; ++v) sums[o][v] = vector_t<T, L>{} + (starts ? starts[o] : T(0));
    }
    for (size_t t = 0; t < taps; ++t) {
        const T* from = x + distance[t];
        NORCH_UNROLL
        for (int v = 0; v < V; ++v) {
            auto seen = load_vector<L>(from + v * L);
            if constexpr (C > 1) load_once(seen);
            NORCH_UNROLL
            for (int o = 0; o < C; ++o) sums[o][v] += seen * weights[t * C + size_t(o)];
        }
    }
    NORCH_UNROLL
    for (int o = 0; o < C; ++o) {
        NORCH_UNROLL
        for (int v = 0; v < V; ++v) {
            T* const to = out + o * room + v * L;
            store_vector(to, starts ? sums[o][v] : sums[o][v] + load_vector<L>(to));
        }
    }
}

template <class T, int C, int... V>
auto tap_kernel(int64_t vectors, std::integer_sequence<int, V...>) {
    static constexpr decltype(&sum_taps<T, C, 1>) kernels[] = {sum_taps<T, C, V + 1>...};
    return kernels[vectors - 1];
}

/// All of `count` results of C channels, and up to the end of a vector.
template <class T, int C>
void sum_all_taps(const T* x, const int64_t* distance, const T* weights, size_t taps, const T* starts, int64_t count, T* out,
                  int64_t room) {
    constexpr int L = SIMD_WIDTH<T>, most = VECTORS_OF<T, C>;
    const int64_t vectors = (count + L - 1) / L, parts = (vectors + most - 1) / most;
    for (int64_t part = 0; part < parts; ++part) {
        const int64_t first = vectors * part / parts, here = vectors * (part + 1) / parts - first;
        const auto sum = tap_kernel<T, C>(here, std::make_integer_sequence<int, most>());
        size_t t = 0;  // places that see no tap are their starts
        do {
            sum(x + first * L, distance + t, weights + t * C, std::min(TAPS, taps - t), t ? nullptr : starts, out + first * L, room);
            t += TAPS;
        } while (t < taps);
    }
}

struct Correlation : Planes {
    template <class T>
    void run(const Numbers& x, const T* weight, const T* bias, const Numbers& out) const {
        parallel_for(batch * groups * tiles, group_ns() / double(tiles), [&](int64_t begin, int64_t end) {
            const int64_t room = result_size() + SLACK<T>, source_size = from * copy.numel() + VECTORS * SLACK<T>;
            Scratch<T> copies(source_size), flat(TOGETHER<T> * room);
            std::fill_n(copies.data(), source_size, T(0));
            int64_t taps = 0;
            for (const Pass& pass : passes) taps += int64_t(pass.weight.size());
            Scratch<T> weights(taps * to);
            for (int64_t i = begin, packed = -1; i < end; ++i) {
                const int64_t group = i / tiles / batch, n = i / tiles % batch, start = i % tiles * tile;
                if (group != packed) pack(weight + group * weight_group, weights.data());
                packed = group;
                fill(x, n, group, 0, from, start, copies.data());
                const T* own = weights.data();
                for (int64_t o = 0, here; o < to; o += here) {
                    here = std::min<int64_t>(TOGETHER<T>, to - o);
                    const int64_t channel = group * to + o;
                    T starts[TOGETHER<T>] = {};
                    for (int64_t k = 0; k < here && bias; ++k) starts[k] = bias[channel + k];
                    const auto sum = for_channels<T>(here, [](auto c) { return &sum_all_taps<T, c.value>; });
                    for (const Pass& pass : passes) {
                        const size_t used = pass.distance.size();
                        const T* of_pass = own;
                        own += used * size_t(here);
                        if (pass.rows <= start) continue;
                        sum(copies.data(), pass.distance.data(), of_pass, used, starts, count_of(pass, start), flat.data(), room);
                        for (int64_t k = 0; k < here; ++k) {
                            const int64_t place = n * result[0] + (channel + k) * result[1] + pass.out + start * pass.out_row;
                            store_tile(out.plane(place, pass.out_row, pass.out_column), plane_of(flat.data() + k * room, copy.pitch),
                                       rows_of(pass, start), pass.columns, out.size, out.convert);
                        }
                    }
                }
            }
        });
    }

    /// A group's weights in the order in which they are asked for.
    template <class T>
    void pack(const T* weight, T* packed) const {
        for (int64_t o = 0, here; o < to; o += here) {
            here = std::min<int64_t>(TOGETHER<T>, to - o);
            for (const Pass& pass : passes)
                for (const int64_t tap : pass.weight)
                    for (int64_t k = 0; k < here; ++k) *packed++ = weight[(o + k) * weight_to + tap];
        }
    }
};

}  // namespace

Planes of_result(const Request& r, const Operand& out, const Operand& x, const Operand& weight) {
    const auto &stride = r.attrs.integers("stride"), &pads = r.attrs.integers("pads"), &dilation = r.attrs.integers("dilation");
    const int64_t groups = r.attrs.integer("groups");
    const Axis y(weight.shape[2], stride[0], dilation[0]), z(weight.shape[3], stride[1], dilation[1]);
    const int64_t pitch = out.shape[3] + z.shift.back();
    Planes planes{{0, pitch, stride[0], stride[1], pads[0], pads[2]}, {}, out.shape[0], groups, weight.shape[1],
                  out.shape[1] / groups, x.shape[2], x.shape[3], x.strides, out.strides,
                  out.shape[1] / groups * weight.strides[0], weight.strides[0], 0, 0};
    planes.cut(out.shape[2], y.shift.back(), r.op != "conv2d_weight_grad");
    Pass pass{out.shape[2], out.shape[3], 0, out.strides[2], out.strides[3], {}, {}};
    for (int64_t c = 0; c < planes.from; ++c)
        for (size_t i = 0; i < y.shift.size(); ++i)
            for (size_t j = 0; j < z.shift.size(); ++j)
                pass.add(c * planes.copy.numel() + ((y.phase[i] * stride[1] + z.phase[j]) * planes.copy.phase_rows + y.shift[i]) * pitch + z.shift[j],
                         c * weight.strides[1] + int64_t(i) * weight.strides[2] + int64_t(j) * weight.strides[3]);
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
    const int64_t pitch = (w + sx - 1) / sx + most[1] - least[1];
    Planes planes{{0, pitch, 1, 1, -least[0], -least[1]}, {}, out.shape[0], groups, grad.shape[1] / groups, weight.shape[1],
                  grad.shape[2], grad.shape[3], grad.strides, out.strides, grad.shape[1] / groups * weight.strides[0],
                  weight.strides[1], 0, 0};
    planes.cut((h + sy - 1) / sy, most[0] - least[0], true);
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

/// Whether few channels of an image or of a result are quicker so than as products of windows: as measured on a Zen 5.
static bool pays_without_groups(const Request& r, bool of_weight, bool is_grad) {
    const Operand &out = r.operands[0], &weight = r.operands[of_weight ? 0 : 2];
    const auto& stride = r.attrs.integers("stride");
    const bool is_strided = stride[0] > 1 || stride[1] > 1;
    const int64_t from = weight.shape[is_grad ? 0 : 1], to = weight.shape[is_grad ? 1 : 0];
    constexpr int64_t LANES = SIMD_WIDTH<float>, FEWEST_COLUMNS = 16;
    if (is_grad && to <= 4) return true;
    if (out.dtype == DType::f64 || stride[0] > 2 || stride[1] > 2) return false;
    const auto parts = block_parts(out.dtype, from, matmul::BLOCK_STEPS, to);
    if (parts && (*parts == matmul::Parts::one || matmul::has_tiles())) return false;
    if (of_weight) return to <= (is_strided ? LANES / 4 : LANES / 2);
    if (out.shape[3] < FEWEST_COLUMNS) return to <= LANES / 4;
    const bool leaves_lanes = LANES == 16 && to * 4 <= (to + LANES - 1) / LANES * LANES * 3;  // a quarter of them or more
    return to <= LANES || leaves_lanes || from <= (is_strided && !is_grad ? LANES / 4 : LANES / 2);
}

[[gnu::cold]] KernelPtr conv2d_planes(const Request& r) {
    using namespace planes;
    const bool of_weight = r.op == "conv2d_weight_grad", is_grad = r.op == "conv2d_input_grad";
    const Operand &out = r.operands[0], &source = r.operands[of_weight ? 2 : 1], &weight = r.operands[of_weight ? 0 : 2];
    const int64_t groups = r.attrs.integer("groups");
    const int64_t channels = is_grad ? weight.shape[1] : weight.shape[0] / groups;
    if (groups < 2 ? !pays_without_groups(r, of_weight, is_grad) : channels > SIMD_WIDTH<float> / 2) return nullptr;
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
        note_scratch(found.scratch<T>(std::min<int64_t>(num_threads(), found.batch * groups * found.tiles), found.from));
        return make_kernel(work, [=, found = std::move(found)](char* const* data, const Scalar*) {
            const Seen seen(*taps, data[2]), bias(*start, has_bias ? data[3] : nullptr);
            const auto at = [](const Seen& of) { return reinterpret_cast<const T*>(of.data()); };
            found.run(Numbers(data[1], dtype), at(seen), at(bias), Numbers(data[0], dtype));
        });
    };
    return out.dtype == DType::f64 ? make(Tag<double>{}) : make(Tag<float>{});
}

}  // namespace norch::nn
