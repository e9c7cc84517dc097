// conv2d of 3 x 3 and the gradient of its input by Winograd's F(2x2, 3x3) (Lavin and Gray, 2016).
#include <atomic>

#include "common/scratch.h"
#include "matmul/transpose.h"
#include "nn/winograd.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::nn {
namespace {

using namespace winograd;
using Lanes = vector_t<float, LANES>;

constexpr int64_t TILES_AT_ONCE = 96, LEAST_AT_ONCE = 16;
constexpr int64_t WEIGHTS_AT_ONCE = 16;
constexpr int64_t CHANNELS_AT_ONCE = 128;  // summed on their own, for accuracy; the factors of as many stay in the first cache

/// Where the weight of a source channel, a target channel and a tap lies.
struct WeightStrides {
    int64_t source, target, tap;
    bool is_turned;  // the taps go backwards
};

/// out[n, t, y, x] = bias[t] + the sum over s, i and j of image[n, s, y + i - top, x + j - left] * weight[s, t, i, j].
class Convolution {
public:
    Convolution(const Operand& image, const Operand& out, int64_t top, int64_t left, WeightStrides weight)
        : image_(image),
          out_(out),
          top_(top),
          left_(left),
          weight_(weight),
          tiles_{out.shape[0], out.shape[2], out.shape[3]},
          from_(image.shape[1]),
          to_(out.shape[1]),
          panels_(in_panels(to_)) {}

    double work() const { return double(tiles_.count()) * per_tile(); }
    int64_t factors_size() const { return panels_ * POINTS * from_ * PANEL; }

    /// Returns whether all results are finite: what is not would be NaN in all of a tile.
    bool run(const float* image, const float* weight, const float* bias, int64_t bias_stride, float* out) const {
        const Scratch<float> factors(factors_size());
        const int64_t parts = (from_ + WEIGHTS_AT_ONCE - 1) / WEIGHTS_AT_ONCE;
        parallel_for(panels_ * parts, double(WEIGHTS_AT_ONCE * PANEL * 2), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t first = i % parts * WEIGHTS_AT_ONCE;
                take_weights(weight, i / parts, first, std::min(WEIGHTS_AT_ONCE, from_ - first), factors.data());
            }
        });
        std::atomic<bool> is_finite = true;
        const int64_t share = tiles_.count() / num_threads();
        const int64_t rows = std::max<int64_t>(1, std::clamp(share, LEAST_AT_ONCE, TILES_AT_ONCE) / tiles_.across());
        const int64_t strips = (tiles_.rows() + rows - 1) / rows, most = rows * tiles_.across();
        const int64_t ranges = channel_ranges(strips, panels_), items = strips * ranges;
        const int64_t room = most | 1;  // of an even number of tiles all points might share a few sets of the first cache
        parallel_for(items, double(most) * per_tile() / double(ranges), [&](int64_t begin, int64_t end) {
            const int64_t pitch = pitch_of(from_);
            const int64_t pixels = std::max((2 * std::min(rows, tiles_.down()) + 2) * (2 * tiles_.across() + 2) * pitch,
                                            4 * most * PANEL);
            const Scratch<float> points(POINTS * room * pitch), products(POINTS * room * PANEL), own(2 * pixels);
            for (int64_t item = begin; item < end; ++item) {
                const int64_t range = item % ranges, first = item / ranges * rows, last = std::min(tiles_.rows(), first + rows);
                const int64_t count = (last - first) * tiles_.across();
                for_strips(tiles_, first, last, [&](const Strip& s) {
                    const Pixels seen{2 * s.rows + 2, 2 * tiles_.across() + 2, pitch};
                    take_pixels(image + s.image * image_.stride[0], image_, 2 * s.top - top_, -left_, seen, own.data(),
                                own.data() + pixels);
                    points_of_windows(own.data(), seen, s.rows, tiles_.across(),
                                      points.data() + s.before * tiles_.across() * pitch, room * pitch);
                });
                for (int64_t panel = panels_ * range / ranges; panel < panels_ * (range + 1) / ranges; ++panel) {
                    multiply(points.data(), room * pitch, pitch, count, factors.data() + panel * POINTS * from_ * PANEL,
                             products.data(), room * PANEL);
                    alignas(64) float start[PANEL] = {};
                    const int64_t channels = std::min(PANEL, to_ - panel * PANEL);
                    for (int64_t c = 0; c < channels && bias; ++c) start[c] = bias[(panel * PANEL + c) * bias_stride];
                    for_strips(tiles_, first, last, [&](const Strip& s) {
                        const float* from = products.data() + s.before * tiles_.across() * PANEL;
                        if (!put_together(from, room * PANEL, s.rows, start, own.data())) is_finite = false;
                        write(own.data(), s, channels, out + s.image * out_.stride[0] + panel * PANEL * out_.stride[1]);
                    });
                }
            }
        });
        return is_finite;
    }

