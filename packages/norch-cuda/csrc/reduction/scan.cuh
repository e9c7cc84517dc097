// Scans along a dim: what a struct S combines, the same in every run. Lines that are few and long are cut into chunks:
// these are combined first, and each then starts from what those before it gave.
//
// S has State, of whole 4-byte words; identity() and combine(earlier, later), in any order where IS_COMMUTATIVE is there;
// load(x, extra) and store(out, extra, state) of one element; HAS_PACKETS, and if so load_packet(states, x) and
// store_packet(out, extra, states) of ROW_ITEMS. `extra` is a second result or operand.
#pragma once

#include <algorithm>
#include <cstring>

#include "runtime/allocator.h"
#include "runtime/type_groups.cuh"

namespace norch::reduction {

constexpr int64_t ROW_ITEMS = 4, COLUMN_ITEMS = 8;  // neighbours that a thread takes at a time

struct ScanPlan {
    Layout<3> lines;    // x, out, extra
    int64_t n, stride[3];  // of a line
    int64_t chunk;
    uint32_t chunks;
    bool has_packets, is_short;
};

/// Another lane's state: `shuffle` gives a word of it.
template <class W, class Shuffle>
__device__ inline W shuffled(const W& value, const Shuffle& shuffle) {
    constexpr int WORDS = sizeof(W) / 4;
    uint32_t words[WORDS];
    memcpy(words, &value, sizeof value);
#pragma unroll
    for (int k = 0; k < WORDS; ++k) words[k] = shuffle(words[k]);
    W out;
    memcpy(&out, words, sizeof out);
    return out;
}
template <class W>
__device__ inline W shuffled_up(const W& value, int step) {
    return shuffled(value, [=](uint32_t word) { return __shfl_up_sync(~0u, word, step); });
}
template <class W>
__device__ inline W shuffled_from(const W& value, int lane) {
    return shuffled(value, [=](uint32_t word) { return __shfl_sync(~0u, word, lane); });
}

template <class S, class W>
__device__ inline W scan_warp(W value) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const W before = shuffled_up(value, step);
        if (threadIdx.x % 32 >= step) value = S::combine(before, value);
    }
    return value;
}

/// A block for each chunk of a line, or (`is_short`) a warp for each line. With `is_first` it only combines.
template <class S>
__global__ void __launch_bounds__(THREADS)
    scan_rows(const __grid_constant__ ScanPlan p, const S s, const char* x, char* out, char* extra,
              typename S::State* totals, bool is_first) {
    using W = typename S::State;
    constexpr int ITEMS = ROW_ITEMS, WARPS = THREADS / 32;
    __shared__ W sums[2][WARPS];
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t lanes = p.is_short ? 32 : THREADS, lane = p.is_short ? threadIdx.x % 32 : threadIdx.x;
    const uint32_t line = p.is_short ? blockIdx.x * WARPS + warp : blockIdx.x / p.chunks;
    const uint32_t chunk = p.is_short ? 0 : blockIdx.x - line * p.chunks;
    if (line >= p.lines.numel) return;  // whole warps, and only where warps do not meet
    int64_t offset[3];
    p.lines.offsets(line, offset);
    x += offset[0];
    out += offset[1];
    extra += offset[2];
    W carry = S::identity();
    int parity = 0;
    // What the block's threads give together, and (in `before`) the warps before this one.
    auto over_block = [&](const W& value, W& before) {
        if (threadIdx.x % 32 == 31) sums[parity][warp] = value;
        __syncthreads();
        W total = S::identity();
        before = S::identity();
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            if (w == warp) before = total;
            total = S::combine(total, sums[parity][w]);
        }
        parity ^= 1;
        return total;
    };
    if (!is_first && chunk > 0) {
        // Neighbours for each thread, so that they are combined in order.
        const uint32_t each = (chunk + lanes - 1) / lanes, last = min(chunk, (lane + 1) * each);
        W part = S::identity(), before;
        for (uint32_t c = lane * each; c < last; ++c) part = S::combine(part, totals[int64_t(line) * p.chunks + c]);
        carry = over_block(scan_warp<S>(part), before);
    }
    const int64_t begin = chunk * p.chunk, end = min(begin + p.chunk, p.n), apart = lanes * ITEMS;
    auto allows_packet = [&](int64_t i) { return S::HAS_PACKETS && p.has_packets && i + ITEMS <= end; };
    auto load = [&](W (&items)[ITEMS], int64_t i) {
        if (allows_packet(i)) {
            if constexpr (S::HAS_PACKETS) s.load_packet(items, x + i * p.stride[0], i);
        } else {
#pragma unroll
            for (int k = 0; k < ITEMS; ++k)
                items[k] = i + k < end ? s.load(x + (i + k) * p.stride[0], extra + (i + k) * p.stride[2], i + k)
                                       : S::identity();
        }
    };
    if constexpr (requires { S::IS_COMMUTATIVE; }) {
        if (is_first) {
            W part = S::identity(), before;
#pragma unroll 4
            for (int64_t i = begin + lane * ITEMS; i < end; i += apart) {
                W items[ITEMS];
                load(items, i);
#pragma unroll
                for (int k = 0; k < ITEMS; ++k) part = S::combine(part, items[k]);
            }
            carry = over_block(scan_warp<S>(part), before);
            if (lane == 0) totals[int64_t(line) * p.chunks + chunk] = carry;
            return;
        }
    }
    W sum[ITEMS], next[ITEMS];
    load(next, begin + lane * ITEMS);
    for (int64_t base = begin; base < end; base += apart) {
        const int64_t i = base + lane * ITEMS;
        const bool is_packet = allows_packet(i);
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) sum[k] = next[k];
        if (base + apart < end) load(next, i + apart);
