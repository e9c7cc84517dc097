#include "matmul/integers.h"

#include <algorithm>

#include "runtime/parallel.h"
#include "runtime/simd.h"

namespace norch::matmul {
namespace {

constexpr int64_t PIECE_ROWS = 64, PIECE_COLUMNS = 64;
constexpr int64_t STEPS = 128;         // of k at a time: a panel stays in the first cache
constexpr int64_t FEWEST_COLUMNS = 4;  // below, elements are found one by one
template <class T>
constexpr int64_t PANEL = 2 * SIMD_WIDTH<T>;

}  // namespace

template <class T>
IntegerProduct<T>::IntegerProduct(int64_t m, int64_t n, int64_t k, MatrixStrides a, MatrixStrides b, MatrixStrides c)
    : m_(m), n_(n), k_(k), a_(a), b_(b), c_(c), row_pieces_(divide_up(m, PIECE_ROWS)), column_pieces_(divide_up(n, PIECE_COLUMNS)) {
    const double area = double(std::min(m, PIECE_ROWS)) * double(std::min(n, PIECE_COLUMNS));
    piece_ns_ = area * (double(k) / SIMD_WIDTH<T> + 0.1);
}

template <class T>
void IntegerProduct<T>::run(const T* a, const T* b, T* c, const Epilogue<T>& epilogue) const {
    parallel_for(pieces(), piece_ns_, [&](int64_t first, int64_t last) { run_pieces(first, last, a, b, c, epilogue); });
}

template <class T>
void IntegerProduct<T>::run_pieces(int64_t first, int64_t last, const T* a, const T* b, T* c, const Epilogue<T>& epilogue) const {
    for (int64_t i = first; i < last; ++i) {
        const int64_t top = i / column_pieces_ * PIECE_ROWS, left = i % column_pieces_ * PIECE_COLUMNS;
        const Area area{top, std::min(m_, top + PIECE_ROWS), left, std::min(n_, left + PIECE_COLUMNS)};
        n_ < FEWEST_COLUMNS ? dots(area, a, b, c, epilogue.bias) : panels(area, a, b, c, epilogue.bias);
    }
}

template <class T>
void IntegerProduct<T>::dots(const Area& area, const T* a, const T* b, T* c, const T* bias) const {
    for (int64_t i = area.top; i < area.bottom; ++i) {
        for (int64_t j = area.left; j < area.right; ++j) {
            const T *row = a + i * a_.row, *column = b + j * b_.column;
            T sum = bias ? bias[j] : T(0);
            if (a_.column == 1 && b_.row == 1)
                for (int64_t p = 0; p < k_; ++p) sum += row[p] * column[p];
            else
                for (int64_t p = 0; p < k_; ++p) sum += row[p * a_.column] * column[p * b_.row];
            c[i * c_.row + j * c_.column] = sum;
        }
    }
}

/// Some columns of b at a time are brought next to each other, for all rows of a.
template <class T>
void IntegerProduct<T>::panels(const Area& area, const T* a, const T* b, T* c, const T* bias) const {
    alignas(64) T panel[STEPS * PANEL<T>] = {}, start[PANEL<T>] = {};
    for (int64_t left = area.left; left < area.right; left += PANEL<T>) {
        const int64_t width = std::min(PANEL<T>, area.right - left);
        if (bias) std::copy_n(bias + left, width, start);
        int64_t first = 0;
        do {
            const int64_t steps = std::min(STEPS, k_ - first);
            for (int64_t p = 0; p < steps; ++p)
                for (int64_t j = 0; j < width; ++j)
                    panel[p * PANEL<T> + j] = b[(first + p) * b_.row + (left + j) * b_.column];
            const T* row = a + area.top * a_.row + first * a_.column;
            T* out = c + area.top * c_.row + left * c_.column;
            for (int64_t rows, i = area.top; i < area.bottom; i += rows, row += rows * a_.row, out += rows * c_.row) {
                rows = area.bottom - i >= 4 ? 4 : 1;
                const auto multiply = rows == 4 ? &IntegerProduct::tile<4> : &IntegerProduct::tile<1>;
                (this->*multiply)(row, steps, panel, out, width, start, first > 0);
            }
            first += STEPS;
        } while (first < k_);
    }
}

/// ROWS rows of c get what `steps` of k contribute: added to what is there, or to `start`.
template <class T>
template <int ROWS>
void IntegerProduct<T>::tile(const T* a, int64_t steps, const T* panel, T* c, int64_t width, const T* start, bool adds) const {
    constexpr int L = SIMD_WIDTH<T>;
    vector_t<T, L> sums[ROWS][2] = {};
    for (int64_t p = 0; p < steps; ++p, a += a_.column, panel += 2 * L) {
        const auto left = load_vector<L>(panel), right = load_vector<L>(panel + L);
        NORCH_UNROLL
        for (int r = 0; r < ROWS; ++r) {
            sums[r][0] += left * a[r * a_.row];
            sums[r][1] += right * a[r * a_.row];
        }
    }
    for (int r = 0; r < ROWS; ++r) {
        T row[2 * L];
        store_vector(row, sums[r][0]);
        store_vector(row + L, sums[r][1]);
        for (int64_t j = 0; j < width; ++j) {
            T& out = c[r * c_.row + j * c_.column];
            out = (adds ? out : start[j]) + row[j];
        }
    }
}

template class IntegerProduct<uint32_t>;
template class IntegerProduct<uint64_t>;

}  // namespace norch::matmul
