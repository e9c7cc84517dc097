// conv2d and the gradient of its input as products of blocks (matmul/tiles.h): an image's pixels are packed once, 32 channels
// as a line of pairs. At stride 1 the lines of windows next to each other are blocks as they lie, from whichever pixel a tap
// has them begin; else a window's line is copied for each tap.
#include <algorithm>
#include <atomic>

#include "common/scratch.h"
#include "matmul/mixed.h"
#include "matmul/tiles.h"
#include "matmul/transpose.h"
#include "nn/convolution.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"
#include "runtime/tile.h"
#include "runtime/widen.h"

#ifdef NORCH_TILES
namespace norch::nn {
namespace {

using matmul::BLOCK, matmul::BLOCK_LINES, matmul::BLOCK_STEPS, matmul::PairOrder, matmul::Parts;

constexpr int64_t LINES = 2 * BLOCK_LINES;   // that are multiplied together
constexpr int64_t WINDOWS = 4 * LINES;       // that are packed at a time
constexpr int64_t MOST_BLOCKS = 20;          // of k at a time: those of 32 lines stay in the first cache
constexpr int64_t LINE = BLOCK_STEPS / 2;    // pairs of one line of a block

int64_t round_up(int64_t x, int64_t y) { return (x + y - 1) / y * y; }

template <class S>
class BlockCorrelation {
public:
    BlockCorrelation(Pass pass, const Passes& all, Parts parts, int64_t bias_stride)
        : image_(std::move(pass.image)),
          grid_(std::move(pass.grid)),
          target_(pass.target),
          weights_(std::move(pass.weights)),
          groups_(all.groups),
          from_(image_.size[1] / groups_),
          channels_(all.channels),
          bias_stride_(bias_stride),
          parts_(parts),
          lines_(matmul::parts_of(parts)),
          chunks_(round_up(from_, BLOCK_STEPS) / BLOCK_STEPS),
          pixel_(chunks_ * lines_ * BLOCK),
          tiling_(Tiling::make<uint16_t>(grid_, chunks_ * lines_ * BLOCK_STEPS, 1 << 14,
                                         4 * num_threads() / std::max<int64_t>(image_.size[0] * groups_, 1))),
          depth_(int64_t(grid_.taps.size()) * chunks_),
          panel_(depth_ * lines_ * BLOCK),
          columns_(round_up(channels_, LINES)) {
        const int64_t width = (tiling_.columns - 1) * grid_.step_x + grid_.extent_x;
        const int64_t height = (tiling_.rows - 1) * grid_.step_y + grid_.extent_y;
        // What lies so has windows across the ends of rows too, of no use; to copy costs more where products are fast.
        const double most = matmul::has_tiles() ? 1.25 : 1.09;
        lies_ = lines_ == 1 && grid_.step_x == 1 && grid_.step_y == 1 && double(width) <= most * double(tiling_.columns);
        if (lies_) {
            constexpr int64_t WAY = 64, APART = 36;  // lines; what is read together shall fall upon different ones of a way
            row_ = width * LINE;
            plane_ = (round_up(height * width + LINES, WAY) + APART) * LINE;
            for (int64_t c = 0; c < chunks_; ++c)  // what a channel's taps see is nearly the same
                for (const Tap& tap : grid_.taps)
                    places_.push_back((tap.y - grid_.top) * row_ + (tap.x - grid_.left) * LINE + c * plane_);
        } else {
            row_ = round_up(std::min(width, image_.size[3]), BLOCK_LINES) / BLOCK_LINES * pixel_;
            plane_ = std::min(height, image_.size[2]) * row_;
            // Windows of several small images fill lines, and weights are read once for all of them.
            if (tiling_.count() == 1)
                together_ = std::max<int64_t>(1, std::min(WINDOWS / (tiling_.rows * tiling_.columns), image_.size[0] / num_threads()));
        }
    }

    /// Pairs of the packed weights.
    int64_t panels_size() const { return groups_ * columns_ / BLOCK_LINES * panel_; }

    double work() const {
        return double(image_.size[0] * groups_ * grid_.rows * grid_.columns) * double(depth_ * BLOCK_STEPS) *
               double(columns_ + 8) / matmul::block_rate(parts_);
    }

