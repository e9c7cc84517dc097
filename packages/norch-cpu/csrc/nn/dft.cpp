// dft: Fourier transforms along the last dim. Several rows are the lanes of vectors; a long row, or one of few, is cut in
// two, and its columns are (Bailey, 1990). Real numbers are taken for half as many complex ones.
#include <algorithm>
#include <cmath>

#include "common/layout.h"
#include "nn/fourier.h"
#include "nn/row_lanes.h"
#include "runtime/allocator.h"
#include "runtime/families.h"
#include "runtime/parallel.h"

namespace norch::nn {
namespace {

// Bytes that the numbers of all lanes may take: of few blocks, which threads cannot share, and of many.
constexpr int64_t FEW_IN_LANES = 1 << 17, MANY_IN_LANES = 1 << 20;

template <class E>
struct Complex {
    E re, im;
};

/// Numbers in vectors, one of each row; of all rows real parts lie before imaginary ones.
template <class T>
struct LaneNumbers {
    static constexpr int L = SIMD_WIDTH<T>, STEP = 1;
    using E = vector_t<T, L>;
    T* z;
    NORCH_INLINE Complex<E> get(int64_t i) const { return {load_vector<L>(z + i * 2 * L), load_vector<L>(z + i * 2 * L + L)}; }
    NORCH_INLINE void set(int64_t i, Complex<E> v) const {
        store_vector(z + i * 2 * L, v.re);
        store_vector(z + i * 2 * L + L, v.im);
    }
    NORCH_INLINE Complex<E> get_back(int64_t i) const { return get(i); }
    NORCH_INLINE void set_back(int64_t i, Complex<E> v) const { set(i, v); }
    static NORCH_INLINE T turn(const T* turns) { return *turns; }
};

/// Numbers of one row.
template <class T>
struct Planes {
    static constexpr int STEP = 1;
    using E = T;
    T *re, *im;
    NORCH_INLINE Complex<E> get(int64_t i) const { return {re[i], im[i]}; }
    NORCH_INLINE void set(int64_t i, Complex<E> v) const { re[i] = v.re, im[i] = v.im; }
    NORCH_INLINE Complex<E> get_back(int64_t i) const { return get(i); }
    NORCH_INLINE void set_back(int64_t i, Complex<E> v) const { set(i, v); }
    static NORCH_INLINE T turn(const T* turns) { return *turns; }
};

/// Numbers of one row, as many at a time as a vector has lanes; backwards from i too.
template <class T>
struct PlaneVectors {
    static constexpr int L = SIMD_WIDTH<T>, STEP = L;
    using E = vector_t<T, L>;
    Planes<T> of;
    template <int... I>
    static NORCH_INLINE E reversed(E v, std::integer_sequence<int, I...>) {
        return __builtin_shufflevector(v, v, (L - 1 - I)...);
    }
    static NORCH_INLINE E reversed(E v) { return reversed(v, std::make_integer_sequence<int, L>()); }
    NORCH_INLINE Complex<E> get(int64_t i) const { return {load_vector<L>(of.re + i), load_vector<L>(of.im + i)}; }
    NORCH_INLINE void set(int64_t i, Complex<E> v) const {
        store_vector(of.re + i, v.re);
        store_vector(of.im + i, v.im);
    }
    NORCH_INLINE Complex<E> get_back(int64_t i) const {
        const Complex<E> v = get(i - L + 1);
        return {reversed(v.re), reversed(v.im)};
    }
    NORCH_INLINE void set_back(int64_t i, Complex<E> v) const { set(i - L + 1, {reversed(v.re), reversed(v.im)}); }
    static NORCH_INLINE E turn(const T* turns) { return load_vector<L>(turns); }
};

/// What a kernel was asked for: see `dft` of norch.
struct Wanted {
    int64_t n, size, count, inputs, outputs;
    bool forward, doubled;
    double scale;

