// Depthwise convolution of channels-last images, and its gradients: channels are as many numbers side by side.
#include <algorithm>
#include <cmath>

#include "common/scratch.h"
#include "common/staging.h"
#include "nn/convolution.h"
#include "nn/row_taps.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"
#include "runtime/tile.h"

namespace norch::nn {
namespace {

using T = float;
constexpr int L = SIMD_WIDTH<T>;
constexpr int64_t ROWS_AT_ONCE = 16;  // of the result, in the weight's gradient
constexpr int PLACES = 6;             // of the result in one row that are computed together

/// Places of a row that have all columns of taps within the source, which are `step` apart there.
struct Inner {
    int64_t begin, end, step;
};

/// Rows and columns of the source for each place of the result: in the gradient of the input the steps are undone.
struct Moves {
    Moves(const Request& r, const Operand& weight, const Operand& source, bool is_grad, bool is_staged, int64_t spread = 1)
        : kh(weight.shape[2]), kw(weight.shape[3]), h(source.shape[2]), w(source.shape[3]), kept(h), row(source.strides[2]),
          column(source.strides[3]), is_grad(is_grad) {
        const auto &stride = r.attrs.integers("stride"), &pads = r.attrs.integers("pads");
        const auto& dilation = r.attrs.integers("dilation");
        step_y = stride[0], step_x = stride[1], gap_y = dilation[0], gap_x = dilation[1], top = pads[0], left = pads[2];
        if (!is_staged) return;
        kept = std::min(h, (kh - 1) * gap_y + 1);
        column = spread * source.shape[1], row = w * column;
    }
    /// The index in the source that tap k of place y sees, or -1.
    int64_t seen(int64_t y, int64_t k, int64_t step, int64_t gap, int64_t pad, int64_t size) const {
        int64_t at = is_grad ? y + pad - k * gap : y * step - pad + k * gap;
        if (is_grad) {
            if (at < 0 || at % step) return -1;
            at /= step;
        }
        return at >= 0 && at < size ? at : -1;
    }
    /// Finds once which taps of a row each of `columns` sees, since that takes divisions.
    [[gnu::cold]] void find_columns(int64_t columns) {
        for (int64_t x = 0; x < columns; ++x) {
            for (int64_t j = 0; j < kw; ++j) {
                const int64_t at_x = seen(x, j, step_x, gap_x, left, w);
                if (at_x >= 0) columns_seen.push_back({at_x * column, j});
            }
            ends.push_back(columns_seen.size());
        }
    }
    /// The rows of taps that row y sees: where each begins in the source, and its first tap.
    __attribute__((noinline)) void reach_rows(int64_t y, Reach* out) const {
        out->count = 0;
        for (int64_t i = 0; i < kh; ++i) {
            const int64_t at_y = seen(y, i, step_y, gap_y, top, h);
            if (at_y < 0) continue;
            out->at[out->count] = (at_y < kept ? at_y : at_y % kept) * row;
            out->tap[out->count++] = i * kw;
        }
    }
    __attribute__((noinline)) void reach(const Reach& rows, int64_t x, Reach* out) const {
        out->count = 0;
        for (size_t i = 0; i < rows.count; ++i)
            for (size_t j = x ? ends[size_t(x - 1)] : 0; j < ends[size_t(x)]; ++j) {
                out->at[out->count] = rows.at[i] + columns_seen[j].at;
                out->tap[out->count++] = rows.tap[i] + columns_seen[j].tap;
            }
    }
    Inner inner(int64_t columns) const {
        if (is_grad && step_x != 1) return {columns, columns, 0};
        int64_t begin = 0, end = columns;
        const auto all = [&](int64_t x) { return seen(x, 0, step_x, gap_x, left, w) >= 0 && seen(x, kw - 1, step_x, gap_x, left, w) >= 0; };
        while (begin < end && !all(begin)) ++begin;
        while (end > begin && !all(end - 1)) --end;
        return {begin, end, (is_grad ? 1 : step_x) * column};
    }
    Reach room() const { return {std::vector<int64_t>(size_t(kh * kw)), std::vector<int64_t>(size_t(kh * kw))}; }