#pragma unroll
        for (int k = 1; k < ITEMS; ++k) sum[k] = S::combine(sum[k - 1], sum[k]);
        const W reached = scan_warp<S>(sum[ITEMS - 1]);
        W before = S::identity(), total, start = shuffled_up(reached, 1);
        if (threadIdx.x % 32 == 0) start = S::identity();
        if (p.is_short) total = shuffled_from(reached, 31);
        else total = over_block(reached, before);
        start = S::combine(carry, S::combine(before, start));
        carry = S::combine(carry, total);
        if (is_first) continue;
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) sum[k] = S::combine(start, sum[k]);
        if (is_packet) {
            if constexpr (S::HAS_PACKETS) s.store_packet(out + i * p.stride[1], extra + i * p.stride[2], sum);
        } else {
#pragma unroll
            for (int k = 0; k < ITEMS; ++k)
                if (i + k < end) s.store(out + (i + k) * p.stride[1], extra + (i + k) * p.stride[2], sum[k]);
        }
    }
    if (is_first && lane == 0) totals[int64_t(line) * p.chunks + chunk] = carry;
}

/// 32 neighbouring lines in a block, each for 8 threads.
template <class S>
__global__ void __launch_bounds__(THREADS)
    scan_columns(const __grid_constant__ ScanPlan p, const S s, const char* x, char* out, char* extra,
                 typename S::State* totals, bool is_first) {
    using W = typename S::State;
    constexpr int ITEMS = COLUMN_ITEMS, ALONG = THREADS / 32;
    __shared__ W sums[2][ALONG][32];
    const uint32_t row = threadIdx.x / 32, column = threadIdx.x % 32;
    const uint32_t blocks = (p.lines.numel + 31) / 32, chunk = blockIdx.x / blocks;
    const uint32_t line = (blockIdx.x - chunk * blocks) * 32 + column;
    const bool is_active = line < p.lines.numel;
    int64_t offset[3] = {};
    if (is_active) p.lines.offsets(line, offset);
    x += offset[0];
    out += offset[1];
    extra += offset[2];
    W carry = S::identity();
    int parity = 0;
    auto over_block = [&](const W& value, W& before) {
        sums[parity][row][column] = value;
        __syncthreads();
        W total = S::identity();
        before = S::identity();
#pragma unroll
        for (int r = 0; r < ALONG; ++r) {
            if (r == row) before = total;
            total = S::combine(total, sums[parity][r][column]);
        }
        parity ^= 1;
        return total;
    };
    if (!is_first && chunk > 0) {
        const uint32_t each = (chunk + ALONG - 1) / ALONG, last = min(chunk, (row + 1) * each);
        W part = S::identity(), before;
        for (uint32_t c = row * each; is_active && c < last; ++c)
            part = S::combine(part, totals[int64_t(line) * p.chunks + c]);
        carry = over_block(part, before);
    }
    const int64_t begin = chunk * p.chunk, end = min(begin + p.chunk, p.n);
    for (int64_t base = begin; base < end; base += ALONG * ITEMS) {
        const int64_t i = base + row * ITEMS;
        W sum[ITEMS];
#pragma unroll
        for (int k = 0; k < ITEMS; ++k)
            sum[k] = is_active && i + k < end
                         ? s.load(x + (i + k) * p.stride[0], extra + (i + k) * p.stride[2], i + k)
                         : S::identity();
#pragma unroll
        for (int k = 1; k < ITEMS; ++k) sum[k] = S::combine(sum[k - 1], sum[k]);
        W before;
        const W total = over_block(sum[ITEMS - 1], before), start = S::combine(carry, before);
        carry = S::combine(carry, total);
        if (is_first || !is_active) continue;
#pragma unroll
        for (int k = 0; k < ITEMS; ++k)
            if (i + k < end)
                s.store(out + (i + k) * p.stride[1], extra + (i + k) * p.stride[2], S::combine(start, sum[k]));
    }
    if (is_first && is_active && row == 0) totals[int64_t(line) * p.chunks + chunk] = carry;
}