    bool is_halved() const { return inputs != outputs && n % 2 == 0; }  // two real numbers as one
    int64_t points() const { return is_halved() ? n / 2 : n; }
    /// Numbers that there must be room for: a spectrum of real numbers has one more, or comes whole.
    int64_t room() const { return std::max(points(), inputs == 2 ? size : 0) + 1; }
};

/// For numbers k and m - k, of which one's conjugate goes with the other: their sum and, turned, their difference.
template <class E>
struct Pair {
    E sum_re, sum_im, x, y;
};

/// set(k, m - k, pair) for each k from `k` on that, with those of its step, lies before m - k. Returns the first left out.
template <class T, class Numbers, class At, class Set>
NORCH_INLINE int64_t each_pair(const FourierTables<T>& tables, const Numbers& z, int64_t k, Complex<T> factor, const At& at, const Set& set) {
    using E = typename Numbers::E;
    const int64_t m = tables.n;
    const T *const turns_re = tables.half_turns[0].data(), *const turns_im = tables.half_turns[1].data();
    for (; 2 * (k + Numbers::STEP - 1) <= (Numbers::STEP == 1 ? m : m - 1); k += Numbers::STEP) {
        const int64_t i = at(k), j = at(m - k);
        const Complex<E> a = z.get(i), b = z.get_back(j);
        const E dr = (a.re - b.re) * factor.re, di = (a.im + b.im) * factor.im;
        const auto c = Numbers::turn(turns_re + k), s = Numbers::turn(turns_im + k);
        set(i, j, Pair<E>{(a.re + b.re) * factor.re, (a.im - b.im) * factor.im, c * di + s * dr, c * dr - s * di});
    }
    return k;
}

/// From the transform of n / 2 numbers that stand for two real ones each to that of these: from number k on, where at(k)
/// says. Returns the first that is left out.
template <class T, class Numbers, class At>
NORCH_INLINE int64_t finish_halved(const Wanted& w, const FourierTables<T>& tables, const Numbers& z, int64_t k, const At& at) {
    using E = typename Numbers::E;
    const T half = T(w.doubled ? w.scale : w.scale / 2);
    return each_pair(tables, z, k, {half, half}, at, [&](int64_t i, int64_t j, const Pair<E>& p) NORCH_INLINE_LAMBDA {
        z.set(i, {p.sum_re + p.x, p.sum_im - p.y});
        z.set_back(j, {p.sum_re - p.x, -p.sum_im - p.y});
    });
}
template <class T, class Numbers>
NORCH_INLINE void finish_ends(const Wanted& w, const Numbers& z) {
    const auto first = z.get(0);
    using E = typename Numbers::E;
    z.set(0, {(first.re + first.im) * T(w.scale), E{}});
    z.set(w.points(), {(first.re - first.im) * T(w.scale), E{}});
}

/// Of a spectrum whose real parts are wanted: the numbers whose transform is two of these each.
template <class T, class Numbers>
NORCH_INLINE int64_t start_halved(const Wanted& w, const FourierTables<T>& tables, const Numbers& z, int64_t k) {
    using E = typename Numbers::E;
    const T half = T(w.doubled ? w.scale : w.scale / 2);
    const auto same = [](int64_t j) NORCH_INLINE_LAMBDA { return j; };
    return each_pair(tables, z, k, {half, w.forward ? half : -half}, same, [&](int64_t i, int64_t j, const Pair<E>& p) NORCH_INLINE_LAMBDA {
        z.set(i, {p.sum_re - p.x, p.sum_im + p.y});
        z.set_back(j, {p.sum_re + p.x, p.y - p.sum_im});
    });
}

/// The same of its ends; or, for an odd n, makes it the spectrum of real numbers.
template <class T, class Numbers>
NORCH_INLINE void start_real(const Wanted& w, const Numbers& z) {
    using E = typename Numbers::E;
    for (int64_t j = std::max<int64_t>(w.n - w.size + 1, 1); 2 * j < w.n; ++j) {  // what lies beyond the middle
        const Complex<E> a = z.get(j), b = z.get(w.n - j);
        z.set(j, {a.re + b.re, a.im - b.im});
    }
    const E first = z.get(0).re * T(w.scale);
    if (w.n % 2 == 0) {
        const E middle = z.get(w.n / 2).re * T(w.scale);
        return z.set(0, {first + middle, first - middle});
    }
    const T half = T(w.doubled ? w.scale : w.scale / 2), imaginary = w.forward ? half : -half;
    z.set(0, {first, E{}});
    for (int64_t j = 1; j <= w.n / 2; ++j) {
        const Complex<E> v = z.get(j);
        z.set(j, {v.re * half, v.im * imaginary});
        z.set(w.n - j, {v.re * half, -v.im * imaginary});
    }
}

/// The rows of a block: where the parts of each begin.
template <class T>
struct Block {
    RowLanes<T> in[2], out[2];
};

/// Rows as lanes. `z`: room for w.room() numbers.
template <class T>
void transform_block(const Wanted& w, const FourierTables<T>& tables, const Block<T>& block, const T* window, T* z) {
    constexpr int L = SIMD_WIDTH<T>;
    using V = vector_t<T, L>;
    const LaneNumbers<T> numbers{z};
    const int32_t* const places = tables.places.data();
    // A transform back is one forth with real and imaginary parts exchanged.
    const bool exchanged = w.inputs == w.outputs && !w.forward;
    const int64_t step = w.inputs == 1 && w.is_halved() ? L : 2 * L;
    for (int64_t part = 0; part < w.inputs; ++part) {
        T* const to = z + (part ^ int64_t(exchanged)) * L;
        if (w.inputs == 1 && window)
            block.in[part].read(w.size, [&](int64_t j, V v) NORCH_INLINE_LAMBDA { store_vector(to + j * step, v * window[j]); });
        else block.in[part].read(w.size, [&](int64_t j, V v) NORCH_INLINE_LAMBDA { store_vector(to + j * step, v); });
    }
    if (step == L) {
        std::fill(z + w.size * L, z + w.n * L, T(0));
    } else {
        if (w.inputs == 1)
            for (int64_t j = 0; j < w.size; ++j) store_vector(z + j * 2 * L + L, V{});
        if (w.size < w.room()) std::fill(z + w.size * 2 * L, z + w.room() * 2 * L, T(0));
    }
    if (w.outputs < w.inputs) {
        start_real<T>(w, numbers);
        if (w.is_halved()) start_halved(w, tables, numbers, 1);
    }
    transform_lanes(tables, z);
    if (w.outputs < w.inputs) {
        const auto get = [&](int64_t k) NORCH_INLINE_LAMBDA {
            return load_vector<L>(z + (w.is_halved() ? places[k / 2] * int64_t(2 * L) + k % 2 * L : places[k] * int64_t(2 * L)));
        };
        if (window) block.out[0].write(w.count, [&](int64_t k) NORCH_INLINE_LAMBDA { return get(k) * window[k]; });
        else block.out[0].write(w.count, get);
        return;
    }
    const bool is_spectrum = w.inputs == 1;
    if (w.is_halved()) {
        finish_ends<T>(w, numbers);
        finish_halved(w, tables, numbers, 1, [=](int64_t k) NORCH_INLINE_LAMBDA { return int64_t(places[k]); });
    }
    const T scale = w.is_halved() ? T(1) : T(w.scale);
    // Of a halved one the results beyond the middle are the conjugates of those before.
    const int64_t m = w.points(), whole = w.is_halved() ? std::min(w.count, m + 1) : w.count;
    for (int64_t part = 0; part < w.outputs; ++part) {
        const T* const from = z + (part ^ int64_t(exchanged)) * L;
        const T factor = is_spectrum && part && !w.forward ? -scale : scale, later = w.doubled && !w.is_halved() ? factor * 2 : factor;
        RowLanes<T> out = block.out[part];
        out.write(whole, [&](int64_t k) NORCH_INLINE_LAMBDA {
            return load_vector<L>(from + (k < m ? places[k] : k) * 2 * L) * (k ? later : factor);
        });
        if (whole == w.count) continue;
        for (T*& at : out.at) at += whole * out.along;
        const T other = part ? -factor : factor;
        out.write(w.count - whole, [&](int64_t k) NORCH_INLINE_LAMBDA {
            return load_vector<L>(from + places[w.n - whole - k] * int64_t(2 * L)) * other;
        });
    }
}

// --- One row -----------------------------------------------------------------------------------------------------------

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

