#include "matmul/gemm.h"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "common/scratch.h"
#include "matmul/gemm_pack.h"
#include "matmul/gemm_tile.h"
#include "matmul/gemv.h"
#include "matmul/small.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::matmul {

template <>
TileKernel<float> tile_kernel<float, SIMD_WIDTH<float>, TILE_VECTORS>(int64_t rows) {
    return tile_among<float, SIMD_WIDTH<float>, TILE_VECTORS, Tile::plain>(rows, std::make_integer_sequence<int, TILE_ROWS>());
}

namespace {

constexpr int64_t SPLIT_BYTES = 512 << 10;  // of a matrix times a row: its rows are then dealt out, not its columns
constexpr int64_t AHEAD_BYTES = 40 << 10;
constexpr int64_t FEW_STEPS = 256;  // a panel of so many leaves room in the first cache for what the next one will touch

template <class T>
const T* zeros() {
    alignas(64) static constexpr T row[PANEL<T>] = {};
    return row;
}

/// Sets where what comes after a tile's rows of a lies together, and the first cache has room for both: each step's
/// elements, or all steps'.
template <class T>
bool look_ahead(TileInput<T>& in, int64_t rows) {
    const bool is_dense = in.a_row == in.k || in.a_step == rows;
    if (in.a_row == 1 && !is_dense)
        in.ahead = in.a + 2 * rows - 1, in.ahead_step = in.a_step;
    else if (is_dense && rows * in.k * int64_t(sizeof(T)) <= AHEAD_BYTES)
        in.ahead = in.a + rows * in.k, in.ahead_step = rows;
    else
        return false;
    return true;
}

/// Sets where the part of the next panel lies that the first tiles of a panel fetch; false for later ones.
template <class T>
bool look_at_panel(TileInput<T>& in, const T* next, int64_t tile) {
    in.ahead = next + tile * in.k * SIMD_WIDTH<T>, in.ahead_step = SIMD_WIDTH<T>;
    return tile < TILE_VECTORS;
}

}  // namespace

template <class T>
struct Product<T>::Call {
    const T* a;
    const T* b;
    T* c;
    Epilogue<T> epilogue;
    const T* panels = nullptr;  // of b's columns from `panels_left` on, where they are packed for all pieces
    int64_t panels_left = 0;
    const T* spread = nullptr;  // a's rows again, where those of a itself lie whole pages apart
};

template <class T>
void Product<T>::run(const T* a, const T* b, T* c, const Epilogue<T>& epilogue) const {
    if (path_ == Path::row_times_rows && k_ >= 64 && k_ * n_ * int64_t(sizeof(T)) >= SPLIT_BYTES) {
        run_split({swapped_ ? b : a, swapped_ ? a : b, c, epilogue});
        return;
    }
    if (is_deep() && !epilogue.bias && !epilogue.activation) {
        run_deep({swapped_ ? b : a, swapped_ ? a : b, c, epilogue});
        return;
    }
    if (shares_panels()) {
        run_shared({swapped_ ? b : a, swapped_ ? a : b, c, epilogue});
        return;
    }
    parallel_for(pieces(), piece_ns_, [&](int64_t first, int64_t last) { run_pieces(first, last, a, b, c, epilogue); });
}

/// Some steps of k at a time, by which both factors are read once, and then the sum of these parts in their order.
template <class T>
void Product<T>::run_deep(const Call& call) const {
    const int64_t parts = deep_parts(), numel = m_ * n_;
    const Scratch<T> sums(parts * numel);
    parallel_for(parts, piece_ns_ * double(pieces()) / double(parts), [&](int64_t begin, int64_t end) {
        for (int64_t part = begin; part < end; ++part) {
            const int64_t first = k_ * part / parts, steps = k_ * (part + 1) / parts - first;
            const Product product(m_, n_, steps, a_, b_, {n_, 1});
            const T *a = call.a + first * a_.column, *b = call.b + first * b_.row;
            if (product.swapped_) std::swap(a, b);
            product.run_area({a, b, sums.data() + part * numel, {}}, {0, product.m_, 0, product.n_});
        }
    });
    for (int64_t part = 1; part < parts; ++part) {
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < numel; ++i) sums[i] += sums[part * numel + i];
    }
    for (int64_t i = 0; i < m_; ++i)
        for (int64_t j = 0; j < n_; ++j) call.c[i * c_.row + j * c_.column] = sums[i * n_ + j];
}

