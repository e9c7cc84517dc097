// The transform of one row: cut in two, its columns are the lanes of vectors (Bailey, 1990).
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "runtime/row_lanes.h"
#include "spectral/spectrum.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::spectral {

/// A transform of rows * columns numbers: by columns, then, turned, by rows.
template <class T>
struct Cut {
    int64_t rows = 0, columns = 0;
    std::shared_ptr<const FourierTables<T>> of_columns, of_rows;
    std::vector<T> starts, steps;  // the turns of row k: of each block of columns, and within it

    explicit Cut(int64_t n) {
        constexpr int L = SIMD_WIDTH<T>;
        for (int64_t d = int64_t(std::sqrt(double(n))); d >= L / 2 && !rows; --d)
            if (n % d == 0) rows = d, columns = n / d;
        if (!rows) return;
        of_columns = FourierTables<T>::of(rows);
        of_rows = FourierTables<T>::of(columns);
        const auto put = [](std::vector<T>& to, int64_t at, Root root, int64_t apart) {
            to[size_t(at)] = T(root.re);
            to[size_t(at + apart)] = T(root.im);
        };
        starts.resize(size_t(2 * rows * ((columns + L - 1) / L)));
        steps.resize(size_t(2 * rows * L));
        for (int64_t k = 0; k < rows; ++k) {
            for (int64_t c = 0; c < columns; c += L) put(starts, 2 * (c / L * rows + k), Root(c * k % n, n), 1);
            for (int64_t l = 0; l < L; ++l) put(steps, k * 2 * L + l, Root(l * k % n, n), L);
        }
    }

    /// A column's or row's share of the work, about.
    static double ns(int64_t size) { return double(size) * (3 + std::log2(double(size))) * 0.15 * sizeof(T); }

    void run(Planes<T> in, Planes<T> between, Planes<T> out) const {
        constexpr int L = SIMD_WIDTH<T>;
        using V = vector_t<T, L>;
        parallel_for((columns + L - 1) / L, ns(rows), [&](int64_t begin, int64_t end) {
            const Scratch<T> z(rows * 2 * L);
            for (int64_t block = begin; block < end; ++block) {
                const int64_t first = block * L, width = std::min<int64_t>(L, columns - first);
                const auto lanes_at = [&](const T* from) NORCH_INLINE_LAMBDA {
                    V v{};
                    if (width == L) v = load_vector<L>(from);
                    else for (int64_t l = 0; l < width; ++l) v[l] = from[l];
                    return v;
                };
                const auto put = [&](T* to, V v) NORCH_INLINE_LAMBDA {
                    if (width == L) store_vector(to, v);
                    else for (int64_t l = 0; l < width; ++l) to[l] = v[l];
                };
                for (int64_t j = 0; j < rows; ++j) {
                    store_vector(&z[j * 2 * L], lanes_at(in.re + j * columns + first));
                    store_vector(&z[j * 2 * L + L], lanes_at(in.im + j * columns + first));
                }
                transform_lanes(*of_columns, z.data());
                const T* const start = starts.data() + 2 * block * rows;
                for (int64_t k = 0; k < rows; ++k) {
                    const T *const step = &steps[size_t(k * 2 * L)], a = start[2 * k], b = start[2 * k + 1];
                    const V cos = load_vector<L>(step), sin = load_vector<L>(step + L);
                    const V c = cos * a - sin * b, s = sin * a + cos * b;
                    const T* const from = &z[of_columns->places[size_t(k)] * int64_t(2 * L)];
                    const V re = load_vector<L>(from), im = load_vector<L>(from + L);
                    put(between.re + k * columns + first, re * c - im * s);
                    put(between.im + k * columns + first, im * c + re * s);
                }
            }
        });
        parallel_for((rows + L - 1) / L, ns(columns), [&](int64_t begin, int64_t end) {
            const Scratch<T> z(columns * 2 * L);
            for (int64_t block = begin; block < end; ++block) {
                const int64_t first = block * L;
                for (int part = 0; part < 2; ++part) {
                    RowLanes<T> lanes{{}, 1, int(std::min<int64_t>(L, rows - first))};
                    for (int l = 0; l < L; ++l)
                        lanes.at[l] = (part ? between.im : between.re) + (first + (l < lanes.count ? l : 0)) * columns;
                    T* const to = z.data() + part * L;
                    lanes.read(columns, [&](int64_t j, V v) NORCH_INLINE_LAMBDA { store_vector(to + j * 2 * L, v); });
                }
                transform_lanes(*of_rows, z.data());
                for (int part = 0; part < 2; ++part) {
                    RowLanes<T> lanes{{}, rows, int(std::min<int64_t>(L, rows - first))};
                    for (int l = 0; l < L; ++l) lanes.at[l] = (part ? out.im : out.re) + first + l;
                    const T* const from = z.data() + part * L;
                    lanes.write(columns, [&](int64_t k) NORCH_INLINE_LAMBDA {
                        return load_vector<L>(from + of_rows->places[size_t(k)] * int64_t(2 * L));
                    });
                }
            }
        });
    }
};

/// to[j * to_step] = from[j * step] * factor(j).
template <class T, class Factor>
NORCH_INLINE void copy_row(T* to, int64_t to_step, const T* from, int64_t step, int64_t n, const Factor& factor) {
    if (step == 1 && to_step == 1) {
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < n; ++j) to[j] = from[j] * factor(j);
    } else {
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < n; ++j) to[j * to_step] = from[j * step] * factor(j);
    }
}