private:
    double per_tile() const { return double(POINTS * panels_ * PANEL * (from_ + 16)) / PER_NS<float>; }

    /// factors[panel][point][source][target] for some of the source channels: G g G^T of each 3 x 3.
    void take_weights(const float* weight, int64_t panel, int64_t first, int64_t count, float* factors) const {
        const int64_t channels = std::min(PANEL, to_ - panel * PANEL);
        alignas(64) float taps[WEIGHTS_AT_ONCE * 9 * PANEL] = {};
        weight += panel * PANEL * weight_.target + first * weight_.source;
        const auto& [source, target, tap_stride, is_turned] = weight_;
        if (source == 9 && tap_stride == 1) {
            matmul::transpose(weight, target, channels, count * 9, taps, PANEL);
        } else if (source == 1) {
            for (int64_t t = 0; t < 9; ++t)
                matmul::transpose(weight + t * tap_stride, target, channels, count, taps + t * PANEL, 9 * PANEL);
        } else if (target == 1) {
            for (int64_t s = 0; s < count; ++s)
                for (int64_t t = 0; t < 9; ++t)
                    std::copy_n(weight + s * source + t * tap_stride, channels, taps + (s * 9 + t) * PANEL);
        } else {
            for (int64_t s = 0; s < count; ++s)
                matmul::transpose(weight + s * source, target, channels, 9, taps + s * 9 * PANEL, PANEL);
        }
        factors += (panel * POINTS * from_ + first) * PANEL;
        const Lanes half = Lanes{} + 0.5f;
        for (int64_t s = 0; s < count; ++s) {
            for (int64_t c = 0; c < PANEL; c += LANES) {
                Lanes rows[4][3];
                const auto tap = [&](int i, int j) {
                    const int at = is_turned ? 8 - (3 * i + j) : 3 * i + j;
                    return load_vector<LANES>(taps + (s * 9 + at) * PANEL + c);
                };
                NORCH_UNROLL
                for (int j = 0; j < 3; ++j) {
                    const Lanes sum = (tap(0, j) + tap(2, j)) * half, middle = tap(1, j) * half;
                    rows[0][j] = tap(0, j), rows[1][j] = sum + middle, rows[2][j] = sum - middle, rows[3][j] = tap(2, j);
                }
                float* to = factors + s * PANEL + c;
                NORCH_UNROLL
                for (int i = 0; i < 4; ++i, to += 4 * from_ * PANEL) {
                    const Lanes sum = (rows[i][0] + rows[i][2]) * half, middle = rows[i][1] * half;
                    store_vector(to, rows[i][0]);
                    store_vector(to + from_ * PANEL, sum + middle);
                    store_vector(to + 2 * from_ * PANEL, sum - middle);
                    store_vector(to + 3 * from_ * PANEL, rows[i][2]);
                }
            }
        }
    }

    void multiply(const float* points, int64_t point_stride, int64_t pitch, int64_t count, const float* factors,
                  float* products, int64_t product_stride) const {
        alignas(64) static constexpr float zeros[PANEL] = {};
        for (int64_t i = 0; i < POINTS; ++i, points += point_stride, products += product_stride) {
            for (int64_t c = 0; c < from_; c += CHANNELS_AT_ONCE) {
                matmul::TileInput<float> in{nullptr, pitch, 1, factors + (i * from_ + c) * PANEL, PANEL,
                                            std::min(CHANNELS_AT_ONCE, from_ - c), zeros, 0};
                matmul::for_tiles<float>(count, matmul::tile_kernel<float, int(LANES), matmul::TILE_VECTORS>,
                                         [&](int64_t first, matmul::TileKernel<float> kernel, int64_t) {
                                             float* to = products + first * PANEL;
                                             in.a = points + first * pitch + c;
                                             if (c) in.start = to, in.start_row = PANEL;
                                             kernel(in, to, PANEL);
                                         });
            }
        }
    }

    /// A^T m A of each tile, to pixels[y][x][c].
    bool put_together(const float* products, int64_t stride, int64_t rows, const float* start, float* pixels) const {
        const int64_t across = tiles_.across(), line = 2 * across * PANEL;
        Lanes zero = {};
        for (int64_t y = 0; y < rows; ++y) {
            for (int64_t x = 0; x < across; ++x, products += PANEL) {
                float* to = pixels + 2 * y * line + 2 * x * PANEL;
                NORCH_UNROLL
                for (int64_t c = 0; c < PANEL; c += LANES) {
                    Lanes half[4][2];
                    NORCH_UNROLL
                    for (int i = 0; i < 4; ++i) {
                        const float* from = products + 4 * i * stride + c;
                        const Lanes a = load_vector<LANES>(from + stride), b = load_vector<LANES>(from + 2 * stride);
                        half[i][0] = load_vector<LANES>(from) + (a + b);
                        half[i][1] = (a - b) - load_vector<LANES>(from + 3 * stride);
                    }
                    const Lanes first = load_vector<LANES>(start + c);
                    NORCH_UNROLL
                    for (int j = 0; j < 2; ++j) {
                        const Lanes upper = half[0][j] + (half[1][j] + half[2][j]) + first;
                        const Lanes lower = (half[1][j] - half[2][j]) - half[3][j] + first;
                        zero += (upper + lower) * 0.0f;
                        store_vector(to + j * PANEL + c, upper);
                        store_vector(to + line + j * PANEL + c, lower);
                    }
                }
            }
        }
        float sum = 0;
        for (int64_t l = 0; l < LANES; ++l) sum += zero[l];
        return sum == 0;
    }

    void write(const float* pixels, const Strip& s, int64_t channels, float* out) const {
        const auto& stride = out_.stride;
        const int64_t first = 2 * s.top, rows = std::min(2 * s.rows, tiles_.height - first), line = 2 * tiles_.across() * PANEL;
        out += first * stride[2];
        if (stride[1] == 1) {
            for (int64_t r = 0; r < rows; ++r)
                for (int64_t x = 0; x < tiles_.width; ++x)
                    std::copy_n(pixels + r * line + x * PANEL, channels, out + r * stride[2] + x * stride[3]);
        } else if (line == tiles_.width * PANEL && stride[2] == tiles_.width) {
            matmul::transpose(pixels, PANEL, rows * tiles_.width, channels, out, stride[1]);
        } else {
            for (int64_t r = 0; r < rows; ++r)
                matmul::transpose(pixels + r * line, PANEL, tiles_.width, channels, out + r * stride[2], stride[1]);
        }
    }

    Image image_, out_;
    int64_t top_, left_;
    WeightStrides weight_;
    Tiles tiles_;
    int64_t from_, to_, panels_;
};

}  // namespace

