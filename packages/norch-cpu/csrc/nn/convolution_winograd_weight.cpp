// The gradient of conv2d's weight of 3 x 3 by Winograd's F(2x2, 3x3): the adjoint of the convolution, whose products run
// over tiles. Tiles are summed in an order that does not depend on the number of threads.
#include <atomic>

#include "common/scratch.h"
#include "matmul/gemm_pack.h"
#include "nn/winograd.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::nn {
namespace {

using namespace winograd;
using Lanes = vector_t<float, LANES>;

constexpr int64_t POINT_BYTES = 4 << 20;  // of both images' points at a time: they stay in the caches
constexpr int64_t LEAST_AT_ONCE = 128;    // tiles
constexpr int64_t TILES_AT_ONCE = 32;     // whose pixels are moved
constexpr int64_t CHANNELS_AT_ONCE = 4 * matmul::TILE_ROWS;
constexpr int64_t WEIGHTS_AT_ONCE = 16;

class WeightGradient {
public:
    WeightGradient(const Operand& out, const Operand& grad, const Operand& image, int64_t top, int64_t left)
        : grad_(grad),
          image_(image),
          top_(top),
          left_(left),
          tiles_{grad.shape[0], grad.shape[2], grad.shape[3]},
          from_(image.shape[1]),
          to_(grad.shape[1]),
          panels_(in_panels(to_)),
          pitch_(pitch_of(from_)),
          out_(out.strides) {
        const int64_t each = POINTS * (pitch_ + panels_ * PANEL) * int64_t(sizeof(float));
        const int64_t wanted = std::max(LEAST_AT_ONCE, POINT_BYTES / each);
        rows_ = std::clamp<int64_t>(wanted / tiles_.across(), 1, std::max<int64_t>(1, tiles_.rows()));
        most_ = rows_ * tiles_.across() | 1;  // of an even number of tiles all points might share a few sets of the first cache
    }

    double work() const { return double(tiles_.count() * POINTS * panels_ * PANEL * (from_ + 16)) / PER_NS<float>; }
    int64_t scratch() const { return sums_size() + POINTS * most_ * (pitch_ + panels_ * PANEL); }

    /// Returns whether all results are finite.
    bool run(const float* grad, const float* image, float* out) const {
        const Scratch<float> sums(sums_size()), windows(POINTS * most_ * pitch_), grads(POINTS * most_ * panels_ * PANEL);
        const double row_ns = double(tiles_.across() * POINTS * (pitch_ + panels_ * PANEL)) / SIMD_WIDTH<float>;
        const int64_t parts = (from_ + CHANNELS_AT_ONCE - 1) / CHANNELS_AT_ONCE;
        for (int64_t first = 0; first < tiles_.rows(); first += rows_) {
            const int64_t rows = std::min(rows_, tiles_.rows() - first), count = rows * tiles_.across();
            parallel_for(rows, row_ns, [&](int64_t begin, int64_t end) {
                const int64_t few = std::max<int64_t>(1, TILES_AT_ONCE / tiles_.across());
                for (int64_t i = begin; i < end; i += few)
                    take_points(grad, image, first + i, first + std::min(end, i + few), i, windows.data(), grads.data());
            });
            const double item_ns = double(count * CHANNELS_AT_ONCE * panels_ * PANEL) / PER_NS<float>;
            parallel_for(POINTS * parts, item_ns, [&](int64_t begin, int64_t end) {
                const Scratch<float> packed(count * CHANNELS_AT_ONCE);
                for (int64_t i = begin; i < end; ++i) {
                    const int64_t top = i % parts * CHANNELS_AT_ONCE, height = std::min(CHANNELS_AT_ONCE, from_ - top);
                    multiply(windows.data(), grads.data(), i / parts, top, height, count, first == 0, packed.data(), sums.data());
                }
            });
        }
        std::atomic<bool> is_finite = true;
        const int64_t groups = (from_ + WEIGHTS_AT_ONCE - 1) / WEIGHTS_AT_ONCE;
        parallel_for(panels_ * groups, double(WEIGHTS_AT_ONCE * PANEL * 2), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t source = i % groups * WEIGHTS_AT_ONCE;
                if (!put_together(sums.data(), i / groups, source, std::min(WEIGHTS_AT_ONCE, from_ - source), out))
                    is_finite = false;
            }
        });
        return is_finite;
    }

