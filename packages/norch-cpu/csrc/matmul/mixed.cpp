#include "matmul/mixed.h"

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "common/scratch.h"
#include "matmul/gemm_tile.h"
#include "matmul/gemv.h"
#include "matmul/tiles.h"
#include "matmul/transpose.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"
#include "runtime/widen.h"

namespace norch::matmul {
namespace {

constexpr int L = SIMD_WIDTH<float>;
constexpr int64_t PANEL = TILE_VECTORS * L;    // columns that are widened together
constexpr int64_t WIDE_STEPS = 256;            // of k: a panel of them stays in the first cache
constexpr int64_t TILE_STEPS = 640;            // of k: those of 32 lines stay in the first cache
constexpr int64_t LINES = 2 * BLOCK_LINES;     // that are multiplied together in tiles
constexpr int64_t SHARED_PAIRS = 4 << 20;      // of b's columns that are packed for all pieces at a time
constexpr int64_t PIECE_ROWS = 256, PIECE_COLUMNS = 256;

/// How many rows are multiplied with a matrix as it lies.
int64_t most_lines(Parts parts) { return multiplies_blocks(parts) && parts != Parts::two ? 2 : 8; }

int64_t round_up(int64_t x, int64_t y) { return divide_up(x, y) * y; }

/// Of a block of which `steps` are there: pairs are of neighbours, or of float32 numbers 16 steps apart.
template <class S>
int pairs_of_last(int64_t steps) {
    return int(std::is_same_v<S, float> ? std::min(steps, BLOCK_STEPS / 2) : divide_up(steps, 2));
}

/// to[i][j] = from[i * row + j * column] as float32; `to` has rows of `to_row`.
template <class S>
void widen_matrix(const S* from, MatrixStrides s, int64_t rows, int64_t columns, float* to, int64_t to_row) {
    if (s.column == 1) {
        for (int64_t i = 0; i < rows; ++i) widen_row(from + i * s.row, columns, to + i * to_row);
    } else if (s.row == 1) {
        // Some columns, which lie together, at a time; then turned.
        constexpr int64_t AT_ONCE = 64;
        alignas(64) float lines[16 * AT_ONCE];
        for (int64_t j = 0; j < columns; j += 16)
            for (int64_t i = 0; i < rows; i += AT_ONCE) {
                const int64_t width = std::min<int64_t>(16, columns - j), height = std::min(AT_ONCE, rows - i);
                for (int64_t l = 0; l < width; ++l) widen_row(from + i + (j + l) * s.column, height, lines + l * AT_ONCE);
                transpose(lines, AT_ONCE, width, height, to + i * to_row + j, to_row);
            }
    } else {
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < columns; ++j) to[i * to_row + j] = load(from[i * s.row + j * s.column]);
    }
}

}  // namespace

template <class S>
MixedProduct<S>::MixedProduct(int64_t m, int64_t n, int64_t k, MatrixStrides a, MatrixStrides b, MatrixStrides c, int parts)
    : m_(m), n_(n), k_(k), a_(a), b_(b), c_(c), parts_(parts == 1 ? Parts::one : Parts::two) {
    if (std::is_same_v<S, bfloat16>) parts_ = Parts::one;
    if (std::is_same_v<S, half>) parts_ = has_half_tiles() ? Parts::half : Parts::two;
    blocks_ = divide_up(k, BLOCK_STEPS);
    line_ = blocks_ * parts_of(parts_) * BLOCK;
    // The stride of a dim of size 1 says nothing; 1 is what the paths below like best.
    if (m == 1) a_.row = k * a_.column, c_.row = n * c_.column;
    if (n == 1) b_.column = k * b_.row, c_.column = 1;
    if (k == 1) a_.column = 1, b_.row = n * b_.column;
    const bool has_few = std::min(m, n) <= most_lines(parts_);
    // Of two factors that lie along k one is turned over when it is packed for tiles: the smaller.
    const bool along_k = a_.column == 1 && b_.row == 1 && multiplies_blocks(parts_);
    if (has_few ? n < m : along_k ? n > m : c_.column != 1 && c_.row == 1) {
        swapped_ = true;
        std::swap(m_, n_);
        std::swap(a_, b_);
        for (MatrixStrides* s : {&a_, &b_, &c_}) std::swap(s->row, s->column);
    }
    choose_path();
    cut();
    if (path_ == Path::tiles && pieces() > 1) note_scratch((packed_rows() * 2 * line_ + packed_columns() * 2 * line_) * 4);
}