    /// Returns false where numbers have no two parts.
    bool run(const S* image, const S* weight, const S* bias, S* out) const {
        const int64_t tiles = (image_.size[0] + together_ - 1) / together_ * groups_ * tiling_.count();
        if (!tiles || !channels_) return true;
        const int64_t ranges = channel_ranges(tiles, columns_ / (2 * LINES)), items = tiles * ranges;
        const Scratch<uint32_t> panels(panels_size());
        if (!pack_weights(weight, panels.data())) return false;
        std::atomic<bool> fits = true;
        parallel_for(items, work() / double(items), [&](int64_t begin, int64_t end) {
            const Scratch<uint32_t> pixels((lies_ ? chunks_ : together_) * plane_);
            const Scratch<uint32_t> windows(lies_ ? 0 : WINDOWS * std::min(depth_, MOST_BLOCKS) * lines_ * LINE);
            const Scratch<float> sums(WINDOWS * columns_);
            for (int64_t item = begin; item < end; ++item) {
                const int64_t i = item / ranges, range = item % ranges, lines = columns_ / LINES;
                const int64_t left = lines * range / ranges * LINES, right = lines * (range + 1) / ranges * LINES;
                const Tile tile = tiling_.tile(grid_, i % tiling_.count());
                const int64_t group = i / tiling_.count() % groups_, n = i / tiling_.count() / groups_ * together_;
                const int64_t images = std::min(together_, image_.size[0] - n);
                const Seen seen = seen_by(tile);
                for (int64_t k = 0; k < images; ++k) {
                    const S* from = image + (n + k) * image_.stride[0] + group * from_ * image_.stride[1];
                    if (lies_) {
                        lay_pixels(from, seen, tile, pixels.data());
                    } else if (!pack_pixels(from, seen, pixels.data() + k * plane_)) {
                        fits = false;
                        return;
                    }
                }
                const uint32_t* panel = panels.data() + (group * columns_ + left) / BLOCK_LINES * panel_;
                const int64_t channel = group * channels_ + left, channels = std::min(channels_, right) - left;
                S* to = out + target_.offset + n * target_.image + channel * target_.channel;
                const int64_t pitch = lies_ ? row_ / LINE : tile.columns;
                const int64_t each = (tile.rows - 1) * pitch + tile.columns, all = images * each;
                for (int64_t first = 0; first < all; first += WINDOWS) {
                    const int64_t count = std::min(WINDOWS, all - first);
                    multiply(pixels.data(), seen, tile, first, count, panel, channels, windows.data(), sums.data());
                    for (int64_t w = first, here; w < first + count; w += here) {
                        here = std::min(each - w % each, first + count - w);
                        put(sums.data() + (w - first) * columns_, tile, pitch, w % each, here, channels,
                            bias ? bias + channel * bias_stride_ : nullptr, to + w / each * target_.image);
                    }
                }
            }
        });
        return fits;
    }

private:
    /// The pixels of the image that a tile's windows see.
    struct Seen {
        int64_t top, bottom, left, right;
    };

    Seen seen_by(const Tile& tile) const {
        const int64_t y = tile.y * grid_.step_y + grid_.top, x = tile.x * grid_.step_x + grid_.left;
        const int64_t height = image_.size[2], width = image_.size[3];
        return {std::clamp<int64_t>(y, 0, height), std::clamp<int64_t>(y + (tile.rows - 1) * grid_.step_y + grid_.extent_y, 0, height),
                std::clamp<int64_t>(x, 0, width), std::clamp<int64_t>(x + (tile.columns - 1) * grid_.step_x + grid_.extent_x, 0, width)};
    }

    bool pack_pixels(const S* from, const Seen& seen, uint32_t* pixels) const {
        const auto& stride = image_.stride;
        bool fits = true;
        for (int64_t y = seen.top; y < seen.bottom; ++y)
            fits &= matmul::pack_blocks(from + y * stride[2] + seen.left * stride[3], stride[3], stride[1], seen.right - seen.left,
                                        from_, parts_, PairOrder::by_line, pixels + (y - seen.top) * row_, pixel_);
        return fits;
    }

