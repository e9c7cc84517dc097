// The passes of Fourier transforms, of any radix, and their tables.
#include "spectral/fourier.h"

#include <cmath>
#include <map>
#include <mutex>

namespace norch::spectral {

Root::Root(int64_t k, int64_t n) {
    // Angles beyond an eighth of a turn are reflected, exactly.
    const bool below = 2 * k > n;
    if (below) k = n - k;
    const bool left = 4 * k > n;
    if (left) k = n - 2 * k, n *= 2;
    const bool steep = 8 * k > n;
    if (steep) k = n - 4 * k, n *= 4;
    const double angle = 6.283185307179586476925 * double(k) / double(n);
    re = steep ? std::sin(angle) : std::cos(angle);
    im = steep ? std::cos(angle) : std::sin(angle);
    if (left) re = -re;
    if (!below) im = -im;
}

namespace {

constexpr int64_t IN_CACHE = 16384;  // bytes of numbers over which passes go one after the other

/// The radices of a size, the largest first, so that the last passes are quick; none where a prime factor is too large.
std::vector<int64_t> radices_of(int64_t n) {
    std::vector<int64_t> found;
    int twos = 0;
    for (; n % 2 == 0; n /= 2) ++twos;
    for (int64_t p = 3; n > 1; p += 2) {
        if (p > LARGEST_RADIX) return {};
        for (; n % p == 0; n /= p) found.insert(found.begin(), p);
    }
    for (; twos > 1; twos -= 2) found.push_back(4);
    if (twos) found.push_back(2);
    if (found.empty()) found.push_back(1);
    return found;
}

template <class T>
struct Lanes {
    static constexpr int L = SIMD_WIDTH<T>;
    using V = vector_t<T, L>;

