// coo_matmul: a sparse matrix of listed elements times a dense one. The elements are sorted by their rows, if they are not, and a warp adds up
// those of a row, in order; of a long row all warps of the block do.
#include "indexing/cell_lists.cuh"
#include "runtime/families.h"

namespace norch::matmul {
namespace {
namespace sparse {

constexpr int WARPS = THREADS / 32, COLUMNS = 4, WIDTH = 32 * COLUMNS;  // columns of a lane, of a warp
constexpr uint32_t LONG = 256;                                          // elements of a row
constexpr int64_t NARROW = 8;                                           // columns that would leave most lanes idle

/// The vectors of values and places have strides of their own.
struct Listed {
    uint32_t count, sets;  // elements; of WIDTH columns each
    int64_t rows, inner, width;
    int64_t value, row, column, dense[2];
    int op;
};

__global__ void __launch_bounds__(THREADS) take_rows(const Listed m, uint32_t* cells, uint32_t* places, const int64_t* rows,
                                                     const int64_t* columns, const ErrorSink sink) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= m.count) return;
    int64_t row = rows[i * m.row], column = columns[i * m.column];
    if (row < 0) row += m.rows;
    if (column < 0) column += m.inner;
    const bool is_there = uint64_t(row) < uint64_t(m.rows), is_met = uint64_t(column) < uint64_t(m.inner);
    if (!is_there) report_index(sink, m.op, rows[i * m.row], m.rows);
    else if (!is_met) report_index(sink, m.op, columns[i * m.column], m.inner);
    cells[i] = uint32_t(is_there && is_met ? row : m.rows);
    places[i] = i;
}

__global__ void __launch_bounds__(THREADS) list_rows(uint32_t count, const uint32_t* cells, uint32_t* begin, uint32_t* end) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < count) indexing::note_edges(cells, i, count, begin, end);
}

template <class T>
struct Operands {
    const T *values, *dense;
    const int64_t* columns;
    const uint32_t* places;

    /// Adds up every `step`-th element from `at` to before `end`, in the columns from `first` on.
    __device__ void add(T (&sums)[COLUMNS], const Listed& m, uint32_t at, uint32_t end, uint32_t step, int64_t first) const {
#pragma unroll 2
        for (; at < end; at += step) {
            const uint32_t k = places[at];
            int64_t column = columns[k * m.column];
            if (column < 0) column += m.inner;
            const T value = values[k * m.value];
            const T* const from = dense + column * m.dense[0] + first * m.dense[1];
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j)
                if (first + 32 * j < m.width) sums[j] += value * from[32 * j * m.dense[1]];
        }
    }
};

template <class T>
__global__ void __launch_bounds__(THREADS) multiply_rows(const __grid_constant__ Listed m, T* out, const Operands<T> operands,
                                                         const uint32_t* begins, const uint32_t* ends) {
    __shared__ T parts[WARPS][WIDTH];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = blockIdx.x / m.sets;
    const int64_t first = int64_t(blockIdx.x - group * m.sets) * WIDTH + lane, top = int64_t(group) * WARPS;
    const auto write = [&](int64_t row, const T (&sums)[COLUMNS]) {
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j)
            if (first + 32 * j < m.width) out[row * m.width + first + 32 * j] = sums[j];
    };
    const int64_t own = top + warp;
    if (own < m.rows && ends[own] - begins[own] <= LONG) {
        T sums[COLUMNS] = {};
        operands.add(sums, m, begins[own], ends[own], 1, first);
        write(own, sums);
    }
    for (int64_t row = top; row < min(top + WARPS, m.rows); ++row) {
        const uint32_t begin = begins[row], end = ends[row];
        if (end - begin <= LONG) continue;
        T sums[COLUMNS] = {};
        operands.add(sums, m, begin + warp, end, WARPS, first);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) parts[warp][lane + 32 * j] = sums[j];
        __syncthreads();
        if (warp) continue;
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j)
            for (int w = 1; w < WARPS; ++w) sums[j] += parts[w][lane + 32 * j];
        write(row, sums);
    }
}

/// values, dense, rows, columns.
KernelPtr coo_matmul(const Request& r) {
    constexpr int64_t MOST = (int64_t(1) << 31) - THREADS;
    const Operand &out = r.operands[0], &values = r.operands[1], &dense = r.operands[2];
    const Operand &rows = r.operands[3], &columns = r.operands[4];
    const int64_t count = values.numel(), width = dense.ndim() > 1 ? dense.shape[1] : 1;
    if (values.dtype != out.dtype || dense.dtype != out.dtype || rows.dtype != DType::i64 || columns.dtype != DType::i64)
        return nullptr;
    if (!out.is_contiguous() || values.ndim() != 1 || count > MOST || out.shape[0] >= MOST) return nullptr;
    if (out.numel() == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    const int64_t sets = ceil_div(width, WIDTH), blocks = ceil_div(out.shape[0], WARPS) * sets;
    if (blocks > MOST || width < NARROW) return nullptr;
    const Listed m{uint32_t(count), uint32_t(sets), out.shape[0], dense.shape[0], width, values.strides[0], rows.strides[0],
                   columns.strides[0], {dense.strides[0], dense.ndim() > 1 ? dense.strides[1] : 0}, op_number("coo_matmul")};
    const bool is_in_order = r.attrs.has("in_order") && r.attrs.flag("in_order");
    const auto with_type = [&]<class T>(Tag<T>) {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            if (count == 0) {
                check(cudaMemsetAsync(data[0], 0, size_t(m.rows * m.width) * sizeof(T), stream_handle()), "clearing a product");
                return;
            }
            const indexing::CellLists lists(count, m.rows + 1);
            const auto* const at = reinterpret_cast<const int64_t*>(data[4]);
            const auto each = unsigned(ceil_div(count, THREADS));
            launch_kernel("coo_matmul", take_rows, each, THREADS, m, lists.cells(), lists.places(),
                          reinterpret_cast<const int64_t*>(data[3]), at, error_sink());
            const indexing::KeyedPlaces sorted = lists.sort(is_in_order);
            launch_kernel("coo_matmul", list_rows, each, THREADS, m.count, sorted.keys, lists.begin(), lists.end());
            const Operands<T> operands{reinterpret_cast<const T*>(data[1]), reinterpret_cast<const T*>(data[2]), at,
                                       sorted.places};
            launch_kernel("coo_matmul", multiply_rows<T>, unsigned(blocks), THREADS, m, reinterpret_cast<T*>(data[0]),
                          operands, lists.begin(), lists.end());
        });
    };
    if (out.dtype == DType::f32) return with_type(Tag<float>{});
    return out.dtype == DType::f64 ? with_type(Tag<double>{}) : nullptr;
}

}  // namespace sparse
}  // namespace

void add_sparse(Registry& registry) { registry["coo_matmul"] = sparse::coo_matmul; }

}  // namespace norch::matmul
