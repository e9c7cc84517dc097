// Products: which way a product is computed, and in which pieces.
#include <algorithm>

#include "common/scratch.h"
#include "matmul/gemm_pack.h"
#include "matmul/gemv.h"
#include "matmul/small.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::matmul {
namespace {

constexpr int64_t DIRECT_BYTES = 48 << 10;  // of b: within the first cache it is read again where it lies
constexpr int64_t PAGE_BYTES = 4096;
constexpr int64_t SHARED_BYTES = 8 << 20;  // of b, that are packed for all pieces at a time
constexpr int64_t PIECE_ROWS = 264, PIECE_COLUMNS = 512;
constexpr int64_t DEEP_STEPS = 512, DEEP_PARTS = 128, DEEP_BYTES = 8 << 20;  // of the results of all parts
constexpr int64_t DEEP_ELEMENTS = 256 * 256;  // of the result
constexpr int64_t MAX_DOTS = 12;  // vectors whose dot products with many others are found one by one

/// Whether no path but the one for small products fits a product of at most SMALL_COLUMNS columns.
template <class T>
bool fits_small(int64_t m, int64_t n, int64_t k, MatrixStrides a, MatrixStrides b, MatrixStrides c) {
    if (n > SMALL_COLUMNS) return false;
    if (k > (n == 1 ? 4 * SMALL_STEPS : SMALL_STEPS) && m * k > SMALL_ELEMENTS) return false;
    if (n >= FEWEST_COLUMNS && b.column == 1 && c.column == 1) return false;  // vectors of columns
    if (n == 1 && m >= SIMD_WIDTH<T> && a.row == 1 && c.row == 1) return false;  // of rows
    return b.row != 1 || k < 2 * SIMD_WIDTH<T> || m * n * k <= 32;               // of what is summed
}

}  // namespace

template <class T>
Product<T>::Product(int64_t m, int64_t n, int64_t k, MatrixStrides a, MatrixStrides b, MatrixStrides c)
    : m_(m), n_(n), k_(k), a_(a), b_(b), c_(c) {
    // The stride of a dim of size 1 says nothing; 1 is what the paths below like best.
    if (m == 1) a_.row = k * a_.column, c_.row = n * c_.column;
    if (n == 1) b_.column = 1, c_.column = 1;
    if (k == 1) a_.column = 1, b_.row = n * b_.column;
    if (m > 0 && n > 0 && k > 0 && fits_small<T>(m, n, k, a_, b_, c_)) {
        path_ = Path::small;
        starts_with_bias_ = true;
        cut();
        return;
    }
    const bool along_k = k > 1 && a_.column == 1 && b_.row == 1;
    // Of two factors that lie along k one is turned over when it is packed: the smaller.
    const bool turns_smaller = along_k && m > MAX_DOTS && m <= PIECE_ROWS && n >= 2 * m &&
                               k >= 2 * SIMD_WIDTH<T> && k <= PANEL_STEPS<T>;
    const bool turns_rows = along_k && n == 1 && m > 1 && k >= 2 * SIMD_WIDTH<T>;  // dots reads them in several streams
    if (turns_smaller || turns_rows || (!along_k && ((c_.column != 1 && c_.row == 1) || (n < 4 && m > n)))) {
        swapped_ = true;
        std::swap(m_, n_);
        std::swap(a_, b_);
        for (MatrixStrides* s : {&a_, &b_, &c_}) std::swap(s->row, s->column);
        if (m_ == 1) a_.row = k, c_.row = n_;
    }
    choose_path();
    cut();
    const int64_t deep = is_deep() ? deep_parts() * m_ * n_ : 0;  // of products that have no epilogue
    const int64_t shared = shares_panels() ? k_ * shared_span() + (spreads_rows() ? m_ * spread_row() : 0) : 0;
    note_scratch(std::max(deep, shared) * int64_t(sizeof(T)));
}

template <class T>
void Product<T>::choose_path() {
    const int64_t b_bytes = k_ * b_.row * int64_t(sizeof(T));
    if (m_ == 0 || n_ == 0 || k_ == 0)
        path_ = Path::fill;
    else if (b_.row == 1 && a_.column == 1 && std::min(m_, n_) <= MAX_DOTS && k_ >= 8 * SIMD_WIDTH<T>)
        path_ = Path::dots;
    else if (b_.row == 1 && m_ <= DOT_ROWS && k_ >= 2 * SIMD_WIDTH<T>)
        path_ = Path::dots;
    else if (m_ == 1 && b_.column == 1 && c_.column == 1)
        path_ = Path::row_times_rows;
    else if (b_.column == 1 && c_.column == 1 && n_ >= FEWEST_COLUMNS && (m_ <= TILE_ROWS || b_bytes <= DIRECT_BYTES))
        path_ = Path::direct;
    else
        path_ = Path::packed;
    starts_with_bias_ = !swapped_ && path_ != Path::dots;
    turns_output_ = path_ == Path::packed && c_.row == 1 && c_.column != 1 && k_ <= most_steps();
}