    int64_t kh, kw, h, w;
    int64_t kept;         // rows of the source that are there at once: all, or of staged ones those of one row's taps
    int64_t row, column;  // from one to the next, of those
    int64_t step_y, step_x, gap_y, gap_x, top, left;
    bool is_grad;
    struct Seen {
        int64_t at, tap;
    };
    std::vector<Seen> columns_seen;  // of all columns, one after another
    std::vector<size_t> ends;        // of each column's
};

/// Rows of images whose channels lie side by side: as they are, or staged as float32, of which the last `kept` are there, with
/// zeros between pixels that are to be spread.
class Rows {
public:
    Rows(const char* data, const Operand& o, int64_t kept, bool is_staged, int64_t spread = 1)
        : data_(data), dtype_(o.dtype), size_(size_of(o.dtype)), image_(o.strides[0]), row_(o.strides[2]), h_(o.shape[2]),
          channels_(o.shape[1]), width_(channels_ * o.shape[3]), kept_(kept), spread_(spread), is_staged_(is_staged),
          scratch_(is_staged ? kept * width_ * spread : 0), there_(size_t(is_staged ? kept : 0), -1) {
        if (spread > 1) std::fill_n(scratch_.data(), kept * width_ * spread, T(0));
    }

    /// Where the rows of image n begin of which `bring` was asked.
    const char* image(int64_t n) const {
        return is_staged_ ? reinterpret_cast<const char*>(scratch_.data()) : data_ + n * image_ * size_;
    }
    __attribute__((noinline)) void bring(int64_t n, int64_t y) {
        if (!is_staged_) return;
        const int64_t place = y % kept_, index = n * h_ + y, run = spread_ > 1 ? channels_ : width_;
        if (there_[size_t(place)] == index) return;
        there_[size_t(place)] = index;
        const char* from = data_ + (n * image_ + y * row_) * size_;
        T* to = scratch_.data() + place * width_ * spread_;
        for (int64_t i = 0; i < width_; i += run, from += run * size_, to += run * spread_)
            convert_line(from, dtype_, run, reinterpret_cast<char*>(to), DType::f32);
    }

private:
    const char* data_;
    DType dtype_;
    int64_t size_, image_, row_, h_, channels_, width_, kept_, spread_;
    bool is_staged_;
    Scratch<T> scratch_;
    std::vector<int64_t> there_;
};

/// `sum_taps` of all channels, where a tap has `width` weights. Where vectors would hang over they go back over what is done.
template <int X>
void sum_channels(const T* source, int64_t step, const Reach& reach, const T* weights, int64_t width, int64_t channels,
                  const T* bias, T* out) {
    constexpr int WIDE = X == 1 ? 4 : 2;
    const int64_t vectors = channels >= WIDE * L ? WIDE : channels >= 2 * L ? 2 : 1;
    const auto kernel = vectors == WIDE ? sum_taps<X, WIDE> : vectors == 2 ? sum_taps<X, 2> : sum_taps<X, 1>;
    for (int64_t c = 0; c < channels && channels >= L; c += vectors * L) {
        const int64_t at = std::min(c, channels - vectors * L);
        kernel(source + at, step, reach, weights + at, channels, bias ? bias + at : nullptr, out + at);
    }
    for (int64_t c = 0; c < channels && channels < L; ++c)
        for (int x = 0; x < X; ++x) {
            T sum = bias ? bias[c] : T(0);
            for (size_t k = 0; k < reach.count; ++k)
                sum += source[reach.at[k] + x * step + c] * weights[reach.tap[k] * width + c];
            out[x * channels + c] = sum;
        }
}

constexpr int RUN = 4;  // vectors of a row that are computed together

/// `sum_taps` of `count` elements of a row whose places lie side by side, with fewer channels than a vector has: the weights,
/// and the bias, come again and again, and vectors begin where their channel is.
void sum_row_of_few(const T* source, const Reach& reach, const T* weights, int64_t width, int64_t channels, const T* bias,
                    int64_t count, T* out) {
    const int64_t vectors = count >= RUN * L ? RUN : 1;
    const auto kernel = vectors == RUN ? sum_taps<1, RUN> : sum_taps<1, 1>;
    for (int64_t i = 0; i < count; i += vectors * L) {
        const int64_t at = std::min(i, count - vectors * L), c = at % channels;
        kernel(source + at, 0, reach, weights + c, width, bias ? bias + c : nullptr, out + at);
    }
}

[[gnu::cold]] KernelPtr correlation(const Request& r, bool is_grad) {
    const Operand &out = r.operands[0], &source = r.operands[1];
    const DType dtype = out.dtype;
    const auto taps_of = std::make_shared<const StagedOperand>(StagedOperand::contiguous_in(r.operands[2], DType::f32));
    const Operand& weight = taps_of->view;
    const int64_t stride = r.attrs.integers("stride")[1], gap = r.attrs.integers("dilation")[1];
    const auto window_of = [&](DType seen) {
        const bool has_one = out.shape[1] >= L && (!is_grad || stride <= 2);
        return has_one ? Window(seen, weight.shape[3], is_grad ? 1 : stride, gap) : Window();
    };
    const bool is_direct = (!is_grad || stride == 1) && bool(window_of(dtype));
    const Window window = window_of(is_direct ? dtype : DType::f32);
    const int64_t spread = is_grad && window ? stride : 1;
    const bool is_staged = spread > 1 || (is_half(dtype) && !is_direct);
    Moves moves(r, weight, source, is_grad, is_staged, spread);
    moves.find_columns(out.shape[3]);
    const int64_t n = out.shape[0], channels = out.shape[1], rows = out.shape[2], columns = out.shape[3];
    const int64_t taps = moves.kh * moves.kw;
    const bool has_bias = !is_grad && r.operands.size() == 4;
    const Inner inner = moves.inner(columns);
    const int64_t run = (inner.end - inner.begin) * channels;
    const bool by_run = channels < L && inner.step == channels && run >= L;
    const int64_t left = is_grad ? moves.kw - 1 - moves.left : moves.left, seen_width = (moves.w - 1) * spread + 1;
    const int64_t width = by_run ? channels + RUN * L : channels;
    const double ns = double(columns * channels * taps) / PER_NS<T> * 2;
    return make_kernel(ns * double(n * rows), [=](char* const* data, const Scalar*) {
        const Seen seen(*taps_of, data[2]);
        const T* w = reinterpret_cast<const T*>(seen.data());
        Scratch<T> packed(taps * width), biases(has_bias ? width : 0);
        if (has_bias) convert_line(data[3], dtype, channels, reinterpret_cast<char*>(biases.data()), DType::f32);
        // Zeros between pixels would make NaN of weights that are not finite.
        const bool by_window = window && (spread == 1 || std::all_of(w, w + channels * taps, [](T x) { return std::isfinite(x); }));
        pack_taps(w, channels, taps, is_grad && by_window ? moves.kw : 0, packed.data(), width);
        for (int64_t i = channels; i < width; ++i) {
            for (int64_t t = 0; t < taps; ++t) packed[t * width + i] = packed[t * width + i - channels];
            if (has_bias) biases[i] = biases[i - channels];
        }
        const T* bias = has_bias ? biases.data() : nullptr;
        parallel_for(n * rows, ns, [&](int64_t begin, int64_t end) {
            Reach reach = moves.room(), row_reach = moves.room();
            Rows sources(data[1], source, moves.kept, is_staged, spread);
            Scratch<T> made(is_staged ? columns * channels : 0);
            for (int64_t i = begin; i < end; ++i) {
                for (int64_t k = 0; k < moves.kh; ++k) {
                    const int64_t at_y = moves.seen(i % rows, k, moves.step_y, moves.gap_y, moves.top, moves.h);
                    if (at_y >= 0) sources.bring(i / rows, at_y);
                }
                moves.reach_rows(i % rows, &row_reach);
                const char* const image = sources.image(i / rows);
                char* const row = data[0] + i * columns * channels * size_of(dtype);
                char* const made_row = is_staged ? reinterpret_cast<char*>(made.data()) : row;
                const T* const x = reinterpret_cast<const T*>(image);
                T* const to = reinterpret_cast<T*>(made_row);
                if (by_window)
                    window.sum_row(image, moves.column / spread, left, is_grad ? 1 : stride, seen_width, row_reach, packed.data(), width,
                                   bias, columns, made_row);
                for (int64_t column = by_window ? columns : 0; column < columns; ++column) {
                    if (column == inner.begin && by_run) {
                        moves.reach(row_reach, column, &reach);
                        sum_row_of_few(x, reach, packed.data(), width, channels, bias, run, to + column * channels);
                        column = inner.end - 1;
                        continue;
                    }
                    if (column == inner.begin && inner.end - column >= PLACES) {
                        moves.reach(row_reach, column, &reach);
                        for (; column < inner.end; column += PLACES) {
                            const int64_t at = std::min(column, inner.end - PLACES);
                            sum_channels<PLACES>(x + (at - inner.begin) * inner.step, inner.step, reach, packed.data(), width, channels, bias,
                                                 to + at * channels);
                        }
                        column = inner.end - 1;
                        continue;
                    }
                    moves.reach(row_reach, column, &reach);
                    sum_channels<1>(x, 0, reach, packed.data(), width, channels, bias, to + column * channels);
                }
                if (is_staged) convert_line(made_row, DType::f32, columns * channels, row, dtype);
            }
        });
    });
}

/// Chunks of rows are summed each by itself, and then in order, however many threads there are.
[[gnu::cold]] KernelPtr weight_grad(const Request& r) {
    const Operand &out = r.operands[0], &grad = r.operands[1], &source = r.operands[2];
    const DType dtype = out.dtype;
    const bool is_staged = is_half(dtype);
    const Moves moves(r, out, source, false, is_staged);
    const int64_t channels = out.shape[0], rows = grad.shape[2], columns = grad.shape[3], taps = moves.kh * moves.kw;
    const int64_t all = grad.shape[0] * rows, chunks = (all + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
    const auto made = std::make_shared<const StagedOperand>(StagedOperand::contiguous_in(out, DType::f32, true));
    const Inner inner = moves.inner(columns);
    const double ns = double(columns * channels * taps * ROWS_AT_ONCE) / PER_NS<T> * 2;
    note_scratch(chunks * taps * channels * int64_t(sizeof(T)));
    return make_kernel(ns * double(chunks), [=](char* const* data, const Scalar*) {
        Scratch<T> partial(chunks * taps * channels);
        parallel_for(chunks, ns, [&](int64_t begin, int64_t end) {
            Rows sources(data[2], source, moves.kept, is_staged), grads(data[1], grad, is_staged ? 1 : rows, is_staged);
            for (int64_t chunk = begin; chunk < end; ++chunk) {
                T* sums = partial.data() + chunk * taps * channels;
                std::fill_n(sums, taps * channels, T(0));
                for (int64_t i = chunk * ROWS_AT_ONCE; i < std::min(all, (chunk + 1) * ROWS_AT_ONCE); ++i) {
                    grads.bring(i / rows, i % rows);
                    const T* g = reinterpret_cast<const T*>(grads.image(i / rows)) + (is_staged ? 0 : i % rows * columns * channels);
                    for (int64_t k = 0; k < moves.kh; ++k) {
                        const int64_t at_y = moves.seen(i % rows, k, moves.step_y, moves.gap_y, moves.top, moves.h);
                        if (at_y < 0) continue;
                        sources.bring(i / rows, at_y);
                        const T* x = reinterpret_cast<const T*>(sources.image(i / rows)) + at_y % moves.kept * moves.row;
                        const Places places{g, x, 1, 0, 0, columns, moves.w, channels, moves.column,
                                            moves.step_x, moves.gap_x, moves.left, inner.begin, inner.end};
                        sum_products_of_row(places, moves.kw, sums + k * moves.kw * channels);
                    }
                }
            }
        });
        const int64_t count = taps * channels;
        add_parts(partial.data(), chunks, count);
        const Scratch<> staged(made->nbytes);
        char* const to = made->nbytes ? staged.data() : data[0];
        matmul::transpose(partial.data(), channels, taps, channels, reinterpret_cast<T*>(to), taps);
        if (made->nbytes) run_copy(*made->copy, data[0], to);
    });
}

}  // namespace

[[gnu::cold]] KernelPtr conv2d_depthwise(const Request& r) {
    const bool of_weight = r.op == "conv2d_weight_grad", of_input = r.op == "conv2d_input_grad";
    const Operand& weight = r.operands[of_weight ? 0 : 2];
    const Operand &a = r.operands[of_weight ? 2 : 0], &b = r.operands[1];
    const int64_t groups = r.attrs.integer("groups");
    if (groups < 2 || weight.shape[0] != groups || weight.shape[1] != 1 || !is_channels_last(a) || !is_channels_last(b))
        return nullptr;
    if (r.operands.size() == 4 && r.operands[3].strides[0] != 1) return nullptr;
    if (of_weight && groups < 4) return nullptr;  // no vector has so few: planes are quicker
    if (weight.dtype == DType::f64) return nullptr;
    return of_weight ? weight_grad(r) : correlation(r, of_input);
}

}  // namespace norch::nn