/// b is packed before it is multiplied, by all threads, and along its rows.
template <class T>
void Product<T>::run_shared(Call call) const {
    const int64_t span = shared_span();
    const Scratch<T> panels(k_ * (span / PANEL<T>) * PANEL<T>);
    call.panels = panels.data();
    std::optional<Scratch<T>> spread;
    if (spreads_rows()) {
        spread.emplace(m_ * spread_row());
        call.spread = spread->data();
        parallel_for(m_, double(k_) / SIMD_WIDTH<T>, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) std::copy_n(call.a + i * a_.row, k_, spread->data() + i * spread_row());
        });
    }
    for (int64_t left = 0; left < n_; left += span) {
        const int64_t right = std::min(n_, left + span), count = (right - left) / PANEL<T>;
        const T* b = call.b + left * b_.column;
        call.panels_left = left;
        if (b_.column == 1) {
            parallel_for(k_, double(right - left) / SIMD_WIDTH<T>, [&](int64_t begin, int64_t end) {
                for (int64_t p = begin; p < end; ++p)
                    for (int64_t j = 0; j < count; ++j)
                        pack_panel(b + p * b_.row + j * PANEL<T>, b_, 1, PANEL<T>, panels.data() + (j * k_ + p) * PANEL<T>, PANEL<T>);
            });
        } else {
            parallel_for(count, double(k_ * PANEL<T>) * 0.3, [&](int64_t begin, int64_t end) {
                for (int64_t j = begin; j < end; ++j)
                    pack_panel(b + j * PANEL<T> * b_.column, b_, k_, PANEL<T>, panels.data() + j * k_ * PANEL<T>, PANEL<T>);
            });
        }
        const int64_t across = divide_up(right - left, piece_columns_);
        parallel_for(row_pieces_ * across, piece_ns_, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t top = i / across * piece_rows_, from = left + i % across * piece_columns_;
                run_area(call, {top, std::min(m_, top + piece_rows_), from, std::min(right, from + piece_columns_)});
            }
        });
    }
}

/// One row times a large matrix: each part of the matrix's rows gives a row of sums, since rows lie together in memory and
/// fill a cache evenly, which columns do not.
template <class T>
void Product<T>::run_split(const Call& call) const {
    const int64_t part = std::max<int64_t>(32, divide_up(k_, 16)), parts = divide_up(k_, part);
    const Scratch<T> sums(parts * n_);
    parallel_for(parts, double(part * n_) * sizeof(T) / LINE_BYTES_PER_NS, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            T* row = sums.data() + i * n_;
            std::fill_n(row, n_, T(0));
            const int64_t first = i * part;
            add_rows(call.a + first * a_.column, a_.column, call.b + first * b_.row, b_.row, std::min(part, k_ - first),
                     n_, row);
        }
    });
    const T* bias = starts_with_bias_ ? call.epilogue.bias : nullptr;
    parallel_for(n_, 0.1 * double(parts), [&](int64_t begin, int64_t end) {
        if (bias)
            std::copy(bias + begin, bias + end, call.c + begin);
        else
            std::fill(call.c + begin, call.c + end, T(0));
        for (int64_t i = 0; i < parts; ++i) {
            const T* row = sums.data() + i * n_;
            NORCH_INDEPENDENT
            for (int64_t j = begin; j < end; ++j) call.c[j] += row[j];
        }
        const Area area{0, 1, begin, end};
        if (call.epilogue.activation || (call.epilogue.bias && !starts_with_bias_)) finish(call, area);
    });
}

template <class T>
void Product<T>::run_pieces(int64_t first, int64_t last, const T* a, const T* b, T* c,
                            const Epilogue<T>& epilogue) const {
    const Call call{swapped_ ? b : a, swapped_ ? a : b, c, epilogue};
    for (int64_t i = first; i < last; ++i) {
        const int64_t top = i / column_pieces_ * piece_rows_, left = i % column_pieces_ * piece_columns_;
        run_area(call, {top, std::min(m_, top + piece_rows_), left, std::min(n_, left + piece_columns_)});
    }
}

