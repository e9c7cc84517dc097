// The gradient of conv2d's weight as products of blocks (matmul/tiles.h): of some windows at a time the gradient's channels
// times what each tap sees. Images are summed in chunks that do not depend on the number of threads.
#include <algorithm>
#include <atomic>

#include "common/scratch.h"
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

using matmul::BLOCK, matmul::BLOCK_LINES, matmul::BLOCK_STEPS, matmul::NOWHERE, matmul::PairOrder, matmul::Parts;

constexpr int64_t LINES = 2 * BLOCK_LINES;          // that are multiplied together
constexpr int64_t WINDOWS = 512;                    // at a time
constexpr int64_t CHUNK_WINDOWS = 256;              // at least
constexpr double CHUNK_MULTIPLICATIONS = 8e6;        // at least
constexpr int64_t MAX_CHUNKS = 16;
constexpr int64_t PARTIAL_BYTES = 64 << 20;         // at most

int64_t divide_up(int64_t x, int64_t y) { return (x + y - 1) / y; }

template <class S>
class BlockWeightGrad {
public:
    BlockWeightGrad(const Request& r, const WindowGrid& grid, Parts parts)
        : grad_(r.operands[1]),
          image_(r.operands[2]),
          grid_(grid),
          out_(r.operands[0].strides),
          groups_(r.attrs.integer("groups")),
          channels_(r.operands[0].shape[0] / groups_),
          from_(r.operands[0].shape[1]),
          taps_(int64_t(grid.taps.size())),
          parts_(parts),
          block_(matmul::parts_of(parts) * BLOCK),
          tiling_(Tiling::make<S>(grid, from_, WINDOWS, grad_.size[0] ? 16 / grad_.size[0] : 1)),
          rows_(divide_up(channels_, LINES) * LINES),
          spans_(divide_up(from_, LINES)),
          width_(spans_ * taps_ * LINES) {
        units_ = grad_.size[0] * tiling_.count();
        const double windows = double(units_ * tiling_.rows * tiling_.columns), each = double(groups_ * rows_ * width_);
        const double room = double(PARTIAL_BYTES) / std::max(1.0, 4 * each);
        const double wanted = std::min({windows * each / CHUNK_MULTIPLICATIONS, windows / double(CHUNK_WINDOWS), room, double(MAX_CHUNKS)});
        chunks_ = std::max<int64_t>(1, std::min<int64_t>(units_, int64_t(wanted)));
        work = windows * each / matmul::block_rate(parts_);
        next_window_ = grad_.stride[grad_.size[3] > 1 ? 3 : 2];  // that of a dim of size 1 says nothing
        height_ = std::min((tiling_.rows - 1) * grid_.step_y + grid_.extent_y, image_.size[2]);
        across_ = std::min((tiling_.columns - 1) * grid_.step_x + grid_.extent_x, image_.size[3]);
    }

    int64_t partial_size() const { return chunks_ * groups_ * rows_ * width_; }

    double work;

    /// Returns false where numbers have no two parts.
    bool run(const S* grad, const S* image, S* out) const {
        const int64_t parts = chunks_ * groups_, ranges = std::clamp<int64_t>(divide_up(4 * num_threads(), parts), 1, spans_);
        const Scratch<float> partial(partial_size());
        std::atomic<bool> fits = true;
        parallel_for(parts * ranges, work / double(parts * ranges), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t part = i / ranges, range = i % ranges;
                const Range of{part / groups_, part % groups_, spans_ * range / ranges, spans_ * (range + 1) / ranges};
                if (!sum(grad, image, of, partial.data() + part * rows_ * width_)) fits = false;
            }
        });
        if (!fits) return false;
        parallel_for(groups_ * channels_, double(width_ * (chunks_ + 4)) / 8, [&](int64_t begin, int64_t end) {
            const Scratch<float> sums(width_), turned(taps_ * LINES);
            for (int64_t o = begin; o < end; ++o) {
                add_chunks(partial.data() + (o / channels_ * rows_ + o % channels_) * width_, sums.data());
                put(sums.data(), turned.data(), out + o * out_[0]);
            }
        });
        return true;
    }