    int64_t room() const { return std::max(rows, columns) * 2 * SIMD_WIDTH<T>; }

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
                    const V cos = load_vector<L>(&steps[size_t(k * 2 * L)]), sin = load_vector<L>(&steps[size_t(k * 2 * L + L)]);
                    const V c = cos * start[2 * k] - sin * start[2 * k + 1], s = sin * start[2 * k] + cos * start[2 * k + 1];
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
        for (int64_t j = 0; j < n; ++j) move(j, along, window ? window[2 * j] : T(1), window ? window[2 * j + 1] : T(1));
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

template <class T>
void transform_row(const Wanted& w, const FourierTables<T>& tables, const Cut<T>& cut, Row<T> in, Row<T> out, const T* window) {
    const int64_t m = w.points(), room = w.room();
    const Scratch<T> scratch(2 * (2 * room + m));
    const auto planes = [&](int64_t at, int64_t n) { return Planes<T>{scratch.data() + at, scratch.data() + at + n}; };
    const Planes<T> x = planes(0, room), between = planes(2 * room, m), y = planes(2 * (room + m), room);
    const bool exchanged = w.inputs == w.outputs && !w.forward;
    const auto weight = [=](int64_t j) NORCH_INLINE_LAMBDA { return window ? window[j] : T(1); };
    if (w.inputs == 1 && w.is_halved()) {
        const int64_t odd = w.size / 2, even = w.size - odd;
        each_two(in.along, window, odd, [&](int64_t j, int64_t along, T even_weight, T odd_weight) NORCH_INLINE_LAMBDA {
            x.re[j] = in.part[0][2 * j * along] * even_weight;
            x.im[j] = in.part[0][(2 * j + 1) * along] * odd_weight;
        });
        if (even > odd) x.re[odd] = in.part[0][2 * odd * in.along] * weight(2 * odd);
        std::fill(x.re + even, x.re + m, T(0));
        std::fill(x.im + odd, x.im + m, T(0));
    } else {
        for (int64_t part = 0; part < 2; ++part) {
            T* const to = part == int64_t(exchanged) ? x.re : x.im;
            const int64_t n = part < w.inputs ? w.size : 0;
            if (w.inputs == 1) copy_row(to, 1, in.part[0], in.along, n, weight);
            else copy_row(to, 1, in.part[part], in.along, n, [](int64_t) NORCH_INLINE_LAMBDA { return T(1); });
            std::fill(to + n, to + room, T(0));
        }
    }
    if (w.outputs < w.inputs) {
        start_real<T>(w, x);
        if (w.is_halved()) start_halved(w, tables, x, start_halved(w, tables, PlaneVectors<T>{x}, 1));
    }
    cut.run(x, between, y);
    if (w.outputs < w.inputs) {
        if (w.is_halved()) {
            const int64_t odd = w.count / 2;
            each_two(out.along, window, odd, [&](int64_t j, int64_t along, T even_weight, T odd_weight) NORCH_INLINE_LAMBDA {
                out.part[0][2 * j * along] = y.re[j] * even_weight;
                out.part[0][(2 * j + 1) * along] = y.im[j] * odd_weight;
            });
            if (w.count > 2 * odd) out.part[0][2 * odd * out.along] = y.re[odd] * weight(2 * odd);
        } else {
            copy_row(out.part[0], out.along, y.re, 1, w.count, weight);
        }
        return;
    }
    if (w.is_halved()) {
        const auto same = [](int64_t k) NORCH_INLINE_LAMBDA { return k; };
        finish_ends<T>(w, y);
        finish_halved(w, tables, y, finish_halved(w, tables, PlaneVectors<T>{y}, 1, same), same);
    }
    const T scale = w.is_halved() ? T(1) : T(w.scale);
    const int64_t whole = w.is_halved() ? std::min(w.count, m + 1) : w.count;
    for (int64_t part = 0; part < w.outputs; ++part) {
        const T* const from = part == int64_t(exchanged) ? y.re : y.im;
        const T factor = w.inputs == 1 && part && !w.forward ? -scale : scale, later = w.doubled && !w.is_halved() ? factor * 2 : factor;
        copy_row(out.part[part], out.along, from, 1, whole, [=](int64_t k) NORCH_INLINE_LAMBDA { return k ? later : factor; });
        const T other = part ? -factor : factor;
        if (whole < w.count)
            copy_row(out.part[part] + whole * out.along, out.along, from + w.n - whole, -1, w.count - whole, [=](int64_t) NORCH_INLINE_LAMBDA { return other; });
    }
}

// --- The kernel --------------------------------------------------------------------------------------------------------

template <class T>
class FourierKernel final : public Kernel {
    static constexpr int L = SIMD_WIDTH<T>;

public:
    FourierKernel(const Request& request, const Wanted& wanted, std::shared_ptr<const FourierTables<T>> tables)
        : w_(wanted), tables_(std::move(tables)) {
        const auto& operands = request.operands;
        const int nd = operands[0].ndim();
        rows_ = collapse({operands[0], operands[1]}, [&] {
            std::vector<int> dims;
            for (int d = 0; d + 2 < nd; ++d) dims.push_back(d);
            return dims;
        }());
        for (size_t i = 0; i < 2; ++i) {
            part_[i] = operands[i].strides[size_t(nd - 2)];
            along_[i] = operands[i].strides[size_t(nd - 1)];
        }
        if (operands.size() > 2) window_step_ = operands[2].strides[0], window_size_ = operands[2].shape[0];
        const int64_t bytes = w_.room() * 2 * L * int64_t(sizeof(T));
        if (bytes > (rows_.numel >= 4 * L ? MANY_IN_LANES : FEW_IN_LANES) || (rows_.numel * 2 <= L && w_.points() >= 128)) {
            cut_ = std::make_unique<Cut<T>>(w_.points());
            if (!cut_->rows) cut_ = nullptr;
        }
        row_ns_ = Cut<T>::ns(w_.points()) / L * (cut_ ? 1.5 : 1);
        work = row_ns_ * double(rows_.numel);
    }