template <class S>
bool MixedProduct<S>::pays(int64_t m, int64_t n, int64_t k, int parts) {
    return multiplies_blocks(parts == 1 ? Parts::one : Parts::two) && m >= 16 && n >= 16 && k >= 32 && m * n * k >= 64 * 64 * 64;
}

template <class S>
void MixedProduct<S>::choose_path() {
    if (m_ == 0 || n_ == 0 || k_ == 0)
        path_ = Path::fill;
    else if (m_ <= most_lines(parts_) && b_.row == 1 && k_ >= L)
        path_ = Path::dots;
    else if (m_ == 1 && b_.column == 1)
        path_ = Path::row_times_rows;
    else if (multiplies_blocks(parts_) && m_ > most_lines(parts_) && n_ > most_lines(parts_) && k_ >= 16)
        path_ = Path::tiles;
    else
        path_ = Path::widened;
}

template <class S>
void MixedProduct<S>::cut() {
    piece_rows_ = std::max<int64_t>(m_, 1), piece_columns_ = std::max<int64_t>(n_, 1);
    if (path_ == Path::fill) return;
    const double b_ns = double(k_) * double(n_) * sizeof(S) / LINE_BYTES_PER_NS;  // to read b once
    const double product_ns = double(m_) * double(n_) * double(k_) / (path_ == Path::tiles ? block_rate(parts_) : 5.0 * L);
    const double whole_ns = product_ns + b_ns + double(m_) * double(k_ + n_) * 0.2;
    if (whole_ns >= PARALLEL_NS) {
        piece_rows_ = round_up(divide_up(m_, divide_up(m_, PIECE_ROWS)), LINES);
        const int64_t wanted = path_ == Path::dots ? streamed_pieces(whole_ns)
                                                   : std::min<int64_t>(4 * num_threads(), int64_t(whole_ns / (PARALLEL_NS / 3)));
        const int64_t least = path_ == Path::row_times_rows ? 256 : path_ == Path::dots ? 16 : std::min<int64_t>(64, 2 * PANEL);
        const int64_t most = path_ == Path::dots || path_ == Path::row_times_rows ? n_ : PIECE_COLUMNS;
        const int64_t columns = divide_up(n_, std::max<int64_t>(1, wanted / divide_up(m_, piece_rows_)));
        piece_columns_ = std::min(most, round_up(std::max(columns, least), least));
        while (piece_rows_ >= 128 && divide_up(n_, piece_columns_) * divide_up(m_, piece_rows_) < wanted)
            piece_rows_ = round_up(divide_up(piece_rows_, 2), 32);
    }
    row_pieces_ = divide_up(m_, piece_rows_);
    column_pieces_ = divide_up(n_, piece_columns_);
    piece_ns_ = whole_ns / double(std::max<int64_t>(1, pieces()));
}

template <class S>
void MixedProduct<S>::run(const S* a, const S* b, S* c, const Epilogue<float>& epilogue) const {
    if (path_ == Path::tiles && pieces() > 1) return run_packed({swapped_ ? b : a, swapped_ ? a : b, c, epilogue});
    parallel_for(pieces(), piece_ns_, [&](int64_t first, int64_t last) { run_pieces(first, last, a, b, c, epilogue); });
}

template <class S>
void MixedProduct<S>::run_pieces(int64_t first, int64_t last, const S* a, const S* b, S* c,
                                 const Epilogue<float>& epilogue) const {
    const Call call{swapped_ ? b : a, swapped_ ? a : b, c, epilogue};
    for (int64_t i = first; i < last; ++i) run_area(call, area_of(i));
}

template <class S>
int64_t MixedProduct<S>::packed_rows() const {
    return column_pieces_ > 1 ? divide_up(m_, LINES) : 0;
}