private:
    /// What one piece of work sums: some images, and 32 times so many channels of a group.
    struct Range {
        int64_t chunk, group, first, last;
    };

    bool sum(const S* grad, const S* image, const Range& of, float* sums) const {
        const int64_t first_channel = of.first * LINES, channels = std::min(from_, of.last * LINES) - first_channel;
        const int64_t most = divide_up(tiling_.rows * tiling_.columns, BLOCK_STEPS);
        const Scratch<uint32_t> lines(rows_ / BLOCK_LINES * most * block_), columns(2 * most * block_);
        const Scratch<int64_t> places(most * BLOCK_STEPS);
        const Scratch<S> copy(image_.stride[1] == 1 ? 0 : height_ * across_ * channels);
        for (int64_t o = 0; o < rows_; ++o)
            std::fill(sums + o * width_ + of.first * taps_ * LINES, sums + o * width_ + of.last * taps_ * LINES, 0.0f);
        const matmul::TileRegisters registers;
        bool fits = true;
        for (int64_t unit = units_ * of.chunk / chunks_, end = units_ * (of.chunk + 1) / chunks_; unit < end; ++unit) {
            const int64_t n = unit / tiling_.count();
            const Tile tile = tiling_.tile(grid_, unit % tiling_.count());
            const int64_t blocks = divide_up(tile.count(), BLOCK_STEPS), line = blocks * block_;
            const S* from = grad + n * grad_.stride[0] + of.group * channels_ * grad_.stride[1] + tile.y * grad_.stride[2] + tile.x * grad_.stride[3];
            fits &= matmul::pack_blocks(from, grad_.stride[1], next_window_, channels_, tile.count(), parts_, PairOrder::by_line,
                                        lines.data(), line);
            const Pixels seen = pixels_of(image + n * image_.stride[0] + (of.group * from_ + first_channel) * image_.stride[1], tile,
                                          channels, copy.data());
            for (int64_t t = 0; t < taps_; ++t) {
                find_places(grid_.taps[size_t(t)], tile, seen, blocks * BLOCK_STEPS, places.data());
                for (int64_t c = 0; c < channels; c += LINES) {
                    const bool has_two = channels - c > BLOCK_LINES;
                    for (int64_t half = 0; half <= has_two; ++half)
                        for (int64_t b = 0; b < blocks; ++b)
                            fits &= matmul::pack_scattered(seen.data + c + half * BLOCK_LINES, places.data() + b * BLOCK_STEPS,
                                                           channels - c - half * BLOCK_LINES, parts_,
                                                           columns.data() + half * line + b * block_);
                    float* to = sums + ((first_channel + c) / LINES * taps_ + t) * LINES;
                    for (int64_t o = 0; o < channels_; o += LINES)
                        matmul::multiply_blocks({lines.data() + o / BLOCK_LINES * line, columns.data(), line, line, blocks, parts_,
                                                 channels_ - o > BLOCK_LINES ? 2 : 1, has_two ? 2 : 1},
                                                true, to + o * width_, width_);
                }
            }
        }
        return fits;
    }

    /// Where the pixels lie that a tile's windows see, channel by channel: element (y, x) at data + y * row + x * column.
    struct Pixels {
        const S* data;
        int64_t row, column;
    };

    /// In place, or as a copy of those that there are, of which `data` is as if all were there.
    Pixels pixels_of(const S* image, const Tile& tile, int64_t channels, S* copy) const {
        const auto& stride = image_.stride;
        if (stride[1] == 1) return {image, stride[2], stride[3]};
        const int64_t y = tile.y * grid_.step_y + grid_.top, x = tile.x * grid_.step_x + grid_.left, size = sizeof(S);
        const int64_t top = std::clamp<int64_t>(y, 0, image_.size[2]), left = std::clamp<int64_t>(x, 0, image_.size[3]);
        const int64_t bottom = std::clamp<int64_t>(y + (tile.rows - 1) * grid_.step_y + grid_.extent_y, top, image_.size[2]);
        const int64_t right = std::clamp<int64_t>(x + (tile.columns - 1) * grid_.step_x + grid_.extent_x, left, image_.size[3]);
        const int64_t row = across_ * channels;
        for (int64_t r = top; r < bottom; ++r)
            copy_tile({reinterpret_cast<char*>(copy + (r - top) * row), channels * size, size},
                      {reinterpret_cast<char*>(const_cast<S*>(image + r * stride[2] + left * stride[3])), stride[3] * size, stride[1] * size},
                      right - left, channels, size);
        return {copy - top * row - left * channels, row, channels};
    }

    void find_places(const Tap& tap, const Tile& tile, const Pixels& seen, int64_t count, int64_t* places) const {
        int64_t* const end = places + count;
        for (int64_t r = 0; r < tile.rows; ++r) {
            const int64_t y = (tile.y + r) * grid_.step_y + tap.y;
            const bool is_inside = y >= 0 && y < image_.size[2];
            for (int64_t c = 0; c < tile.columns; ++c) {
                const int64_t x = (tile.x + c) * grid_.step_x + tap.x;
                *places++ = is_inside && x >= 0 && x < image_.size[3] ? y * seen.row + x * seen.column : NOWHERE;
            }
        }
        std::fill(places, end, NOWHERE);
    }

    /// A row's sums of all chunks, in order.
    void add_chunks(const float* partial, float* sums) const {
        std::copy_n(partial, width_, sums);
        for (int64_t chunk = 1; chunk < chunks_; ++chunk) {
            const float* from = partial + chunk * groups_ * rows_ * width_;
            NORCH_INDEPENDENT
            for (int64_t i = 0; i < width_; ++i) sums[i] += from[i];
        }
    }

    void put(const float* sums, float* turned, S* out) const {
        bool is_run = out_[1] == taps_;
        for (int64_t t = 0; t < taps_; ++t) is_run &= place(t) == t;
        for (int64_t c = 0; c < from_; c += LINES, sums += taps_ * LINES, out += LINES * out_[1]) {
            const int64_t here = std::min(LINES, from_ - c);
            if (is_run) {
                matmul::transpose(sums, LINES, taps_, here, turned, taps_);
                narrow_row(turned, here * taps_, out);
                continue;
            }
            for (int64_t t = 0; t < taps_; ++t) {
                narrow_to(sums + t * LINES, here, out + place(t), out_[1]);
            }
        }
    }

    int64_t place(int64_t tap) const { return grid_.taps[size_t(tap)].i * out_[2] + grid_.taps[size_t(tap)].j * out_[3]; }

    Image grad_, image_;
    WindowGrid grid_;
    std::vector<int64_t> out_;
    int64_t groups_, channels_, from_, taps_;
    Parts parts_;
    int64_t block_;  // pairs
    Tiling tiling_;
    int64_t rows_, spans_, width_;  // of the sums: a row for each channel; 32 channels after 32, tap by tap
    int64_t units_ = 0, chunks_ = 1, height_ = 0, across_ = 0, next_window_ = 1;
};

}  // namespace

