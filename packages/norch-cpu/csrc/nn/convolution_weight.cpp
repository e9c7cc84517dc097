// The gradient of conv2d's weight: for each window the elements that it sees, times the gradient of its result. Images
// are summed in chunks that do not depend on the number of threads, and the chunks in order.
#include "nn/convolution.h"

#include <algorithm>

#include "common/scratch.h"
#include "matmul/transpose.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"
#include "runtime/widen.h"

namespace norch::nn {
namespace {

constexpr int64_t AT_ONCE = 1024;                // windows
constexpr int64_t ROWS_AT_ONCE = 32;             // of the result, where chunks are added
constexpr double CHUNK_MULTIPLICATIONS = 2e6;     // at least
constexpr int64_t MAX_ITEMS = 32;                // of a layer's work that are dealt out to threads, unless groups are more
constexpr int64_t PARTIAL_BYTES = 64 << 20;       // at most

/// A channel and a tap: its row of a chunk's sums, and where it lies in the result.
struct Row {
    int64_t at, place;
};

template <class T>
[[gnu::noinline]] void add_rows(const T* chunk, const Row* rows, int64_t count, int64_t width, bool is_first, T* sums) {
    for (int64_t i = 0; i < count; ++i, sums += width) {
        const T* from = chunk + rows[i].at * width;
        if (is_first) {
            std::copy_n(from, width, sums);
            continue;
        }
        NORCH_INDEPENDENT
        for (int64_t c = 0; c < width; ++c) sums[c] += from[c];
    }
}

template <class S>
class WeightGrad {
public:
    using T = compute_t<S>;
    WeightGrad(const Request& r, const WindowGrid& grid)
        : grad_(r.operands[1]),
          batch_(grad_.size[0]),
          groups_(r.attrs.integer("groups")),
          channels_(r.operands[0].shape[0] / groups_),
          from_(r.operands[0].shape[1]),
          grid_(grid),
          blocks_(blocks_of<T>(channels_)),
          tiling_(Tiling::make<T>(grid, from_, AT_ONCE, batch_ ? 16 / batch_ : 1)),
          source_(Image(r.operands[2]), grid, tiling_, from_),
          depth_(from_ * int64_t(grid.taps.size())),
          taps_(size_t(depth_)),
          out_(r.operands[0].strides) {
        const int64_t taps = int64_t(grid.taps.size());
        for (int64_t i = 0; i < depth_; ++i) {  // in the order in which they lie in the result
            const int64_t c = out_[1] == 1 ? i % from_ : i / taps, t = out_[1] == 1 ? i / from_ : i % taps;
            const Tap& tap = grid_.taps[size_t(t)];
            rows_.push_back({c * taps + t, c * out_[1] + tap.i * out_[2] + tap.j * out_[3]});
        }
        source_.tap_offsets(taps_.data());
        for (const Block& block : blocks_) width_ += block.width<T>();
        units_ = batch_ * tiling_.count();
        const double each = double(groups_ * depth_ * width_);  // a window's multiplications
        const double least = std::max(CHUNK_MULTIPLICATIONS, 64 * each);
        const double wanted = each * double(units_ * tiling_.rows * tiling_.columns) / least;
        const double most = std::max(1.0, double(MAX_ITEMS) / double(groups_ * std::max<int64_t>(1, int64_t(blocks_.size()))));
        const double room = double(PARTIAL_BYTES) / std::max(1.0, each * sizeof(T));
        chunks_ = std::max<int64_t>(1, std::min<int64_t>(units_, int64_t(std::min({wanted, most, std::max(room, 1.0)}))));
        work = each * double(units_ * tiling_.rows * tiling_.columns) / PER_NS<T>;
    }

    void run(const S* grad, const S* image, S* out) const {
        const int64_t count = int64_t(blocks_.size());
        const int64_t items = chunks_ * groups_ * count;
        if (!items || !depth_) return;
        Scratch<T> partial(partial_size());
        parallel_for(items, work / double(items), [&](int64_t begin, int64_t end) {
            Scratch<T> copy(source_.scratch()), panel(tiling_.rows * tiling_.columns * MAX_VECTORS * SIMD_WIDTH<T>);
            Scratch<int64_t> places(tiling_.rows * tiling_.columns);
            for (int64_t i = begin, next; i < end; i = next) {  // blocks of one chunk and group: they see the same images
                next = std::min(end, (i / count + 1) * count);
                sum_chunk(grad, image, i / count / groups_, i / count % groups_, i % count, i % count + next - i, copy.data(),
                          panel.data(), places.data(), partial.data() + i / count * depth_ * width_);
            }
        });
        const int64_t parts = (depth_ + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
        parallel_for(groups_ * parts, double(ROWS_AT_ONCE * width_) * double(chunks_ + 8) / 8, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t first = i % parts * ROWS_AT_ONCE;
                combine(partial.data(), i / parts, first, std::min(ROWS_AT_ONCE, depth_ - first), out);
            }
        });
    }

    /// The sums of all chunks.
    int64_t partial_size() const { return chunks_ * groups_ * depth_ * width_; }

