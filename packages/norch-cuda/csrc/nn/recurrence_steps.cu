// All steps of a recurrent layer in one kernel (G. Diamos et al., "Persistent RNNs", ICML 2016): each block keeps the weights
// of some hidden units in shared memory and computes these for some rows of the batch. Blocks of the same rows wait for each
// other after every step, so all must be on the device at once: the launch is cooperative.
#include <algorithm>

#include "nn/recurrence.cuh"
#include "runtime/allocator.h"

namespace norch::nn {
namespace {

constexpr int TILE = 4;  // rows and columns of the sums that a thread keeps

/// How a launch is cut: a block has `units` hidden units and `rows` rows, and reads `chunk` numbers of each row at once.
struct Cut {
    int units, rows, chunk;
    int unit_blocks, row_blocks;  // of one launch
};

template <class C>
struct Steps {
    LayerMemory memory;
    int64_t first_row;  // of this launch
    unsigned* arrived;  // a counter for each of a launch's row blocks
    int units, rows, chunk;
    int size;         // of an element in memory
    bool is_aligned;  // four elements of a row can be loaded at once
};

/// Numbers of a row in shared memory: the rows begin in different banks.
__host__ __device__ inline int padded(int64_t n) { return int((n + 3) / 4 * 4) + 4; }

template <class C>
struct alignas(4 * sizeof(C)) Four {
    C v[4];
};

/// Waits until `count` blocks have arrived.
__device__ inline void meet(unsigned* arrived, unsigned count) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1u);
        unsigned seen;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
        while (seen < count);
        __threadfence();
    }
    __syncthreads();
}

/// The sums of a block: rows by columns of a product of length k, cut into tiles, each by several threads.
template <class Group>
class BlockProduct {
public:
    using C = computed<Group>;

    __device__ BlockProduct(const Steps<C>& a, int columns, int64_t k, int64_t row)
        : a_(a), columns_(columns), k_(int(k)), row_(row) {
        extern __shared__ __align__(16) char memory[];
        width_ = padded(k);
        weights_ = reinterpret_cast<C*>(memory);
        rows_ = weights_ + columns * width_;
        parts_ = rows_ + a.rows * padded(a.chunk);
        column_tiles_ = columns / TILE, row_tiles_ = a.rows / TILE;
        tiles_ = column_tiles_ * row_tiles_;
        groups_ = THREADS / tiles_;
        group_ = int(threadIdx.x) / tiles_;
        const int tile = int(threadIdx.x) % tiles_;
        row_tile_ = tile / column_tiles_, column_tile_ = tile % column_tiles_;
    }

    /// weights[column][i] = get(column, i). With `by_column` neighbouring threads get neighbouring columns.
    template <class Get>
    __device__ void keep(bool by_column, const Get& get) {
        for (int at = threadIdx.x; at < columns_ * width_; at += THREADS) {
            const int column = by_column ? at % columns_ : at / width_, i = by_column ? at / columns_ : at % width_;
            weights_[column * width_ + i] = i < k_ ? get(column, i) : C(0);
        }
    }

    /// The sums over rows of `from`, k elements each, of which those past the batch count as 0.
    __device__ void multiply(const void* from) {
        C sums[TILE][TILE] = {};
        const int chunk_width = padded(a_.chunk);
        for (int first = 0; first < k_; first += a_.chunk) {
            const int n = min(a_.chunk, k_ - first), whole = (n + 3) / 4;
            __syncthreads();
            load(from, first, n, chunk_width);
            __syncthreads();
            if (group_ < groups_) {
                const C *x = rows_ + row_tile_ * chunk_width, *w = weights_ + column_tile_ * width_ + first;
                for (int i = group_; i < whole; i += groups_) {
                    Four<C> of_row[TILE], of_column[TILE];
#pragma unroll
                    for (int t = 0; t < TILE; ++t) {
                        of_row[t] = *reinterpret_cast<const Four<C>*>(x + t * row_tiles_ * chunk_width + 4 * i);
                        of_column[t] = *reinterpret_cast<const Four<C>*>(w + t * column_tiles_ * width_ + 4 * i);
                    }
#pragma unroll
                    for (int p = 0; p < 4; ++p)
#pragma unroll
                        for (int r = 0; r < TILE; ++r)
#pragma unroll
                            for (int c = 0; c < TILE; ++c) sums[r][c] += of_row[r].v[p] * of_column[c].v[p];
                }
            }
        }
        // Parts of one sum by different threads.
#pragma unroll
        for (int r = 0; r < TILE; ++r)
#pragma unroll
            for (int c = 0; c < TILE; ++c) parts_[(r * TILE + c) * THREADS + threadIdx.x] = sums[r][c];
        __syncthreads();
    }