    /// The pixels one after the other, for 32 channels after 32, with zeros around the image.
    void lay_pixels(const S* from, const Seen& seen, const Tile& tile, uint32_t* pixels) const {
        const auto& stride = image_.stride;
        const int64_t y = tile.y + grid_.top, x = tile.x + grid_.left, width = tile.columns - 1 + grid_.extent_x;
        const bool is_whole = seen.top == y && seen.left == x && seen.bottom == y + tile.rows - 1 + grid_.extent_y && seen.right == x + width;
        if (!is_whole) std::fill_n(pixels, chunks_ * plane_, 0u);
        for (int64_t r = seen.top; r < seen.bottom; ++r) {  // what is filled up behind a row the next one overwrites
            uint32_t* to = pixels + (r - y) * row_ + (seen.left - x) * LINE;
            for (int64_t c = 0; c < from_; c += BLOCK_STEPS, to += plane_)
                matmul::pack_blocks(from + r * stride[2] + seen.left * stride[3] + c * stride[1], stride[3], stride[1],
                                    seen.right - seen.left, std::min(BLOCK_STEPS, from_ - c), parts_, PairOrder::by_line, to, BLOCK);
        }
    }

    /// A column's weights in k's order: 32 channels of each tap, then the next 32, or all channels of a tap, then of the next; as
    /// blocks.
    bool pack_weights(const S* weight, uint32_t* panels) const {
        const int64_t count = columns_ / BLOCK_LINES, steps = depth_ * BLOCK_STEPS, size = sizeof(S);
        const int64_t taps = int64_t(weights_.taps.size());
        const int64_t next_tap = lies_ ? BLOCK_STEPS : steps / taps, next_chunk = lies_ ? taps * BLOCK_STEPS : BLOCK_STEPS;
        const int64_t tap_step = taps > 1 ? weights_.taps[1] - weights_.taps[0] : 0;
        bool is_even = true;
        for (int64_t t = 0; t < taps; ++t) is_even &= weights_.taps[size_t(t)] == weights_.taps[0] + t * tap_step;
        std::atomic<bool> fits = true;
        parallel_for(groups_ * count, double(BLOCK_LINES * steps) * 0.3, [&](int64_t begin, int64_t end) {
            const Scratch<S> rows(BLOCK_LINES * steps);
            std::fill_n(rows.data(), BLOCK_LINES * steps, store<S>(0.0f));
            for (int64_t i = begin; i < end; ++i) {
                const int64_t first = i % count * BLOCK_LINES, lines = std::clamp<int64_t>(channels_ - first, 0, BLOCK_LINES);
                // Side by side lie the lines, as in the gradient with a channels-last weight, or else a line's taps or channels.
                const bool are_lines_together = weights_.column == 1 && weights_.channel != 1;
                const auto copy = [&](int64_t l, int64_t t, Plane to, Plane from, int64_t rows_there) {
                    for (int64_t c = 0; c < chunks_; ++c) {
                        const int64_t at = i / count * weights_.group + (first + l) * weights_.column + weights_.taps[size_t(t)] +
                                           c * BLOCK_STEPS * weights_.channel;
                        to.data = reinterpret_cast<char*>(rows.data() + l * steps + t * next_tap + c * next_chunk);
                        from.data = reinterpret_cast<char*>(const_cast<S*>(weight + at));
                        copy_tile(to, from, rows_there, std::min(BLOCK_STEPS, from_ - c * BLOCK_STEPS), size);
                    }
                };
                const int64_t channel = weights_.channel * size;
                if (are_lines_together)
                    for (int64_t t = 0; t < taps; ++t) copy(0, t, {nullptr, steps * size, size}, {nullptr, size, channel}, lines);
                else
                    for (int64_t l = 0; l < lines; ++l)
                        for (int64_t t = 0; t < taps; t += is_even ? taps : 1)
                            copy(l, t, {nullptr, next_tap * size, size}, {nullptr, tap_step * size, channel}, is_even ? taps : 1);
                if (!matmul::pack_blocks(rows.data(), steps, int64_t(1), lines, steps, parts_, PairOrder::by_pair,
                                         panels + i * panel_, panel_))
                    fits = false;
            }
        });
        return fits;
    }