/// Pieces: enough for many threads, large enough to be worth starting.
template <class T>
void Product<T>::cut() {
    const double element_ns = double(k_) / (SIMD_WIDTH<T> * 5.0) + 0.1;
    piece_rows_ = std::max<int64_t>(m_, 1), piece_columns_ = std::max<int64_t>(n_, 1);
    double whole_ns = double(m_) * double(n_) * element_ns;
    const int64_t wanted = 4 * num_threads();
    switch (path_) {
        case Path::fill: break;
        case Path::row_times_rows:
        case Path::dots: {
            // Long lines of one matrix, each read once and used for the few of the other.
            const bool by_rows = m_ > n_;
            const int64_t lines = by_rows ? m_ : n_;
            const double line_ns =
                std::max(double(std::min(m_, n_)) * element_ns, double(k_) * sizeof(T) / LINE_BYTES_PER_NS) + 2;
            whole_ns = double(lines) * line_ns;
            if (whole_ns < PARALLEL_NS) break;
            const int64_t least = std::max<int64_t>(path_ == Path::dots ? 4 : 64, int64_t(PARALLEL_NS / 4 / line_ns));
            const int64_t pieces = path_ == Path::dots ? streamed_pieces(whole_ns) : wanted;
            (by_rows ? piece_rows_ : piece_columns_) = divide_up(std::max(least, divide_up(lines, pieces)), 64) * 64;
            break;
        }
        case Path::direct:
            if (whole_ns < PARALLEL_NS) break;
            if (m_ <= TILE_ROWS)
                piece_columns_ = std::max<int64_t>(1, int64_t(PARALLEL_NS / 4 / (element_ns * double(m_)) / 64)) * 64;
            else
                piece_rows_ = std::max<int64_t>(1, int64_t(PARALLEL_NS / 4 / (element_ns * double(n_)) / TILE_ROWS)) * TILE_ROWS;
            break;
        case Path::small:
            whole_ns = double(m_ * (1 + n_ * k_)) * 0.5;
            if (whole_ns >= PARALLEL_NS) piece_rows_ = int64_t(PARALLEL_NS / 4 / whole_ns * double(m_)) + 1;
            break;
        case Path::packed:
            piece_rows_ = divide_up(m_, divide_up(m_, PIECE_ROWS));
            piece_columns_ = PIECE_COLUMNS;
            while (piece_columns_ > PANEL<T> && divide_up(n_, piece_columns_) * divide_up(m_, piece_rows_) < wanted)
                piece_columns_ /= 2;
            while (piece_rows_ >= 8 * TILE_ROWS && divide_up(n_, piece_columns_) * divide_up(m_, piece_rows_) < wanted)
                piece_rows_ = divide_up(piece_rows_, 2);
    }
    row_pieces_ = divide_up(m_, piece_rows_);
    column_pieces_ = divide_up(n_, piece_columns_);
    piece_ns_ = whole_ns / double(std::max<int64_t>(1, pieces()));
}

template <class T>
bool Product<T>::shares_panels() const {
    // Where it is packed as it goes, the first tile that reads a panel touches a page of memory for each row of it.
    const bool is_slow_to_pack = b_.column != 1 || b_.row * int64_t(sizeof(T)) >= PAGE_BYTES;
    return path_ == Path::packed && row_pieces_ > 1 && is_slow_to_pack;
}

/// Rows that lie whole pages apart share one set of the first cache, which has no room for a tile's and a panel's.
template <class T>
bool Product<T>::spreads_rows() const {
    return shares_panels() && a_.column == 1 && a_.row * int64_t(sizeof(T)) % PAGE_BYTES == 0 && n_ >= 512;
}

template <class T>
int64_t Product<T>::spread_row() const {
    return k_ + SIMD_WIDTH<T>;
}

template <class T>
int64_t Product<T>::shared_span() const {
    const int64_t pieces_at_once = std::max<int64_t>(1, SHARED_BYTES / int64_t(sizeof(T)) / (k_ * piece_columns_));
    return std::min(column_pieces_, pieces_at_once) * piece_columns_;
}

/// Pieces of a small result would each read all of both factors.
template <class T>
bool Product<T>::is_deep() const {
    return (path_ == Path::packed || path_ == Path::direct) && m_ * n_ <= DEEP_ELEMENTS &&
           k_ >= 8 * DEEP_STEPS && k_ >= 16 * std::max(m_, n_);
}

template <class T>
int64_t Product<T>::deep_parts() const {
    const int64_t most = std::clamp<int64_t>(DEEP_BYTES / (m_ * n_ * int64_t(sizeof(T))), 8, DEEP_PARTS);
    return divide_up(k_, std::max(DEEP_STEPS, divide_up(k_, most)));
}

/// The steps of k that are multiplied at a time.
template <class T>
int64_t Product<T>::most_steps() const {
    return a_.row == 1 && a_.column != 1 ? COLUMN_STEPS : PANEL_STEPS<T>;
}

// Member by member: the class itself is instantiated where its loops are, in gemm.cpp.
#define NORCH_PLAN(T)                                                                                       \
    template Product<T>::Product(int64_t, int64_t, int64_t, MatrixStrides, MatrixStrides, MatrixStrides);   \
    template void Product<T>::choose_path();                                                                \
    template void Product<T>::cut();                                                                        \
    template bool Product<T>::is_deep() const;                                                              \
    template int64_t Product<T>::deep_parts() const;                                                        \
    template bool Product<T>::shares_panels() const;                                                        \
    template bool Product<T>::spreads_rows() const;                                                         \
    template int64_t Product<T>::spread_row() const;                                                        \
    template int64_t Product<T>::shared_span() const;                                                       \
    template int64_t Product<T>::most_steps() const;
NORCH_PLAN(float)
NORCH_PLAN(double)
#undef NORCH_PLAN

}  // namespace norch::matmul