[[gnu::cold]] KernelPtr conv2d_weight_grad_in_blocks(const Request& r, const WindowGrid& grid, KernelPtr direct) {
    const Operand &out = r.operands[0], &grad = r.operands[1];
    const auto parts = block_parts(out.dtype, out.shape[1], BLOCK_LINES, out.shape[0] / r.attrs.integer("groups"));
    const bool is_line = grad.shape[2] == 1 || grad.shape[3] == 1 || grad.strides[2] == grad.shape[3] * grad.strides[3];
    if (!parts || !is_line || grad.shape[0] * grad.shape[2] * grad.shape[3] < 2 * BLOCK_STEPS) return direct;
    return visit_floating(out.dtype, [&]<class S>(Tag<S>) -> KernelPtr {
        if constexpr (std::is_same_v<S, double>) {
            return std::move(direct);
        } else {
            BlockWeightGrad<S> all(r, grid, *parts);
            const double work = all.work;
            note_scratch_instead(all.partial_size() * int64_t(sizeof(float)));
            std::shared_ptr<Kernel> exact = std::move(direct);
            return make_kernel(work, [all = std::move(all), exact](char* const* data, const Scalar* scalars) {
                const auto at = [data](int i) { return reinterpret_cast<S*>(data[i]); };
                if (!all.run(at(1), at(2), at(0))) exact->run(data, scalars);
            });
        }
    });
}

}  // namespace norch::nn

#else
namespace norch::nn {

KernelPtr conv2d_weight_grad_in_blocks(const Request&, const WindowGrid&, KernelPtr direct) { return direct; }

}  // namespace norch::nn
#endif