template <class S>
int64_t MixedProduct<S>::pieces_at_once() const {
    if (row_pieces_ == 1) return column_pieces_;
    return std::clamp<int64_t>(SHARED_PAIRS / (2 * line_ * piece_columns_ / LINES), 1, column_pieces_);
}

template <class S>
int64_t MixedProduct<S>::packed_columns() const {
    return row_pieces_ > 1 ? pieces_at_once() * piece_columns_ / LINES : 0;
}

/// What several pieces read is packed once for all of them: a whole, and of b some columns at a time.
template <class S>
void MixedProduct<S>::run_packed(Call call) const {
    const int64_t panel = 2 * line_, rows = packed_rows(), across = pieces_at_once();
    const bool shares_b = row_pieces_ > 1;
    const Scratch<uint32_t> a(rows * panel), b(packed_columns() * panel);
    std::atomic<bool> fits = true;
    const double ns = double(LINES * k_) * 0.2;
    parallel_for(rows, ns, [&](int64_t first, int64_t last) {
        const int64_t top = first * LINES;
        if (!pack_rows(call, top, std::min(m_, last * LINES) - top, a.data() + first * panel)) fits = false;
    });
    if (rows) call.packed_a = a.data();
    for (int64_t piece = 0; piece < column_pieces_; piece += across) {
        const int64_t here = std::min(across, column_pieces_ - piece), left = piece * piece_columns_;
        const int64_t right = std::min(n_, left + here * piece_columns_);
        if (shares_b) {
            parallel_for(divide_up(right - left, LINES), ns, [&](int64_t first, int64_t last) {
                const int64_t from = left + first * LINES;
                if (!pack_columns(call, from, std::min(right, left + last * LINES) - from, b.data() + first * panel)) fits = false;
            });
            call.packed_b = b.data(), call.packed_left = left;
        }
        parallel_for(row_pieces_ * here, piece_ns_, [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; ++i) {
                const Area area = area_of(i / here * column_pieces_ + piece + i % here);
                fits ? run_area(call, area) : widened(call, area);
            }
        });
    }
}

template <class S>
auto MixedProduct<S>::area_of(int64_t piece) const -> Area {
    const int64_t top = piece / column_pieces_ * piece_rows_, left = piece % column_pieces_ * piece_columns_;
    return {top, left, std::min(piece_rows_, m_ - top), std::min(piece_columns_, n_ - left)};
}

template <class S>
void MixedProduct<S>::run_area(const Call& call, const Area& area) const {
    if (path_ == Path::tiles) {
        if (!tiles(call, area)) widened(call, area);
    } else if (path_ == Path::widened) {
        widened(call, area);
    } else {
        lines(call, area);
    }
}

/// Few rows: b is read once, as it lies.
template <class S>
void MixedProduct<S>::lines(const Call& call, const Area& area) const {
    const Scratch<float> rows(area.rows * k_), sums(area.rows * area.columns);
    const S* b = call.b + area.left * b_.column;
    std::fill_n(sums.data(), area.rows * area.columns, 0.0f);
    if (path_ != Path::fill) widen_matrix(call.a + area.top * a_.row, a_, area.rows, k_, rows.data(), k_);
    if (path_ == Path::dots)
        multiply_dots<float>(rows.data(), k_, area.rows, b, b_.column, area.columns, k_, sums.data(), area.columns, 1);
    else if (path_ == Path::row_times_rows)
        add_rows<float>(rows.data(), 1, b, b_.row, k_, area.columns, sums.data());
    finish(call, area, sums.data(), area.columns);
}

template <class S>
bool MixedProduct<S>::pack_rows(const Call& call, int64_t first, int64_t count, uint32_t* out) const {
    return pack_blocks(call.a + first * a_.row, a_.row, a_.column, count, k_, parts_, PairOrder::by_line, out, line_);
}

template <class S>
bool MixedProduct<S>::pack_columns(const Call& call, int64_t first, int64_t count, uint32_t* out) const {
    return pack_blocks(call.b + first * b_.column, b_.column, b_.row, count, k_, parts_, PairOrder::by_pair, out, line_);
}