    struct Complex {
        V re, im;
    };
    static NORCH_INLINE Complex load(const T* z) { return {load_vector<L>(z), load_vector<L>(z + L)}; }
    static NORCH_INLINE void store(T* z, Complex v) {
        store_vector(z, v.re);
        store_vector(z + L, v.im);
    }
    static NORCH_INLINE Complex turned(Complex v, const T* turn) {
        return {v.re * turn[0] - v.im * turn[1], v.im * turn[0] + v.re * turn[1]};
    }
    static NORCH_INLINE Complex sum(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
    static NORCH_INLINE Complex difference(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }

    /// The sums of a radix R, odd: each number and its conjugate's counterpart share their products.
    template <int R>
    static NORCH_INLINE void odd(const Complex* x, Complex* out, const T* roots, int64_t radix) {
        const int64_t r = R ? R : radix, h = r / 2;
        constexpr int MOST = R ? R / 2 : int(LARGEST_RADIX / 2);
        Complex sums[MOST], differences[MOST];
        NORCH_UNROLL
        for (int64_t j = 0; j < h; ++j) {
            sums[j] = sum(x[j + 1], x[r - 1 - j]);
            differences[j] = difference(x[j + 1], x[r - 1 - j]);
        }
        out[0] = x[0];
        NORCH_UNROLL
        for (int64_t j = 0; j < h; ++j) out[0] = sum(out[0], sums[j]);
        NORCH_UNROLL
        for (int64_t k = 1; k <= h; ++k) {
            Complex even = x[0], uneven = {V{}, V{}};
            int64_t at = 0;
            NORCH_UNROLL
            for (int64_t j = 0; j < h; ++j) {
                at += k;
                if (at >= r) at -= r;
                const T c = roots[2 * at], s = roots[2 * at + 1];  // s is negative for angles up to half a turn
                even = {even.re + sums[j].re * c, even.im + sums[j].im * c};
                uneven = {uneven.re - differences[j].im * s, uneven.im + differences[j].re * s};
            }
            out[k] = sum(even, uneven);
            out[r - k] = difference(even, uneven);
        }
    }

    template <int R>
    static NORCH_INLINE void butterfly(Complex* x, const T* roots, int64_t radix) {
        if constexpr (R == 2) {
            const Complex a = x[0], b = x[1];
            x[0] = sum(a, b);
            x[1] = difference(a, b);
        } else if constexpr (R == 4) {
            const Complex a = sum(x[0], x[2]), b = difference(x[0], x[2]);
            const Complex c = sum(x[1], x[3]), d = difference(x[1], x[3]);
            x[0] = sum(a, c);
            x[2] = difference(a, c);
            x[1] = {b.re + d.im, b.im - d.re};
            x[3] = {b.re - d.im, b.im + d.re};
        } else {
            Complex out[R ? R : LARGEST_RADIX];
            odd<R>(x, out, roots, radix);
            NORCH_UNROLL
            for (int64_t k = 0; k < (R ? R : radix); ++k) x[k] = out[k];
        }
    }

    /// A pass over `count` blocks. R: its radix where that has code of its own, else 0.
    template <int R>
    static void pass(const typename FourierTables<T>::Pass& p, T* z, int64_t count) {
        const int64_t r = R ? R : p.radix, rows = p.size / r;
        constexpr int MOST = R ? R : int(LARGEST_RADIX);
        for (int64_t block = 0; block < count; ++block, z += p.size * 2 * L) {
            const T* turns = p.turns;
            for (int64_t q = 0; q < rows; ++q, turns += 2 * (r - 1)) {
                T* const at = z + q * 2 * L;
                Complex x[MOST];
                NORCH_UNROLL
                for (int64_t k = 0; k < r; ++k) x[k] = load(at + k * rows * 2 * L);
                butterfly<R>(x, p.roots, r);
                store(at, x[0]);
                if (rows == 1) {
                    NORCH_UNROLL
                    for (int64_t k = 1; k < r; ++k) store(at + k * 2 * L, x[k]);
                } else {
                    NORCH_UNROLL
                    for (int64_t k = 1; k < r; ++k) store(at + k * rows * 2 * L, turned(x[k], turns + 2 * (k - 1)));
                }
            }
        }
    }

    static void run(const typename FourierTables<T>::Pass& p, T* z, int64_t count) {
        switch (p.radix) {
            case 1: return;
            case 2: return pass<2>(p, z, count);
            case 3: return pass<3>(p, z, count);
            case 4: return pass<4>(p, z, count);
            case 5: return pass<5>(p, z, count);
            case 7: return pass<7>(p, z, count);
            default: return pass<0>(p, z, count);
        }
    }

    /// Pass `i` and those that follow, over one block of its size: as far as it goes in the first-level cache.
    static void run_from(const FourierTables<T>& tables, size_t i, T* z) {
        const auto& passes = tables.passes;
        const int64_t size = passes[i].size;
        if (size * 2 * L * int64_t(sizeof(T)) <= IN_CACHE || i + 1 == passes.size()) {
            for (; i < passes.size(); ++i) run(passes[i], z, size / passes[i].size);
            return;
        }
        run(passes[i], z, 1);
        for (int64_t k = 0; k < passes[i].radix; ++k) run_from(tables, i + 1, z + k * passes[i + 1].size * 2 * L);
    }
};

}  // namespace

template <class T>
std::shared_ptr<const FourierTables<T>> FourierTables<T>::of(int64_t n) {
    static std::mutex mutex;
    static std::map<int64_t, std::weak_ptr<const FourierTables>> known;
    const auto radices = radices_of(n);
    if (radices.empty()) return nullptr;
    const std::lock_guard lock(mutex);
    if (auto found = known[n].lock()) return found;
    auto out = std::make_shared<FourierTables>();
    out->n = n;
    const auto stored = [&](std::vector<T> values) { return out->stored_.emplace_back(std::move(values)).data(); };
    const auto put = [](std::vector<T>& values, Root root) {
        values.push_back(T(root.re));
        values.push_back(T(root.im));
    };
    int64_t size = n;
    for (const int64_t radix : radices) {
        std::vector<T> turns, roots;
        for (int64_t q = 0; q < size / radix; ++q)
            for (int64_t k = 1; k < radix; ++k) put(turns, Root(q * k % size, size));
        for (int64_t k = 0; k < radix; ++k) put(roots, Root(k, radix));
        out->passes.push_back({radix, size, stored(std::move(turns)), stored(std::move(roots))});
        size /= radix;
    }
    for (int64_t k = 0; k < n; ++k) {
        int64_t place = 0, rest = k;
        for (const auto& pass : out->passes) {
            place += rest % pass.radix * (pass.size / pass.radix);
            rest /= pass.radix;
        }
        out->places.push_back(int32_t(place));
    }
    for (int64_t k = 0; k <= n / 2; ++k) {
        const Root root(k, 2 * n);
        out->half_turns[0].push_back(T(root.re));
        out->half_turns[1].push_back(T(root.im));
    }
    std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
    known[n] = out;
    return out;
}

template <class T>
void transform_lanes(const FourierTables<T>& tables, T* z) {
    Lanes<T>::run_from(tables, 0, z);
}

template struct FourierTables<float>;
template struct FourierTables<double>;
template void transform_lanes(const FourierTables<float>&, float*);
template void transform_lanes(const FourierTables<double>&, double*);

}  // namespace norch::spectral