template <class T>
void Product<T>::run_area(const Call& call, const Area& area) const {
    switch (path_) {
        case Path::fill: fill(call, area); break;
        case Path::direct: direct(call, area); break;
        case Path::packed: packed(call, area); break;
        case Path::row_times_rows: row_times_rows(call, area); break;
        case Path::dots: dots(call, area); break;
        case Path::small: small(call, area); break;
    }
    if (!turns_output_ && (call.epilogue.activation || (call.epilogue.bias && !starts_with_bias_))) finish(call, area);
}

template <class T>
void Product<T>::fill(const Call& call, const Area& area) const {
    const T* bias = starts_with_bias_ ? call.epilogue.bias : nullptr;
    for (int64_t i = area.top; i < area.bottom; ++i)
        for (int64_t j = area.left; j < area.right; ++j)
            call.c[i * c_.row + j * c_.column] = bias ? bias[j] : T(0);
}

/// The columns from `left` on that fit vectors of L lanes, the last ones twice where they do not fit them evenly. Returns
/// where it ended: `right`, or `left` where there are fewer than L columns.
template <class T>
template <int L>
int64_t Product<T>::direct_columns(const Call& call, const Area& area, int64_t left, int64_t right) const {
    if (right - area.left < L) return left;
    const T* bias = starts_with_bias_ ? call.epilogue.bias : nullptr;
    TileInput<T> in;
    in.a_row = a_.row, in.a_step = a_.column, in.b_step = b_.row, in.k = k_, in.start_row = 0;
    const auto rows = [&](int64_t column) {
        return [&, column](int64_t i, TileKernel<T> kernel, int64_t) {
            in.a = call.a + (area.top + i) * a_.row;
            in.b = call.b + column;
            in.start = bias ? bias + column : zeros<T>();
            kernel(in, call.c + (area.top + i) * c_.row + column, c_.row);
        };
    };
    if constexpr (L == SIMD_WIDTH<T>)  // with shorter vectors there are fewer columns than two have
        for (; right - left >= 2 * L; left += 2 * L) for_tiles(area.bottom - area.top, tile_kernel<T, L, 2>, rows(left));
    for (; left < right; left += L) {
        left = std::min(left, right - L);
        for_tiles(area.bottom - area.top, tile_kernel<T, L, 1>, rows(left));
    }
    return left;
}

template <class T>
void Product<T>::direct(const Call& call, const Area& area) const {
    constexpr int L = SIMD_WIDTH<T>;
    int64_t left = direct_columns<L>(call, area, area.left, area.right);
    if constexpr (L >= 8) left = direct_columns<L / 2>(call, area, left, area.right);
    if constexpr (L >= 16) left = direct_columns<L / 4>(call, area, left, area.right);
    if (left < area.right) packed(call, {area.top, area.bottom, left, area.right});
}