/// Of so few columns that packing would cost more than it saves, where the rows of a are those of tiles.
template <class S>
bool MixedProduct<S>::can_take_a_as_it_lies(const Area& area) const {
    const bool is_kept = std::is_same_v<S, bfloat16> || parts_ == Parts::half;
    return is_kept && a_.column == 1 && a_.row % 2 == 0 && k_ % BLOCK_STEPS == 0 && area.rows % BLOCK_LINES == 0 &&
           area.columns <= 4 * LINES;
}

/// Returns false, and has done nothing, where numbers are too large for it.
template <class S>
bool MixedProduct<S>::tiles(const Call& given, const Area& area) const {
    Call call = given;
    const int64_t rows = round_up(area.rows, BLOCK_LINES), columns = round_up(area.columns, BLOCK_LINES);
    call.takes_a_as_it_lies = !call.packed_a && can_take_a_as_it_lies(area);
    const Scratch<uint32_t> a(call.packed_a || call.takes_a_as_it_lies ? 0 : rows / BLOCK_LINES * line_);
    const Scratch<uint32_t> b(call.packed_b ? 0 : columns / BLOCK_LINES * line_);
    if (call.packed_a) {
        call.packed_a += area.top / BLOCK_LINES * line_;
    } else if (!call.takes_a_as_it_lies) {
        call.packed_a = a.data();
        if (!pack_rows(call, area.top, area.rows, a.data())) return false;
    }
    if (call.packed_b) {
        call.packed_b += (area.left - call.packed_left) / BLOCK_LINES * line_;
    } else {
        call.packed_b = b.data();
        if (!pack_columns(call, area.left, area.columns, b.data())) return false;
    }
    multiply(call, area);
    return true;
}

/// The product of an area's packed rows and columns: some of k at a time, with 32 columns in the first cache.
template <class S>
void MixedProduct<S>::multiply(const Call& call, const Area& area) const {
    const int64_t step = parts_of(parts_) * BLOCK;
    const int64_t rounds = divide_up(blocks_ * parts_of(parts_), TILE_STEPS / BLOCK_STEPS), most = divide_up(blocks_, rounds);
    const int64_t down = divide_up(area.rows, LINES), right = divide_up(area.columns, LINES);
    const Scratch<float> sums((rounds > 1 ? down * right : 1) * LINES * LINES);
    [[maybe_unused]] const bool is_plain = c_.column == 1 && !call.epilogue.bias && !call.epilogue.activation;
    const auto* const lying = reinterpret_cast<const uint32_t*>(call.a + area.top * a_.row);
    const int64_t pairs = a_.row / 2;  // of a row of it
    const TileRegisters registers;
    for (int64_t first = 0; first < blocks_; first += most) {
        const bool is_last = first + most >= blocks_;
        for (int64_t j = 0; j < right; ++j) {
            const int64_t width = std::min(LINES, area.columns - j * LINES);
            for (int64_t i = 0; i < down; ++i) {
                const int64_t height = std::min(LINES, area.rows - i * LINES);
                float* to = sums.data() + (rounds > 1 ? (j * down + i) * LINES * LINES : 0);
                int64_t row = LINES;
                bool in_place = false;
                if constexpr (std::is_same_v<S, float>) {
                    in_place = is_plain && height % BLOCK_LINES == 0 && width % BLOCK_LINES == 0;
                    if (in_place) to = call.c + (area.top + i * LINES) * c_.row + area.left + j * LINES, row = c_.row;
                }
                TileFactors factors{call.packed_a + 2 * i * line_ + first * step, call.packed_b + 2 * j * line_ + first * step,
                                    line_, line_, std::min(most, blocks_ - first), parts_, height > BLOCK_LINES ? 2 : 1,
                                    width > BLOCK_LINES ? 2 : 1};
                if (is_last) factors.last = pairs_of_last<S>(k_ - (blocks_ - 1) * BLOCK_STEPS);
                if (call.takes_a_as_it_lies) {
                    factors.a = lying + i * LINES * pairs + first * BLOCK_STEPS / 2;
                    factors.a_line = BLOCK_LINES * pairs, factors.a_row = pairs;
                }
                if constexpr (std::is_same_v<S, bfloat16>) {
                    if (is_last && is_plain && rounds_products()) {
                        S* const out = call.c + (area.top + i * LINES) * c_.row + area.left + j * LINES;
                        multiply_rounded(factors, first > 0, to, row, {out, c_.row, height, width});
                        continue;
                    }
                }
                multiply_blocks(factors, first > 0, to, row);
                if (is_last && !in_place) finish(call, {area.top + i * LINES, area.left + j * LINES, height, width}, to, LINES);
            }
        }
    }
}