    void run(char* const* data, const Scalar*) const override {
        const Scratch<T> weights(std::max<int64_t>(window_size_, 1));
        for (int64_t j = 0; j < window_size_; ++j) weights[j] = reinterpret_cast<const T*>(data[2])[j * window_step_];
        const T* const window = window_size_ ? weights.data() : nullptr;
        if (cut_) run_rows(data, window);
        else run_lanes(data, window);
    }

private:
    /// Where the first parts of row `i` begin, of the result and of the input.
    std::array<T*, 2> row(char* const* data, int64_t i) const {
        char* at[2] = {data[0], data[1]};
        rows_.move(at, rows_.ndim(), i);
        return {reinterpret_cast<T*>(at[0]), reinterpret_cast<T*>(at[1])};
    }

    void run_lanes(char* const* data, const T* window) const {
        // Rows that lie side by side, element by element, are not mixed with those of another such group. Where lanes are
        // left over at the end of one, they go back over what is done.
        const bool side_by_side = rows_.ndim() && rows_.strides[0].back() == sizeof(T) && rows_.strides[1].back() == sizeof(T);
        const int64_t group = side_by_side ? rows_.shape.back() : rows_.numel, blocks = (group + L - 1) / L;
        parallel_for(rows_.numel / group * blocks, row_ns_ * L, [&](int64_t begin, int64_t end) {
            const Scratch<T> z(w_.room() * 2 * L);
            for (int64_t i = begin; i < end; ++i) {
                const int64_t back = side_by_side && group >= L ? std::max<int64_t>(i % blocks * L - (group - L), 0) : 0;
                const int64_t first = i / blocks * group + i % blocks * L - back;
                const int count = int(std::min<int64_t>(L, (i / blocks + 1) * group - first));
                Block<T> block;
                for (int part = 0; part < 2; ++part) {
                    block.out[part].along = along_[0], block.in[part].along = along_[1];
                    block.out[part].count = block.in[part].count = count;
                    block.out[part].first = int(back);
                }
                for (int l = 0; l < L; ++l) {
                    const auto at = row(data, first + (l < count ? l : 0));
                    for (int part = 0; part < 2; ++part) {
                        block.out[part].at[l] = at[0] + part * part_[0];
                        block.in[part].at[l] = at[1] + part * part_[1];
                    }
                }
                transform_block(w_, *tables_, block, window, z.data());
            }
        });
    }