/// move(j, along, weights of elements 2 j and 2 j + 1) for each j < n.
template <class T, class Move>
NORCH_INLINE void each_two(int64_t along, const T* window, int64_t n, const Move& move) {
    if (along != 1) {
        for (int64_t j = 0; j < n; ++j)
            move(j, along, window ? window[2 * j] : T(1), window ? window[2 * j + 1] : T(1));
    } else if (window) {
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < n; ++j) move(j, 1, window[2 * j], window[2 * j + 1]);
    } else {
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < n; ++j) move(j, 1, T(1), T(1));
    }
}

/// Where the parts of one row begin, and the distance of its elements.
template <class T>
struct Row {
    T* part[2];
    int64_t along;
};

/// The numbers of a row, with zeros behind what is given.
template <class T>
void read_row(const Wanted& w, Row<T> in, const T* window, Planes<T> x) {
    const auto weight = [=](int64_t j) NORCH_INLINE_LAMBDA { return window ? window[j] : T(1); };
    if (w.inputs == 1 && w.is_halved()) {
        const int64_t odd = w.size / 2, even = w.size - odd;
        each_two(in.along, window, odd, [&](int64_t j, int64_t along, T even_weight, T odd_weight) NORCH_INLINE_LAMBDA {
            x.re[j] = in.part[0][2 * j * along] * even_weight;
            x.im[j] = in.part[0][(2 * j + 1) * along] * odd_weight;
        });
        if (even > odd) x.re[odd] = in.part[0][2 * odd * in.along] * weight(2 * odd);
        std::fill(x.re + even, x.re + w.points(), T(0));
        std::fill(x.im + odd, x.im + w.points(), T(0));
        return;
    }
    for (int64_t part = 0; part < 2; ++part) {
        T* const to = (part == 1) == w.is_exchanged() ? x.re : x.im;
        const int64_t n = part < w.inputs ? w.size : 0;
        if (w.inputs == 1) copy_row(to, 1, in.part[0], in.along, n, weight);
        else copy_row(to, 1, in.part[part], in.along, n, [](int64_t) NORCH_INLINE_LAMBDA { return T(1); });
        std::fill(to + n, to + w.room(), T(0));
    }
}

template <class T>
void write_real(const Wanted& w, Planes<T> y, const T* window, Row<T> out) {
    const auto weight = [=](int64_t j) NORCH_INLINE_LAMBDA { return window ? window[j] : T(1); };
    if (!w.is_halved()) return copy_row(out.part[0], out.along, y.re, 1, w.count, weight);
    const int64_t odd = w.count / 2;
    each_two(out.along, window, odd, [&](int64_t j, int64_t along, T even_weight, T odd_weight) NORCH_INLINE_LAMBDA {
        out.part[0][2 * j * along] = y.re[j] * even_weight;
        out.part[0][(2 * j + 1) * along] = y.im[j] * odd_weight;
    });
    if (w.count > 2 * odd) out.part[0][2 * odd * out.along] = y.re[odd] * weight(2 * odd);
}

template <class T>
void write_complex(const Wanted& w, Planes<T> y, Row<T> out) {
    const int64_t computed = w.computed();
    for (int64_t part = 0; part < w.outputs; ++part) {
        const T* const from = (part == 1) == w.is_exchanged() ? y.re : y.im;
        const auto factors = w.factors<T>(part);
        copy_row(out.part[part], out.along, from, 1, computed,
                 [=](int64_t k) NORCH_INLINE_LAMBDA { return k ? factors.others : factors.first; });
        if (computed < w.count)
            copy_row(out.part[part] + computed * out.along, out.along, from + w.n - computed, -1, w.count - computed,
                     [=](int64_t) NORCH_INLINE_LAMBDA { return factors.conjugates; });
    }
}

/// How many numbers of type T a row's transform has besides: what goes in, between and comes out.
template <class T>
int64_t row_room(const Wanted& w) {
    return 2 * (2 * w.room() + w.points());
}

template <class T>
void transform_row(const Wanted& w, const FourierTables<T>& tables, const Cut<T>& cut, Row<T> in, Row<T> out,
                   const T* window) {
    const int64_t m = w.points(), room = w.room();
    const Scratch<T> scratch(row_room<T>(w));
    const auto planes = [&](int64_t at, int64_t n) { return Planes<T>{scratch.data() + at, scratch.data() + at + n}; };
    Planes<T> x = planes(0, room), y = planes(2 * (room + m), room);
    const Planes<T> between = planes(2 * room, m);
    const auto in_place = [&](const Row<T>& row) {
        return Planes<T>{row.part[w.is_exchanged() ? 1 : 0], row.part[w.is_exchanged() ? 0 : 1]};
    };
    const bool is_complex = w.inputs == w.outputs;
    if (is_complex && w.size == w.n && in.along == 1) x = in_place(in);
    else read_row(w, in, window, x);
    if (is_complex && w.count == w.n && out.along == 1 && w.scale == 1) return cut.run(x, between, in_place(out));
    if (w.outputs < w.inputs) {
        start_real<T>(w, x);
        if (w.is_halved()) start_halved(w, tables, x, start_halved(w, tables, PlaneVectors<T>{x}, 1));
        cut.run(x, between, y);
        return write_real(w, y, window, out);
    }
    cut.run(x, between, y);
    if (w.is_halved()) {
        const auto same = [](int64_t k) NORCH_INLINE_LAMBDA { return k; };
        finish_ends<T>(w, y);
        finish_halved(w, tables, y, finish_halved(w, tables, PlaneVectors<T>{y}, 1, same), same);
    }
    write_complex(w, y, out);
}

}  // namespace norch::spectral