    void multiply(const uint32_t* pixels, const Seen& seen, const Tile& tile, int64_t first, int64_t count,
                  const uint32_t* panel, int64_t channels, uint32_t* windows, float* sums) const {
        const int64_t rounds = (depth_ + MOST_BLOCKS - 1) / MOST_BLOCKS, most = (depth_ + rounds - 1) / rounds;
        const matmul::TileRegisters registers;
        for (int64_t from = 0; from < depth_; from += most) {
            const int64_t blocks = std::min(most, depth_ - from), line = blocks * lines_ * BLOCK;
            const Part part{from / chunks_, from % chunks_, blocks};
            for (int64_t w = 0; w < count && !lies_; ++w) {
                const int64_t row = (first + w) / tile.columns, x = (first + w) % tile.columns, y = row % tile.rows;
                pack_window(pixels + row / tile.rows * plane_, seen, (tile.y + y) * grid_.step_y, (tile.x + x) * grid_.step_x, part,
                            windows + w / BLOCK_LINES * line + w % BLOCK_LINES * LINE);
            }
            for (int64_t c = 0; c < channels; c += LINES) {
                for (int64_t w = 0; w < count; w += LINES) {
                    const int rows = count - w > BLOCK_LINES ? 2 : 1, columns = channels - c > BLOCK_LINES ? 2 : 1;
                    matmul::TileFactors factors{windows + w / BLOCK_LINES * line, panel + c / BLOCK_LINES * panel_ + from * lines_ * BLOCK,
                                                line, panel_, blocks, parts_, rows, columns};
                    if (lies_) factors.a = pixels + (first + w) * LINE, factors.a_line = BLOCK, factors.places = places_.data() + from;
                    matmul::multiply_blocks(factors, from > 0, sums + w * columns_ + c, columns_);
                }
            }
        }
    }

    /// Some blocks of k: a tap's channels, of which some are skipped, then the next tap's.
    struct Part {
        int64_t tap, skipped, blocks;
    };

    void pack_window(const uint32_t* pixels, const Seen& seen, int64_t y, int64_t x, const Part& part, uint32_t* to) const {
        constexpr vector_t<uint32_t, LINE> zeros = {};
        int64_t skipped = part.skipped, left = part.blocks;
        for (const Tap* tap = &grid_.taps[size_t(part.tap)]; left > 0; ++tap, skipped = 0) {
            const int64_t blocks = std::min(chunks_ - skipped, left);
            const int64_t row = y + tap->y, column = x + tap->x, at = column - seen.left;
            left -= blocks;
            uint32_t* const end = to + blocks * lines_ * BLOCK;
            if (row >= seen.top && row < seen.bottom && column >= seen.left && column < seen.right) {
                const uint32_t* from = pixels + (row - seen.top) * row_ + at / BLOCK_LINES * pixel_ + at % BLOCK_LINES * LINE +
                                       skipped * lines_ * BLOCK;
                for (; to < end; to += BLOCK, from += BLOCK) store_vector(to, load_vector<LINE>(from));
            } else {
                for (; to < end; to += BLOCK) store_vector(to, zeros);
            }
        }
    }

    /// Writes the sums of some of a tile's windows, of which the next row's begin `pitch` further.
    void put(float* sums, const Tile& tile, int64_t pitch, int64_t first, int64_t count, int64_t channels, const S* bias,
             S* out) const {
        if (bias)
            for (int64_t c = 0; c < channels; ++c) {
                const float one = load(bias[c * bias_stride_]);
                for (int64_t w = 0; w < count; ++w) sums[w * columns_ + c] += one;
            }
        const bool is_run = target_.column == 1 && target_.row == tile.columns && pitch == tile.columns;
        for (int64_t w = 0, here; w < count; w += here) {
            const int64_t y = (first + w) / pitch, x = (first + w) % pitch;
            here = is_run ? count : std::min(pitch - x, count - w);
            const int64_t within = is_run ? count : std::min(here, tile.columns - x);
            if (within > 0) put_run(sums + w * columns_, within, channels, out + (tile.y + y) * target_.row + (tile.x + x) * target_.column);
        }
    }