    __device__ C sum(int row, int column) const {
        const int r = row / row_tiles_, c = column / column_tiles_;
        const C* parts = parts_ + (r * TILE + c) * THREADS + row % row_tiles_ * column_tiles_ + column % column_tiles_;
        C out = 0;
        for (int g = 0; g < groups_; ++g) out += parts[g * tiles_];
        return out;
    }

private:
    __device__ void load(const void* from, int first, int n, int chunk_width) {
        const LayerMemory& m = a_.memory;
        const int whole = (n + 3) / 4, all = a_.rows * whole;
        for (int at = threadIdx.x; at < all; at += THREADS) {
            const int row = at / whole, i = at % whole * 4;
            const int64_t place = (row_ + row) * k_ + first + i;
            Four<C> x = {};
            if (row_ + row < m.batch) {
                with_type<Group>(m.dtype, [&]<class T>(Tag<T>) {
                    const T* p = static_cast<const T*>(from) + place;
                    if (a_.is_aligned) {
                        T four[4];
                        if constexpr (sizeof(T) == 2) {
                            *reinterpret_cast<uint2*>(four) = __ldcg(reinterpret_cast<const uint2*>(p));
                        } else if constexpr (sizeof(T) == 4) {
                            *reinterpret_cast<uint4*>(four) = __ldcg(reinterpret_cast<const uint4*>(p));
                        } else {
                            reinterpret_cast<double2*>(four)[0] = __ldcg(reinterpret_cast<const double2*>(p));
                            reinterpret_cast<double2*>(four)[1] = __ldcg(reinterpret_cast<const double2*>(p) + 1);
                        }
#pragma unroll
                        for (int q = 0; q < 4; ++q) x.v[q] = C(upcast(four[q]));
                    } else {
#pragma unroll
                        for (int q = 0; q < 4; ++q)
                            if (i + q < n) x.v[q] = C(upcast(__ldcg(p + q)));
                    }
                });
            }
            *reinterpret_cast<Four<C>*>(rows_ + row * chunk_width + i) = x;
        }
    }

    const Steps<C>& a_;
    int columns_, k_, width_;
    int64_t row_;
    int column_tiles_, row_tiles_, tiles_, groups_, group_, row_tile_, column_tile_;
    C *weights_, *rows_, *parts_;
};

/// The unit of a thread, of those of its block.
struct Own {
    int row, unit;
    int64_t batch_row, hidden_unit;
    bool is_there;

    template <class C>
    __device__ explicit Own(const Steps<C>& a) {
        row = int(threadIdx.x) / a.units, unit = int(threadIdx.x) % a.units;
        batch_row = a.first_row + int64_t(blockIdx.y) * a.rows + row;
        hidden_unit = int64_t(blockIdx.x) * a.units + unit;
        is_there = row < a.rows && batch_row < a.memory.batch && hidden_unit < a.memory.hidden;
    }
};

