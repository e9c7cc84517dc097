// Numbers that are transformed, of one row or as lanes; the step between real numbers and half as many complex ones.
#pragma once

#include <algorithm>
#include <cstdint>

#include "spectral/fourier.h"

namespace norch::spectral {

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
    NORCH_INLINE Complex<E> get(int64_t i) const {
        return {load_vector<L>(z + i * 2 * L), load_vector<L>(z + i * 2 * L + L)};
    }
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
    /// Whether a transform back is made one forth, by exchanging real and imaginary parts before and behind it.
    bool is_exchanged() const { return inputs == outputs && !forward; }
    /// Of a halved one the results beyond the middle are the conjugates of those before, from n - computed() back.
    int64_t computed() const { return is_halved() ? std::min(count, points() + 1) : count; }

    /// What complex results are multiplied with once they are there: the first, others, and conjugates.
    template <class T>
    struct Factors {
        T first, others, conjugates;
    };
    template <class T>
    Factors<T> factors(int64_t part) const {
        const T factor = T((is_halved() ? 1 : scale) * (inputs == 1 && part == 1 && !forward ? -1 : 1));
        return {factor, doubled && !is_halved() ? factor * 2 : factor, part ? -factor : factor};
    }
};

/// For numbers k and m - k, of which one's conjugate goes with the other: their sum and, turned, their difference.
template <class E>
struct Pair {
    E sum_re, sum_im, x, y;
};

/// set(at(k), at(m - k), pair) for each k from `k` on that, with those of its step, lies before m - k. Returns the
/// first left out.
template <class T, class Numbers, class At, class Set>
NORCH_INLINE int64_t each_pair(const FourierTables<T>& tables, const Numbers& z, int64_t k, Complex<T> factor, const At& at,
                               const Set& set) {
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

/// From the transform of n / 2 numbers that stand for two real ones each to that of these: as `each_pair`, number k being
/// where at(k) says.
template <class T, class Numbers, class At>
NORCH_INLINE int64_t finish_halved(const Wanted& w, const FourierTables<T>& tables, const Numbers& z, int64_t k,
                                   const At& at) {
    using E = typename Numbers::E;
    const T half = T(w.doubled ? w.scale : w.scale / 2);
    const auto set = [&](int64_t i, int64_t j, const Pair<E>& p) NORCH_INLINE_LAMBDA {
        z.set(i, {p.sum_re + p.x, p.sum_im - p.y});
        z.set_back(j, {p.sum_re - p.x, -p.sum_im - p.y});
    };
    return each_pair(tables, z, k, {half, half}, at, set);
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
    const auto set = [&](int64_t i, int64_t j, const Pair<E>& p) NORCH_INLINE_LAMBDA {
        z.set(i, {p.sum_re - p.x, p.sum_im + p.y});
        z.set_back(j, {p.sum_re + p.x, p.y - p.sum_im});
    };
    return each_pair(tables, z, k, {half, w.forward ? half : -half}, same, set);
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

}  // namespace norch::spectral