template <class T>
void Product<T>::packed(const Call& call, const Area& area) const {
    const bool is_upright = a_.row == 1 && a_.column != 1;
    const int64_t blocks = divide_up(k_, most_steps()), block = divide_up(k_, blocks);
    // What is left of the columns beside whole panels is better not packed, and up to a few not padded.
    const int64_t left_over = b_.column == 1 && c_.column == 1 ? (area.right - area.left) % PANEL<T> : 0;
    if (left_over >= FEWEST_COLUMNS) direct(call, {area.top, area.bottom, area.right - left_over, area.right});
    const int64_t right = left_over >= FEWEST_COLUMNS ? area.right - left_over : area.right;
    alignas(64) T small[64 * PANEL<T>];
    std::optional<Scratch<T>> large;
    if (block > 64) large.emplace(block * PANEL<T>);
    T* const panel = large ? large->data() : small;
    const int64_t height = area.bottom - area.top;
    const bool packs = is_upright && right - area.left >= 4 * PANEL<T>;
    std::optional<Scratch<T>> tiles;
    if (packs) tiles.emplace(height * block);
    for (int64_t first = 0; first < k_; first += block) {
        const int64_t steps = std::min(block, k_ - first);
        Rows rows{call.a + area.top * a_.row + first * a_.column, a_.row, a_.column, false};
        if (call.spread) rows = {call.spread + area.top * spread_row() + first, spread_row(), 1, false};
        if (packs) {
            pack_tiles(rows.data, a_.column, steps, height, tiles->data());
            rows = {tiles->data(), 1, 0, true};
        }
        for (int64_t column = area.left; column < right; column += PANEL<T>) {
            const int64_t width = std::min(PANEL<T>, right - column);
            const int64_t padded = divide_up(width, SIMD_WIDTH<T>) * SIMD_WIDTH<T>;
            const T* b = call.b + first * b_.row + column * b_.column;
            if (call.panels && width == PANEL<T>) {
                const T* packed = call.panels + (column - call.panels_left) * k_ + first * PANEL<T>;
                panel_times_rows(call, area, rows, first, steps, column, width, packed, nullptr, nullptr);
                continue;
            }
            // Whole rows of a panel are packed by the first tile that reads them.
            const bool as_it_goes = b_.column == 1 && width == PANEL<T>;
            if (!as_it_goes) pack_panel(b, b_, steps, width, panel, padded);
            panel_times_rows(call, area, rows, first, steps, column, width, panel, as_it_goes ? b : nullptr, panel);
        }
    }
}

/// Adds to the columns of one panel what `steps` of k contribute; `unpacked` is where the panel is to be packed from, or
/// null. Where c's columns are not whole vectors next to each other, the sums are kept in a tile of their own.
template <class T>
void Product<T>::panel_times_rows(const Call& call, const Area& area, const Rows& rows_of_a, int64_t first_step,
                                  int64_t steps, int64_t column, int64_t width, const T* panel, const T* unpacked,
                                  T* to_pack) const {
    constexpr int L = SIMD_WIDTH<T>;
    const T* bias = starts_with_bias_ ? call.epilogue.bias : nullptr;
    const int64_t padded = divide_up(width, L) * L;
    const bool in_place = width == padded && c_.column == 1, is_first = first_step == 0;
    alignas(64) T start_row[PANEL<T>], sums[TILE_ROWS * PANEL<T>];
    if (is_first)
        for (int64_t j = 0; j < padded; ++j) start_row[j] = bias && j < width ? bias[column + j] : T(0);
    const int64_t height = area.bottom - area.top;
    std::optional<Scratch<T>> turned;  // the sums of all tiles
    if (turns_output_) turned.emplace(height * padded);
    // Tiles of an area's first panel fetch rows of a, which then stay in the second cache; later ones the next panel.
    const bool has_next = call.panels && column > area.left && column + 2 * PANEL<T> <= area.right;
    const T* const next = has_next ? panel + k_ * PANEL<T> : nullptr;
    // Of few steps the next panel's are fetched, and the places of its sums, which both lie next to this one's.
    const bool fetches_next = FETCHES_FAR && steps <= FEW_STEPS;
    const int64_t packs_ahead = fetches_next ? PANEL<T> : PREFETCH_STEPS * b_.row;
    TileInput<T> in{nullptr, rows_of_a.row, rows_of_a.step, panel, padded, steps, start_row, 0, to_pack};
    const auto tile = [&](int64_t i, TileKernel<T> kernel, int64_t rows) {
        in.a = rows_of_a.data + i * (rows_of_a.in_tiles ? steps : rows_of_a.row);
        if (rows_of_a.in_tiles) in.a_step = rows;
        if (unpacked) in.b = i == 0 ? unpacked : panel, in.b_step = i == 0 ? b_.row : padded;
        if (unpacked && i == 0) in.ahead_step = packs_ahead, kernel = tile_kernel<T, L, TILE_VECTORS, Tile::packs>(rows);
        else if (padded == PANEL<T> && (next ? look_at_panel(in, next, i / rows) : look_ahead(in, rows)))
            kernel = tile_kernel<T, L, TILE_VECTORS, Tile::looks_ahead>(rows);
        T* c = call.c + (area.top + i) * c_.row + column * c_.column;
        if (in_place) {
            if (fetches_next)
                for (int64_t r = 0; r < rows; ++r) __builtin_prefetch(c + r * c_.row + PANEL<T>);
            if (!is_first) in.start = c, in.start_row = c_.row;
            kernel(in, c, c_.row);
            return;
        }
        if (turned) return kernel(in, turned->data() + i * padded, padded);
        if (!is_first) {
            for (int64_t r = 0; r < rows; ++r)
                for (int64_t j = 0; j < padded; ++j)
                    sums[r * padded + j] = j < width ? c[r * c_.row + j * c_.column] : T(0);
            in.start = sums, in.start_row = padded;
        }
        kernel(in, sums, padded);
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t j = 0; j < width; ++j) c[r * c_.row + j * c_.column] = sums[r * padded + j];
    };
    for_tiles(height, padded == L ? tile_kernel<T, L, 1> : tile_kernel<T, L, 2>, tile);
    if (!turned) return;
    const auto& [column_bias, activation] = call.epilogue;
    for (int64_t i = 0; column_bias && !starts_with_bias_ && i < height; ++i)
        for (int64_t j = 0; j < padded; ++j) (*turned)[i * padded + j] += column_bias[area.top + i];
    if (activation) activation(turned->data(), height * padded);
    transpose(turned->data(), padded, height, width, call.c + area.top + column * c_.column, c_.column);
}