    void put_run(const float* sums, int64_t count, int64_t channels, S* out) const {
        if (target_.channel == 1) {
            for (int64_t w = 0; w < count; ++w) narrow_row(sums + w * columns_, channels, out + w * target_.column);
            return;
        }
        alignas(64) float turned[BLOCK_LINES * WINDOWS];
        for (int64_t c = 0; c < channels; c += BLOCK_LINES) {
            const int64_t planes = std::min(BLOCK_LINES, channels - c);
            matmul::transpose(sums + c, columns_, count, planes, turned, WINDOWS);
            for (int64_t i = 0; i < planes; ++i) {
                const float* from = turned + i * WINDOWS;
                narrow_to(from, count, out + (c + i) * target_.channel, target_.column);
            }
        }
    }

    Image image_;
    WindowGrid grid_;
    Target target_;
    Weights weights_;
    int64_t groups_, from_, channels_, bias_stride_;
    Parts parts_;
    int64_t lines_;    // blocks for 32 channels
    int64_t chunks_;   // of 32 channels
    int64_t pixel_;    // pairs from 16 pixels to the next
    Tiling tiling_;
    int64_t depth_;    // blocks of k
    int64_t panel_;    // pairs of 16 columns of the weights
    int64_t columns_;  // of the sums
    bool lies_;
    int64_t row_, plane_;  // pairs of the packed pixels
    int64_t together_ = 1;  // images
    std::vector<int64_t> places_;
};

template <class S>
[[gnu::cold]] KernelPtr in_blocks(const Request& r, const Passes& given, Parts parts, KernelPtr direct) {
    const bool has_bias = r.operands.size() == 4;
    std::vector<BlockCorrelation<S>> passes;
    double work = given.is_covered ? 0 : double(r.operands[0].numel());
    int64_t panels = 0;
    for (const Pass& pass : given.all) {
        passes.emplace_back(pass, given, parts, has_bias ? r.operands[3].strides[0] : 0);
        work += passes.back().work();
        panels = std::max(panels, passes.back().panels_size());
    }
    note_scratch_instead(panels * int64_t(sizeof(uint32_t)));
    const int64_t zeros = given.is_covered ? 0 : r.operands[0].numel();
    std::shared_ptr<Kernel> exact = std::move(direct);
    return make_kernel(work, [passes = std::move(passes), exact, has_bias, zeros](char* const* data, const Scalar* scalars) {
        const auto at = [data](int i) { return reinterpret_cast<S*>(data[i]); };
        std::fill_n(at(0), zeros, store<S>(0.0f));
        for (const auto& pass : passes)
            if (!pass.run(at(1), at(2), has_bias ? at(3) : nullptr, at(0))) return exact->run(data, scalars);
    });
}

}  // namespace

std::optional<Parts> block_parts(DType dtype, int64_t channels, int64_t together, int64_t lines) {
    Parts parts = Parts::one;
    if (dtype == DType::f16) parts = matmul::has_half_tiles() ? Parts::half : Parts::two;
    if (dtype == DType::f32) {
        if (!matmul::float32_parts()) return {};
        parts = matmul::float32_parts() == 1 ? Parts::one : Parts::two;
    } else if (!is_half(dtype)) {
        return {};
    }
    // What blocks are filled up with is computed too.
    if (lines < 12 || round_up(channels, together) * 2 > channels * 3 || !matmul::multiplies_blocks(parts)) return {};
    return parts;
}

[[gnu::cold]] KernelPtr conv2d_in_blocks(const Request& r, const Passes& passes, KernelPtr direct) {
    if (passes.all.empty()) return direct;
    const auto parts = block_parts(r.operands[0].dtype, passes.all[0].image.size[1] / passes.groups, BLOCK_STEPS, passes.channels);
    if (!parts) return direct;
    return visit_floating(r.operands[0].dtype, [&]<class S>(Tag<S>) -> KernelPtr {
        if constexpr (std::is_same_v<S, double>) return std::move(direct);
        else return in_blocks<S>(r, passes, *parts, std::move(direct));
    });
}

}  // namespace norch::nn

#else
namespace norch::nn {

KernelPtr conv2d_in_blocks(const Request&, const Passes&, KernelPtr direct) { return direct; }
std::optional<matmul::Parts> block_parts(DType, int64_t, int64_t, int64_t) { return {}; }

}  // namespace norch::nn
#endif