template <class S>
void MixedProduct<S>::widened(const Call& call, const Area& area) const {
    alignas(64) static constexpr float zeros[PANEL] = {};
    const int64_t rounds = divide_up(k_, WIDE_STEPS), most = divide_up(k_, rounds);
    const bool by_step = a_.row == 1 && a_.column != 1;  // a is kept step by step, else row by row
    const int64_t a_row = by_step ? area.rows : most + 16;  // rows do not all fall upon the same places of the cache
    const int64_t panels = divide_up(area.columns, PANEL);
    const Scratch<float> a(by_step ? most * area.rows : area.rows * a_row), b(most * PANEL);
    const Scratch<float> sums((rounds > 1 ? panels * area.rows : TILE_ROWS) * PANEL);
    TileInput<float> in{nullptr, by_step ? 1 : a_row, by_step ? a_row : 1, b.data(), PANEL, 0, zeros, 0};
    for (int64_t first = 0, round = 0; first < k_; first += most, ++round) {
        in.k = std::min(most, k_ - first);
        const S* from = call.a + area.top * a_.row + first * a_.column;
        if (by_step)
            widen_matrix(from, {a_.column, a_.row}, in.k, area.rows, a.data(), a_row);
        else
            widen_matrix(from, a_, area.rows, in.k, a.data(), a_row);
        for (int64_t panel = 0; panel < panels; ++panel) {
            const int64_t column = panel * PANEL, width = std::min(PANEL, area.columns - column);
            if (width < PANEL) std::fill_n(b.data(), in.k * PANEL, 0.0f);
            widen_matrix(call.b + first * b_.row + (area.left + column) * b_.column, b_, in.k, width, b.data(), PANEL);
            for_tiles(area.rows, tile_kernel<float, L, TILE_VECTORS>, [&](int64_t i, TileKernel<float> kernel, int64_t rows) {
                float* to = sums.data() + (rounds > 1 ? (panel * area.rows + i) * PANEL : 0);
                in.a = a.data() + (by_step ? i : i * a_row);
                in.start = round ? to : zeros, in.start_row = round ? PANEL : 0;
                kernel(in, to, PANEL);
                if (round == rounds - 1) finish(call, {area.top + i, area.left + column, rows, width}, to, PANEL);
            });
        }
    }
}

/// Writes the sums of an area, whose rows are `row` apart, to c.
template <class S>
void MixedProduct<S>::finish(const Call& call, const Area& area, float* sums, int64_t row) const {
    const auto& [bias, activation] = call.epilogue;
    const bool turns = c_.row == 1 && c_.column != 1 && area.rows <= LINES && area.columns <= LINES;
    for (int64_t i = 0; i < area.rows; ++i) {
        float* from = sums + i * row;
        if (bias && swapped_) {
            const float one = bias[area.top + i];
            for (int64_t j = 0; j < area.columns; ++j) from[j] += one;
        } else if (bias) {
            for (int64_t j = 0; j < area.columns; ++j) from[j] += bias[area.left + j];
        }
        if (activation) activation(from, area.columns);
        if (turns) continue;
        S* to = call.c + (area.top + i) * c_.row + area.left * c_.column;
        if (c_.column == 1)
            narrow_row(from, area.columns, to);
        else
            for (int64_t j = 0; j < area.columns; ++j) to[j * c_.column] = store<S>(from[j]);
    }
    if (!turns) return;
    alignas(64) float turned[LINES * LINES];
    transpose(sums, row, area.rows, area.columns, turned, LINES);
    for (int64_t j = 0; j < area.columns; ++j)
        narrow_row(turned + j * LINES, area.rows, call.c + area.top + (area.left + j) * c_.column);
}

template class MixedProduct<half>;
template class MixedProduct<bfloat16>;
template class MixedProduct<float>;

}  // namespace norch::matmul
