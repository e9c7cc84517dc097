// Convolution with some channels a group, or few in all, and the gradient of its input: a vector has one place of many channels of the
// result, and what a row's taps see of a channel of the source is loaded once for all of them.
#include <algorithm>

#include "common/scratch.h"
#include "common/staging.h"
#include "matmul/tiles.h"
#include "nn/convolution.h"
#include "nn/row_taps.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"
#include "runtime/tile.h"

#if defined(__AVX512F__)
namespace norch::nn {
namespace {

using T = float;
constexpr int L = SIMD_WIDTH<T>;
constexpr int K = 3;
constexpr int64_t MOST = 14;  // places of a row that are computed together, as 32 registers allow
constexpr int64_t ROWS = 8;  // of the result that are computed with one panel of weights

/// The sums of one vector of channels in MOST places of a row, over all channels of the source and K taps side by side in each of
/// some rows; column 0 of the source is the first place's first tap, of which only those from `low` to `high` are there.
void sum_places(const T* source, int64_t column, int64_t channel, int64_t channels, int low, int high, const Reach& rows,
                const T* panel, int64_t next_channel, const T* bias, int places, T* out, int64_t step) {
    using V = vector_t<T, L>;
    V sums[MOST];
    sums[0] = bias ? load_vector<L>(bias) : V{};
    NORCH_UNROLL
    for (int x = 1; x < MOST; ++x) sums[x] = sums[0];
    for (size_t i = 0; i < rows.count; ++i) {
        const T *seen = source + rows.at[i], *w = panel + rows.tap[i] * K * L;
        for (int64_t c = 0; c < channels; ++c, seen += channel, w += next_channel) {
            V taps[K];
            NORCH_UNROLL
            for (int k = 0; k < K; ++k) taps[k] = load_vector<L>(w + k * L);
            add_columns<1>(low, high, taps, sums, [&](int p) NORCH_INLINE_LAMBDA { return V{} + seen[p * column]; });
        }
    }
    NORCH_UNROLL
    for (int x = 0; x < MOST; ++x)
        if (x < places) store_vector(out + x * step, sums[x]);
}

[[gnu::cold]] KernelPtr correlation(const Request& r, bool is_grad, bool is_last) {
    const Operand &out = r.operands[0], &source = r.operands[1];
    const auto taps_of = std::make_shared<const StagedOperand>(StagedOperand::contiguous_in(r.operands[2], DType::f32));
    const DType dtype = out.dtype;
    const auto &stride = r.attrs.integers("stride"), &pads = r.attrs.integers("pads");
    const int64_t groups = r.attrs.integer("groups"), gap = r.attrs.integers("dilation")[0], kh = taps_of->view.shape[2];
    const int64_t from = source.shape[1] / groups, to = out.shape[1] / groups, taps = kh * K;
    const int64_t top = is_grad ? (kh - 1) * gap - pads[0] : pads[0], left = is_grad ? K - 1 - pads[2] : pads[2];
    const int64_t step_y = stride[0], h = source.shape[2], w = source.shape[3];
    const int64_t rows = out.shape[2], columns = out.shape[3], strips = (rows + ROWS - 1) / ROWS;
    const int64_t vectors = (to + L - 1) / L, panel = from * taps * L;
    const bool has_bias = !is_grad && r.operands.size() == 4;
    const int64_t seen_rows = (ROWS - 1) * step_y + (kh - 1) * gap + 1;
    // Of results whose channels lie side by side, if they are float32, sums are the result itself.
    const int64_t pitch = is_last ? groups * to : L, made_size = is_last && dtype == DType::f32 ? 0 : ROWS * columns * pitch;
    const int64_t turned_size = is_last ? 0 : made_size, staged_size = is_half(dtype) ? source.shape[1] * seen_rows * w : 0;
    const int64_t workers = std::min<int64_t>(num_threads(), out.shape[0] * strips);
    note_scratch((groups * vectors * panel + workers * (made_size + turned_size + staged_size)) * int64_t(sizeof(T)));
    const double ns = double(std::min(rows, ROWS) * columns * groups * to * from * taps) / PER_NS<T> * 1.3;
    return make_kernel(ns * double(out.shape[0] * strips), [=, given = source.strides, made = out.strides, n = out.shape[0]](
                                                               char* const* data, const Scalar*) {
        const Seen seen(*taps_of, data[2]);
        const T* const weights = reinterpret_cast<const T*>(seen.data());
        const Scratch<T> panels(groups * vectors * panel), biases(has_bias ? groups * to : 0);
        if (has_bias) convert_line(data[3], dtype, groups * to, reinterpret_cast<char*>(biases.data()), DType::f32);
        const auto lane_of = [&](int64_t vector) { return std::min(vector * L, to - L); };
        for (int64_t i = 0; i < groups * vectors; ++i) {
            const int64_t g = i / vectors, first = lane_of(i % vectors);
            T* const p = panels.data() + i * panel;
            if (!is_grad) pack_taps(weights + (g * to + first) * from * taps, L, from * taps, 0, p, L);
            for (int64_t c = 0; is_grad && c < from; ++c)
                pack_taps(weights + ((g * from + c) * to + first) * taps, L, taps, taps, p + c * taps * L, L);
        }
        parallel_for(n * strips, ns, [&](int64_t begin, int64_t end) {
            const Scratch<T> staged(staged_size), made_sums(made_size), turned(turned_size);
            Reach reach{std::vector<int64_t>(size_t(kh)), std::vector<int64_t>(size_t(kh))};
            for (int64_t i = begin; i < end; ++i) {
                const int64_t image = i / strips, y = i % strips * ROWS, here = std::min(ROWS, rows - y);
                const int64_t first = std::clamp<int64_t>(y * step_y - top, 0, h);
                const int64_t last = std::clamp<int64_t>((y + here - 1) * step_y - top + (kh - 1) * gap + 1, first, h);
                const char* const own = data[1] + image * given[0] * size_of(dtype);
                const T* x = reinterpret_cast<const T*>(own) + first * given[2];
                int64_t channel = given[1], row = given[2], column = given[3];
                if (is_half(dtype)) {
                    const int64_t lines = is_last ? 1 : source.shape[1], all = (last - first) * w * source.shape[1] / lines;
                    for (int64_t l = 0; l < lines; ++l)
                        convert_line(own + (l * given[1] + first * given[2]) * 2, dtype, all, reinterpret_cast<char*>(staged.data() + l * all),
                                     DType::f32);
                    x = staged.data();
                    if (!is_last) channel = all;
                }
                char* const result = data[0] + (image * made[0] + y * made[2]) * size_of(dtype);
                T* const sums = made_size ? made_sums.data() : reinterpret_cast<T*>(result);
                const int64_t pixels = here * columns;
                for (int64_t v = 0; v < groups * vectors; ++v) {
                    const int64_t g = v / vectors, lane = g * to + lane_of(v % vectors);
                    for (int64_t q = 0; q < here; ++q) {
                        reach.count = 0;
                        for (int64_t k = 0; k < kh; ++k) {
                            const int64_t at = (y + q) * step_y - top + k * gap;
                            if (at >= first && at < last) reach.at[reach.count] = (at - first) * row, reach.tap[reach.count++] = k;
                        }
                        T* const row_sums = sums + q * columns * pitch + (is_last ? lane : 0);
                        for (int64_t p = 0, places; p < columns; p += places) {
                            places = std::min(columns - p, MOST);
                            const int64_t at = p - left;
                            sum_places(x + g * from * channel + at * column, column, channel, from, int(std::max<int64_t>(0, -at)),
                                       int(std::min<int64_t>(w - at, MOST + K)), reach, panels.data() + v * panel, taps * L,
                                       has_bias ? biases.data() + lane : nullptr, int(places), row_sums + p * pitch, pitch);
                        }
                    }
                    if (is_last) continue;
                    char* const plane = result + lane * made[1] * size_of(dtype);
                    T* const planes = is_half(dtype) ? turned.data() : reinterpret_cast<T*>(plane);
                    matmul::transpose(sums, L, pixels, L, planes, is_half(dtype) ? pixels : made[1]);
                    for (int64_t c = 0; is_half(dtype) && c < L; ++c)
                        convert_line(reinterpret_cast<const char*>(planes + c * pixels), DType::f32, pixels, plane + c * made[1] * 2, dtype);
                }
                if (is_last && made_size) convert_line(reinterpret_cast<const char*>(sums), DType::f32, pixels * pitch, result, dtype);
            }
        });
    });
}

/// Whether rows follow each other, in planes.
bool has_planes(const Operand& image) { return image.strides[3] == 1 && image.strides[2] == image.shape[3]; }

}  // namespace

[[gnu::cold]] KernelPtr conv2d_groups(const Request& r) {
    const bool is_grad = r.op == "conv2d_input_grad";
    const Operand &out = r.operands[0], &source = r.operands[1], &weight = r.operands[2];
    const int64_t groups = r.attrs.integer("groups");
    const auto& stride = r.attrs.integers("stride");
    if ((r.op != "conv2d" && !is_grad) || out.dtype == DType::f64 || weight.shape[3] != K) return nullptr;
    if (stride[1] > 1 || (is_grad && stride[0] > 1) || r.attrs.integers("dilation")[1] != 1) return nullptr;
    if (out.shape[3] <= MOST / 2) return nullptr;  // too few sums to hide how long each takes
    for (const Operand& o : r.operands)
        if (!o.numel()) return nullptr;
    const int64_t from = source.shape[1] / groups, to = out.shape[1] / groups;
    if (to < L || from > (block_parts(out.dtype, from, matmul::BLOCK_STEPS, to) ? 16 : 32)) return nullptr;
    const bool is_last = is_channels_last(out) && is_channels_last(source);
    // All of few channels, where planes are no quicker.
    if (groups < 2 && (!is_last || from > 4 || (is_half(out.dtype) && from > 1 && to > L))) return nullptr;
    if (!is_last && !(has_planes(out) && has_planes(source))) return nullptr;
    if (r.operands.size() == 4 && r.operands[3].strides[0] != 1) return nullptr;
    return correlation(r, is_grad, is_last);
}

}  // namespace norch::nn

#else
namespace norch::nn {

KernelPtr conv2d_groups(const Request&) { return nullptr; }

}  // namespace norch::nn
#endif