template <class Group>
__global__ void __launch_bounds__(THREADS, 1) steps_kernel(const Steps<computed<Group>> a) {
    using C = computed<Group>;
    const LayerMemory& m = a.memory;
    const Elements<Group> e{m.dtype};
    const Own own(a);
    const int64_t first_unit = int64_t(blockIdx.x) * a.units, first_row = a.first_row + int64_t(blockIdx.y) * a.rows;
    BlockProduct<Group> product(a, m.gates * a.units, m.hidden, first_row);
    product.keep(false, [&](int column, int i) {
        const int64_t unit = first_unit + column % a.units;
        return unit < m.hidden ? e.load(m.weight, (column / a.units * m.hidden + unit) * m.hidden + i) : C(0);
    });
    C bias[4] = {}, c = 0;
    if (own.is_there) {
        for (int g = 0; g < m.gates; ++g)
            if (m.bias) bias[g] = e.load(m.bias, g * m.hidden + own.hidden_unit);
        if (m.cell == Cell::lstm) c = e.load(m.cx, own.batch_row * m.hidden + own.hidden_unit);
    }
    for (int64_t i = 0; i < m.steps; ++i) {
        C x[4] = {}, s[4] = {};
        if (own.is_there) {  // on their way while others arrive
            const int64_t of_step = m.step(i) * m.batch + own.batch_row;
            for (int g = 0; g < m.gates; ++g) x[g] = e.load(m.x, (of_step * m.gates + g) * m.hidden + own.hidden_unit);
        }
        if (i) meet(a.arrived + blockIdx.y, unsigned(i) * gridDim.x);
        const void* before = m.hx;
        if (i) before = static_cast<const char*>(m.states) + m.step(i - 1) * m.elements() * a.size;
        product.multiply(before);
        if (own.is_there) {
            for (int g = 0; g < m.gates; ++g) s[g] = product.sum(own.row, g * a.units + own.unit) + bias[g];
            forward_unit<Group>(m, i, own.batch_row, own.hidden_unit, x, s, c);
        }
    }
    if (own.is_there && m.cell == Cell::lstm) e.store(m.c, own.batch_row * m.hidden + own.hidden_unit, c);
}

template <class Group>
__global__ void __launch_bounds__(THREADS, 1) steps_back_kernel(const Steps<computed<Group>> a) {
    using C = computed<Group>;
    const LayerMemory& m = a.memory;
    const Elements<Group> e{m.dtype};
    const Own own(a);
    const int64_t first_unit = int64_t(blockIdx.x) * a.units, first_row = a.first_row + int64_t(blockIdx.y) * a.rows;
    const int64_t width = m.gates * m.hidden;
    BlockProduct<Group> product(a, a.units, width, first_row);
    product.keep(true, [&](int column, int i) {
        const int64_t unit = first_unit + column;
        return unit < m.hidden ? e.load(m.weight, i * m.hidden + unit) : C(0);
    });
    const int64_t at = own.batch_row * m.hidden + own.hidden_unit;
    C g = 0, g_c = 0;
    if (own.is_there && m.g_h) g = e.load(m.g_h, at);
    if (own.is_there && m.g_c) g_c = e.load(m.g_c, at);
    for (int64_t i = m.steps - 1; i >= 0; --i) {
        if (own.is_there) backward_unit<Group>(m, i, own.batch_row, own.hidden_unit, g, g_c);
        meet(a.arrived + blockIdx.y, unsigned(m.steps - i) * gridDim.x);
        product.multiply(static_cast<const char*>(m.of_state) + m.step(i) * m.batch * width * a.size);
        if (own.is_there) g += product.sum(own.row, own.unit);
    }
    if (!own.is_there) return;
    e.store(m.for_hx, at, g);
    if (m.cell == Cell::lstm) e.store(m.for_cx, at, g_c);
}

// --- Launches -------------------------------------------------------------------------------------------------------

/// Bytes of shared memory: the weights, some rows, and parts of sums.
size_t shared_bytes(const LayerMemory& m, bool backward, int units, int rows, int chunk, size_t size) {
    const int64_t k = backward ? m.gates * m.hidden : m.hidden, columns = backward ? units : m.gates * units;
    return (size_t(columns) * size_t(padded(k)) + size_t(rows) * size_t(padded(chunk)) + TILE * TILE * THREADS) * size;
}