template <class T>
void Product<T>::row_times_rows(const Call& call, const Area& area) const {
    const T* bias = starts_with_bias_ ? call.epilogue.bias : nullptr;
    T* c = call.c + area.left;
    const int64_t n = area.right - area.left;
    if (bias)
        std::copy_n(bias + area.left, n, c);
    else
        std::fill_n(c, n, T(0));
    add_rows(call.a, a_.column, call.b + area.left, b_.row, k_, n, c);
}

template <class T>
void Product<T>::dots(const Call& call, const Area& area) const {
    const int64_t rows = area.bottom - area.top, columns = area.right - area.left;
    const T* b = call.b + area.left * b_.column;
    T* c = call.c + area.top * c_.row + area.left * c_.column;
    if (a_.column == 1) {
        multiply_dots(call.a + area.top * a_.row, a_.row, rows, b, b_.column, columns, k_, c, c_.row, c_.column);
        return;
    }
    const Scratch<T> dense(rows * k_);
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t p = 0; p < k_; ++p) dense[i * k_ + p] = call.a[(area.top + i) * a_.row + p * a_.column];
    multiply_dots<T>(dense.data(), k_, rows, b, b_.column, columns, k_, c, c_.row, c_.column);
}

namespace {

template <class T>
auto small_of(int64_t columns) {
    return columns == 1   ? multiply_small<T, 1>
           : columns == 2 ? multiply_small<T, 2>
           : columns == 3 ? multiply_small<T, 3>
                          : multiply_small<T, 4>;
}

}  // namespace

template <class T>
void Product<T>::small(const Call& call, const Area& area) const {
    small_of<T>(n_)({1, 0, 0, 0}, area.bottom - area.top, k_, call.a + area.top * a_.row, a_, call.b, b_,
                    call.epilogue.bias, call.c + area.top * c_.row, c_);
}

template <class T>
void Product<T>::run_many(int64_t count, int64_t a_step, int64_t b_step, int64_t c_step, const T* a, const T* b,
                          T* c) const {
    small_of<T>(n_)({count, a_step, b_step, c_step}, m_, k_, a, a_, b, b_, nullptr, c, c_);
}

template <class T>
void Product<T>::finish(const Call& call, const Area& area) const {
    const T* bias = starts_with_bias_ ? nullptr : call.epilogue.bias;
    const auto activation = call.epilogue.activation;
    for (int64_t i = area.top; i < area.bottom; ++i) {
        T* c = call.c + i * c_.row;
        if (bias)
            for (int64_t j = area.left; j < area.right; ++j) c[j * c_.column] += bias[swapped_ ? i : j];
        if (!activation) continue;
        if (c_.column == 1)
            activation(c + area.left, area.right - area.left);
        else
            for (int64_t j = area.left; j < area.right; ++j) activation(c + j * c_.column, 1);
    }
}

template class Product<float>;
template class Product<double>;

}  // namespace norch::matmul