[[gnu::cold]] KernelPtr conv2d_winograd(const Request& r, KernelPtr direct) {
    const Operand &out = r.operands[0], &image = r.operands[1], &weight = r.operands[2];
    const bool of_input = r.op == "conv2d_input_grad";
    const auto& pads = r.attrs.integers("pads");
    if (!has_pixels(image) || !is_fit(r, weight, out, image.shape[1], out.shape[1])) return direct;
    const int64_t of_out = weight.strides[0], of_in = weight.strides[1], tap = weight.strides[3];
    const Convolution all(image, out, of_input ? 2 - pads[0] : pads[0], of_input ? 2 - pads[2] : pads[2],
                          of_input ? WeightStrides{of_out, of_in, tap, true} : WeightStrides{of_in, of_out, tap, false});
    const bool has_bias = r.operands.size() == 4;
    const int64_t bias_stride = has_bias ? r.operands[3].strides[0] : 0;
    note_scratch_instead(all.factors_size() * int64_t(sizeof(float)));
    std::shared_ptr<Kernel> exact = std::move(direct);
    return make_kernel(all.work(), [all, exact, has_bias, bias_stride](char* const* data, const Scalar* scalars) {
        const auto at = [data](int i) { return reinterpret_cast<float*>(data[i]); };
        if (!all.run(at(1), at(2), has_bias ? at(3) : nullptr, bias_stride, at(0))) exact->run(data, scalars);
    });
}

}  // namespace norch::nn