    void run_rows(char* const* data, const T* window) const {
        const auto one = [&](int64_t i) {
            const auto at = row(data, i);
            transform_row(w_, *tables_, *cut_, {{at[1], at[1] + part_[1]}, along_[1]}, {{at[0], at[0] + part_[0]}, along_[0]}, window);
        };
        if (rows_.numel < num_threads()) {  // the threads share each row
            for (int64_t i = 0; i < rows_.numel; ++i) one(i);
            return;
        }
        parallel_for(rows_.numel, row_ns_, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) one(i);
        });
    }

    Wanted w_;
    std::shared_ptr<const FourierTables<T>> tables_;
    std::unique_ptr<Cut<T>> cut_;
    Loops rows_;
    int64_t part_[2], along_[2];  // of the result and of the input
    int64_t window_step_ = 0, window_size_ = 0;
    double row_ns_;
};

KernelPtr dft(const Request& request) {
    const Operand &out = request.operands[0], &in = request.operands[1];
    const size_t nd = size_t(in.ndim());
    Wanted w;
    w.n = request.attrs.integer("n");
    w.size = in.shape[nd - 1], w.count = out.shape[nd - 1];
    w.inputs = in.shape[nd - 2], w.outputs = out.shape[nd - 2];
    w.forward = request.attrs.integer("sign") < 0, w.doubled = request.attrs.flag("doubled");
    w.scale = request.attrs.number("scale");
    const auto made = [&]<class T>(T) -> KernelPtr {
        auto tables = FourierTables<T>::of(w.points());
        return tables ? std::make_unique<FourierKernel<T>>(request, w, std::move(tables)) : nullptr;
    };
    const bool of_one_dtype = std::all_of(request.operands.begin(), request.operands.end(), [&](const Operand& o) { return o.dtype == out.dtype; });
    if (!of_one_dtype || w.inputs + w.outputs < 3 || out.numel() == 0) return nullptr;
    if (out.dtype == DType::f32) return made(float());
    return out.dtype == DType::f64 ? made(double()) : nullptr;
}

}  // namespace

void add_fourier(Registry& registry) { registry["dft"] = dft; }

}  // namespace norch::nn