/// The cut that takes the least time, as far as reading of shared memory and of rows decides; false where none fits.
bool find_cut(const LayerMemory& m, bool backward, size_t size, size_t most, int blocks, Cut* best) {
    double least = 0;
    const int64_t k = backward ? m.gates * m.hidden : m.hidden;
    for (int units : {4, 8, 16, 32}) {
        for (int rows : {4, 8, 16, 32, 64}) {
            const int64_t unit_blocks = ceil_div(m.hidden, units), row_blocks = ceil_div(m.batch, rows);
            if (units * rows > THREADS || unit_blocks > blocks || (rows > 4 && rows / 2 >= m.batch)) continue;
            int chunk = int(std::min<int64_t>((k + 3) / 4 * 4, 4096));
            while (chunk > 64 && shared_bytes(m, backward, units, rows, chunk, size) > most) chunk = (chunk / 2 + 3) / 4 * 4;
            if (shared_bytes(m, backward, units, rows, chunk, size) > most) continue;
            const int64_t at_once = std::min(row_blocks, blocks / unit_blocks), launches = ceil_div(row_blocks, at_once);
            // In cycles: the products, the rows read from the second cache, and waiting for others.
            const double columns = backward ? units : double(m.gates) * units;
            const double cycles = rows * columns * double(k) / 64 + double(rows * k) * double(size) / 32 +
                                  1000.0 * double(ceil_div(k, chunk)) + 2500;
            const double cost = cycles * double(launches);
            if (least && cost >= least) continue;
            least = cost;
            *best = {units, rows, chunk, int(unit_blocks), int(at_once)};
        }
    }
    return least > 0;
}

template <class C>
bool launch(const LayerMemory& m, bool backward, void (*kernel)(Steps<C>)) {
    Cut cut;
    const size_t most = properties(launch_stream().device).shared_bytes;
    if (!find_cut(m, backward, sizeof(C), most, multiprocessors(), &cut)) return false;
    const char* what = "a recurrent layer";
    const size_t shared = shared_bytes(m, backward, cut.units, cut.rows, cut.chunk, sizeof(C));
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(most)), what);
    const int64_t at_once = int64_t(cut.rows) * cut.row_blocks, launches = ceil_div(m.batch, at_once);
    const Scratch<unsigned> arrived(size_t(launches * cut.row_blocks));
    check(cudaMemsetAsync(arrived.data(), 0, size_t(launches * cut.row_blocks) * sizeof(unsigned), stream_handle()), what);
    const void* from = backward ? m.of_state : m.states;
    const size_t four = 4 * size_t(size_of(m.dtype)) > 16 ? 16 : 4 * size_t(size_of(m.dtype));
    for (int64_t i = 0; i < launches; ++i) {
        const int64_t rows = std::min(at_once, m.batch - i * at_once);
        const bool aligned = m.hidden % 4 == 0 && is_aligned(from, four) && is_aligned(m.hx, four);
        Steps<C> a{m, i * at_once, arrived.data() + i * cut.row_blocks, cut.units, cut.rows, cut.chunk, int(size_of(m.dtype)), aligned};
        cudaLaunchAttribute cooperative = {};
        cooperative.id = cudaLaunchAttributeCooperative;
        cooperative.val.cooperative = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(unsigned(cut.unit_blocks), unsigned(ceil_div(rows, cut.rows)));
        config.blockDim = THREADS;
        config.dynamicSmemBytes = shared;
        config.stream = stream_handle();
        config.attrs = &cooperative;
        config.numAttrs = 1;
        check(cudaLaunchKernelEx(&config, kernel, a), what);
    }
    return true;
}

}  // namespace

bool run_steps(const LayerMemory& m) {
    return visit_floating_groups(
        m.dtype, [&]<class Group>(Tag<Group>) { return launch<computed<Group>>(m, false, steps_kernel<Group>); });
}

bool run_steps_backward(const LayerMemory& m) {
    return visit_floating_groups(
        m.dtype, [&]<class Group>(Tag<Group>) { return launch<computed<Group>>(m, true, steps_back_kernel<Group>); });
}

}  // namespace norch::nn