/// The kernel of operands out, (extra,) x, or out, x, (extra): `places` says where x, out and extra are.
template <class S>
class Scan final : public Kernel {
public:
    /// loops: over the lines, of strides of x, out and extra.
    Scan(const Loops& lines, const ScanPlan& plan, S s, const int (&places)[3], bool is_columns, bool is_reversed)
        : lines_(cut<3>(lines)), plan_(plan), s_(s), is_columns_(is_columns) {
        std::copy_n(places, 3, place_);
        for (int k = 0; k < 3; ++k) {
            if (is_reversed) {
                end_[k] = (plan.n - 1) * plan.stride[k];
                plan_.stride[k] = -plan.stride[k];
            }
        }
        plan_.is_short = !is_columns_ && plan.n <= 32 * ROW_ITEMS * 2;
    }

    void run(char* const* data, const Scalar*) const override {
        for (const Piece<3>& piece : lines_) {
            ScanPlan p = plan_;
            p.lines = piece.layout;
            char* at[3];
            for (int k = 0; k < 3; ++k) {
                at[k] = data[place_[k]] + piece.start[k] + end_[k];
                p.has_packets &= allows_packets(piece.layout, k, at[k]);
            }
            const int64_t lines = p.lines.numel;
            const int64_t blocks = ceil_div(lines, is_columns_ ? 32 : p.is_short ? THREADS / 32 : 1);
            split(p, blocks);
            if (p.chunks == 1) {
                launch(p, blocks, at, nullptr, false);
                continue;
            }
            const Scratch<typename S::State> totals(lines * p.chunks);
            launch(p, blocks * p.chunks, at, totals.data(), true);
            launch(p, blocks * p.chunks, at, totals.data(), false);
        }
    }

private:
    bool allows_packets(const Layout<3>& layout, int k, const char* data) const {
        const int64_t size = plan_.stride[k] * ROW_ITEMS;  // that of the elements, where packets may be at all
        if (k == 2 && !plan_.stride[2]) return true;       // there is no extra
        if (size <= 0 || !is_aligned(data, size_t(size))) return false;
        for (int d = 0; d < layout.ndim; ++d)
            if (layout.stride[k][d] % size) return false;
        return true;
    }

    void split(ScanPlan& p, int64_t blocks) const {
        const int64_t tile = is_columns_ ? THREADS / 32 * COLUMN_ITEMS : THREADS * ROW_ITEMS, sms = multiprocessors();
        int64_t chunks = 1;
        if (p.n > 8 * tile && blocks < 2 * sms) chunks = std::min(ceil_div(p.n, 4 * tile), ceil_div(16 * sms, blocks));
        p.chunk = ceil_div(ceil_div(p.n, chunks), tile) * tile;
        p.chunks = uint32_t(ceil_div(p.n, p.chunk));
    }

    void launch(const ScanPlan& p, int64_t blocks, char* const (&at)[3], typename S::State* totals, bool is_first) const {
        launch_kernel("a scan", is_columns_ ? scan_columns<S> : scan_rows<S>, unsigned(blocks), THREADS, p, s_, at[0],
                      at[1], at[2], totals, is_first);
    }

    std::vector<Piece<3>> lines_;
    ScanPlan plan_;
    S s_;
    int place_[3];
    int64_t end_[3] = {};
    bool is_columns_;
};

/// The kernel of a scan along `dim`. extra: an operand as `places` says, or the output once more where there is none.
template <class S>
KernelPtr scan_kernel(const Request& request, S s, const int (&places)[3], bool is_reversed = false) {
    Operand seen[3];  // x, out, extra
    for (int k = 0; k < 3; ++k) {
        seen[k] = request.operands[size_t(places[k])];
        if (seen[k].shape.empty()) seen[k].shape = seen[k].strides = {1};  // a 0-d operand has dim 0
    }
    const bool has_extra = places[2] != places[1];
    const int64_t dim = request.attrs.integer("dim");
    if (dim < 0 || dim >= seen[0].ndim()) throw std::invalid_argument(request.op + " along a dim that is not there");
    ScanPlan plan = {};
    plan.n = seen[0].shape[size_t(dim)];
    if (seen[1].numel() == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    bool has_packets = true;
    for (int k = 0; k < 3; ++k) {
        const int64_t size = size_of(seen[k].dtype);
        plan.stride[k] = seen[k].strides[size_t(dim)] * size;
        if (k < 2 || has_extra) has_packets &= seen[k].strides[size_t(dim)] == 1;
    }
    if (!has_extra) {
        plan.stride[2] = 0;
        seen[2].strides.assign(seen[2].strides.size(), 0);
    }
    plan.has_packets = S::HAS_PACKETS && has_packets;
    const bool is_columns = reduction_loops(seen[1], seen[0], {dim}).is_columns;
    const Loops lines = collapse({seen[0], seen[1], seen[2]}, dims_but(seen[0].ndim(), dim));
    return std::make_unique<Scan<S>>(lines, plan, s, places, is_columns, is_reversed);
}

}  // namespace norch::reduction