    double work;

private:
    /// The sums of blocks [first, last).
    void sum_chunk(const S* grad, const S* image, int64_t chunk, int64_t group, int64_t first, int64_t last, T* copy,
                   T* panel, int64_t* places, T* sums) const {
        const int64_t begin = units_ * chunk / chunks_, end = units_ * (chunk + 1) / chunks_;
        for (int64_t i = first; i < last; ++i)  // every block but the last is of whole vectors
            std::fill_n(sums + blocks_[size_t(i)].first * depth_, depth_ * blocks_[size_t(i)].width<T>(), T(0));
        for (int64_t unit = begin; unit < end; ++unit) {
            const int64_t n = unit / tiling_.count();
            const Tile tile = tiling_.tile(grid_, unit % tiling_.count());
            const T* x = source_.at(image, n, group * from_, tile, copy);
            source_.window_offsets(tile, places);
            for (int64_t i = first; i < last; ++i) {
                const Block& block = blocks_[size_t(i)];
                const int64_t width = block.width<T>();
                T* own = sums + block.first * depth_;
                if (block.channels < width) std::fill_n(panel, tile.count() * width, T(0));
                take(grad + n * grad_.stride[0] + (group * channels_ + block.first) * grad_.stride[1], block, tile, panel);
                multiply_gathered(x, taps_.data(), depth_, places, tile.count(), panel, block.vectors, own, width, own);
            }
        }
    }

    /// panel[window][channel] of a tile of the gradient.
    void take(const S* grad, const Block& block, const Tile& tile, T* panel) const {
        const auto& stride = grad_.stride;
        const int64_t width = block.width<T>();
        grad += tile.y * stride[2] + tile.x * stride[3];
        if constexpr (std::is_same_v<S, T>) {
            if (stride[3] == 1 && stride[1] != 1 && (tile.rows == 1 || stride[2] == tile.columns)) {
                matmul::transpose(grad, stride[1], block.channels, tile.count(), panel, width);
                return;
            }
        }
        if (stride[1] == 1) {
            for (int64_t y = 0; y < tile.rows; ++y)
                for (int64_t x = 0; x < tile.columns; ++x) {
                    const S* from = grad + y * stride[2] + x * stride[3];
                    T* to = panel + (y * tile.columns + x) * width;
                    NORCH_INDEPENDENT
                    for (int64_t c = 0; c < block.channels; ++c) to[c] = load(from[c]);
                }
            return;
        }
        for (int64_t c = 0; c < block.channels; ++c)
            for (int64_t y = 0; y < tile.rows; ++y)
                for (int64_t x = 0; x < tile.columns; ++x)
                    panel[(y * tile.columns + x) * width + c] = load(grad[c * stride[1] + y * stride[2] + x * stride[3]]);
    }

    /// Rows from `first` on of a group, each a channel and a tap: all chunks' sums, in order.
    void combine(const T* partial, int64_t group, int64_t first, int64_t count, S* out) const {
        const Row* const rows = rows_.data() + first;
        bool is_run = true;
        for (int64_t i = 1; i < count; ++i) is_run &= rows[i].place == rows[0].place + i;
        alignas(64) T sums[ROWS_AT_ONCE * MAX_VECTORS * SIMD_WIDTH<T>];
        for (const Block& block : blocks_) {
            const int64_t width = block.width<T>();
            for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
                const T* from = partial + ((chunk * groups_ + group) * width_ + block.first) * depth_;
                add_rows(from, rows, count, width, chunk == 0, sums);
            }
            S* to = out + (group * channels_ + block.first) * out_[0];
            if (is_run) {
                S* const run = to + rows[0].place;
                if constexpr (std::is_same_v<S, T>) {
                    matmul::transpose(sums, width, count, block.channels, run, out_[0]);
                } else {
                    alignas(64) T turned[ROWS_AT_ONCE * MAX_VECTORS * SIMD_WIDTH<T>];
                    matmul::transpose(sums, width, count, block.channels, turned, count);
                    for (int64_t c = 0; c < block.channels; ++c) narrow_row(turned + c * count, count, run + c * out_[0]);
                }
                continue;
            }
            for (int64_t i = 0; i < count; ++i)
                for (int64_t c = 0; c < block.channels; ++c) to[c * out_[0] + rows[i].place] = store<S>(sums[i * width + c]);
        }
    }

    Image grad_;
    int64_t batch_, groups_, channels_, from_;
    WindowGrid grid_;
    std::vector<Block> blocks_;
    Tiling tiling_;
    Source<S> source_;
    int64_t depth_;
    std::vector<int64_t> taps_, out_;
    std::vector<Row> rows_;
    int64_t width_ = 0, units_, chunks_;
};

}  // namespace

[[gnu::cold]] KernelPtr conv2d_weight_grad(const Request& r) {
    const Operand &out = r.operands[0], &grad = r.operands[1];
    if (grad.dtype != out.dtype || r.operands[2].dtype != out.dtype || !is_image_output(out)) return nullptr;
    if (KernelPtr found = conv2d_special(r)) return found;
    const auto &stride = r.attrs.integers("stride"), &pads = r.attrs.integers("pads");
    const auto& dilation = r.attrs.integers("dilation");
    WindowGrid grid(grad.shape[2], grad.shape[3], stride[0], stride[1],
                    taps_of(out.shape[2], out.shape[3], dilation[0], dilation[1], pads[0], pads[2]));
    KernelPtr direct = visit_floating(out.dtype, [&]<class S>(Tag<S>) {
        WeightGrad<S> all(r, grid);
        const double work = all.work;
        note_scratch(all.partial_size() * int64_t(sizeof(compute_t<S>)));
        return make_kernel(work, [all = std::move(all)](char* const* data, const Scalar*) {
            auto at = [data](int i) { return reinterpret_cast<S*>(data[i]); };
            all.run(at(1), at(2), at(0));
        });
    });
    return conv2d_winograd_weight(r, conv2d_weight_grad_in_blocks(r, grid, std::move(direct)));
}

}  // namespace norch::nn