private:
    int64_t sums_size() const { return POINTS * panels_ * PANEL * from_; }

    /// The points of the windows, windows[point][tile][c], and of the gradient, grads[panel][point][tile][c].
    void take_points(const float* grad, const float* image, int64_t begin, int64_t end, int64_t at, float* windows,
                     float* grads) const {
        const int64_t across = tiles_.across(), rows = std::min(end - begin, tiles_.down());
        const int64_t pitch = panels_ * PANEL;
        const int64_t size = std::max((2 * rows + 2) * (2 * across + 2) * pitch_, 2 * rows * 2 * across * pitch);
        const Scratch<float> own(2 * size);
        for_strips(tiles_, begin, end, [&](const Strip& s) {
            const int64_t tile = (at + s.before) * across;
            const Pixels seen{2 * s.rows + 2, 2 * across + 2, pitch_}, given{2 * s.rows, 2 * across, pitch};
            take_pixels(image + s.image * image_.stride[0], image_, 2 * s.top - top_, -left_, seen, own.data(), own.data() + size);
            points_of_windows(own.data(), seen, s.rows, across, windows + tile * pitch_, most_ * pitch_);
            if (to_ < pitch)  // no channel is there that a sum could be taken for not finite by
                for (float* memory : {own.data(), own.data() + size}) std::fill_n(memory, given.size(), 0.0f);
            take_pixels(grad + s.image * grad_.stride[0], grad_, 2 * s.top, 0, given, own.data(), own.data() + size);
            points_of_grads(own.data(), given, s.rows, grads + tile * PANEL);
        });
    }

    /// A g A^T of each tile.
    void points_of_grads(const float* pixels, const Pixels& about, int64_t rows, float* points) const {
        const int64_t across = tiles_.across(), line = about.columns * about.pitch, stride = most_ * PANEL;
        for (int64_t y = 0; y < rows; ++y) {
            for (int64_t x = 0; x < across; ++x, points += PANEL) {
                const float* from = pixels + 2 * y * line + 2 * x * about.pitch;
                for (int64_t c = 0; c < about.pitch; c += LANES) {
                    Lanes half[4][2];
                    NORCH_UNROLL
                    for (int j = 0; j < 2; ++j) {
                        const Lanes a = load_vector<LANES>(from + j * about.pitch + c);
                        const Lanes b = load_vector<LANES>(from + line + j * about.pitch + c);
                        half[0][j] = a, half[1][j] = a + b, half[2][j] = a - b, half[3][j] = -b;
                    }
                    float* to = points + c / PANEL * POINTS * stride + c % PANEL;
                    NORCH_UNROLL
                    for (int i = 0; i < 4; ++i, to += 4 * stride) {
                        store_vector(to, half[i][0]);
                        store_vector(to + stride, half[i][0] + half[i][1]);
                        store_vector(to + 2 * stride, half[i][0] - half[i][1]);
                        store_vector(to + 3 * stride, -half[i][1]);
                    }
                }
            }
        }
    }

    /// sums[panel][point][source][target] of some source channels: what these tiles contribute.
    void multiply(const float* windows, const float* grads, int64_t point, int64_t top, int64_t height, int64_t count,
                  bool is_first, float* packed, float* sums) const {
        alignas(64) static constexpr float zeros[PANEL] = {};
        matmul::pack_tiles(windows + point * most_ * pitch_ + top, pitch_, count, height, packed);
        for (int64_t panel = 0; panel < panels_; ++panel) {
            const int64_t at = panel * POINTS + point;
            matmul::TileInput<float> in{nullptr, 1, 0, grads + at * most_ * PANEL, PANEL, count, zeros, 0};
            float* const c = sums + (at * from_ + top) * PANEL;
            matmul::for_tiles<float>(height, matmul::tile_kernel<float, int(LANES), matmul::TILE_VECTORS>,
                                     [&](int64_t first, matmul::TileKernel<float> kernel, int64_t rows) {
                                         in.a = packed + first * count, in.a_step = rows;
                                         if (!is_first) in.start = c + first * PANEL, in.start_row = PANEL;
                                         kernel(in, c + first * PANEL, PANEL);
                                     });
        }
    }

    /// G^T s G of each channel's sums.
    bool put_together(const float* sums, int64_t panel, int64_t first, int64_t count, float* out) const {
        alignas(64) float taps[WEIGHTS_AT_ONCE * 9 * PANEL];
        const int64_t stride = from_ * PANEL;
        const Lanes part = Lanes{} + 0.5f;
        Lanes zero = {};
        sums += (panel * POINTS * from_ + first) * PANEL;
        for (int64_t s = 0; s < count; ++s) {
            for (int64_t c = 0; c < PANEL; c += LANES) {
                Lanes half[4][3];
                NORCH_UNROLL
                for (int i = 0; i < 4; ++i) {
                    const float* from = sums + 4 * i * stride + s * PANEL + c;
                    const Lanes a = load_vector<LANES>(from + stride), b = load_vector<LANES>(from + 2 * stride);
                    const Lanes sum = (a + b) * part;
                    half[i][0] = load_vector<LANES>(from) + sum;
                    half[i][1] = (a - b) * part;
                    half[i][2] = sum + load_vector<LANES>(from + 3 * stride);
                }
                float* to = taps + s * 9 * PANEL + c;
                NORCH_UNROLL
                for (int j = 0; j < 3; ++j) {
                    const Lanes sum = (half[1][j] + half[2][j]) * part, middle = (half[1][j] - half[2][j]) * part;
                    const Lanes upper = half[0][j] + sum, lower = sum + half[3][j];
                    zero += (upper + middle + lower) * 0.0f;
                    store_vector(to + j * PANEL, upper);
                    store_vector(to + (3 + j) * PANEL, middle);
                    store_vector(to + (6 + j) * PANEL, lower);
                }
            }
        }
        const int64_t channels = std::min(PANEL, to_ - panel * PANEL);
        out += panel * PANEL * out_[0] + first * out_[1];
        if (out_[3] == 1)
            matmul::transpose(taps, PANEL, count * 9, channels, out, out_[0]);
        else
            for (int64_t t = 0; t < 9; ++t)
                matmul::transpose(taps + t * PANEL, 9 * PANEL, count, channels, out + t * out_[3], out_[0]);
        float sum = 0;
        for (int64_t l = 0; l < LANES; ++l) sum += zero[l];
        return sum == 0;
    }

    Image grad_, image_;
    int64_t top_, left_;
    Tiles tiles_;
    int64_t from_, to_, panels_, pitch_;
    std::vector<int64_t> out_;
    int64_t rows_, most_;  // of tiles at a time: rows, and room for all
};

}  // namespace

[[gnu::cold]] KernelPtr conv2d_winograd_weight(const Request& r, KernelPtr direct) {
    const Operand &out = r.operands[0], &grad = r.operands[1], &image = r.operands[2];
    const auto& pads = r.attrs.integers("pads");
    if (!has_pixels(grad) || !has_pixels(image) || !is_fit(r, out, grad, image.shape[1], grad.shape[1])) return direct;
    const WeightGradient all(out, grad, image, pads[0], pads[2]);
    note_scratch_instead(all.scratch() * int64_t(sizeof(float)));
    std::shared_ptr<Kernel> exact = std::move(direct);
    return make_kernel(all.work(), [all, exact](char* const* data, const Scalar* scalars) {
        const auto at = [data](int i) { return reinterpret_cast<float*>(data[i]); };
        if (!all.run(at(1), at(2), at(0))) exact->run(data, scalars);
    });
}

}  // namespace norch::nn
