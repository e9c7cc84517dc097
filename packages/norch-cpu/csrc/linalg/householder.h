// Householder's reflections of a matrix, as LAPACK's geqrf makes them, some columns at a time: R. Schreiber and C. Van
// Loan, "A storage-efficient WY representation for products of Householder transformations" (1989).
#pragma once

#include <cmath>
#include <cstring>
#include <limits>

#include "linalg/blocks.h"
#include "runtime/allocator.h"
#include "runtime/simd.h"

namespace norch::linalg {

template <class T>
class Reflections {
public:
    static constexpr int64_t MOST = 32;  // columns of a panel

    /// Makes R of a (m, n) in place; below it is what makes Q. `a` and this live as long as both are used.
    Reflections(T* a, int64_t row, int64_t m, int64_t n, int64_t columns_of_q)
        : a_(a), row_(row), m_(m), k_(std::min(m, n)), panel_(m * MOST), square_(MOST * MOST),
          factors_((k_ + MOST - 1) / MOST * MOST * MOST), beside_row_(padded(std::max(n, columns_of_q), DTYPE)),
          beside_(2 * MOST * beside_row_) {
        for (int64_t first = 0; first < k_; first += MOST) {
            reflect_panel(first);
            const int64_t rest = first + whole(width(first));
            show_panel(first);
            make_factor(first);
            if (rest < n) apply(first, true, a_ + first * row_ + rest, row_, n - rest);
        }
    }

    /// Q @ c in place of c (m, columns), which may be an identity.
    void apply_to(T* c, int64_t c_row, int64_t columns, bool is_identity) {
        for (int64_t first = (k_ - 1) / MOST * MOST; first >= 0; first -= MOST) {
            show_panel(first);
            const int64_t left = is_identity ? first : 0;  // where columns are not those of an identity yet
            apply(first, false, c + first * c_row + left, c_row, columns - left);
        }
    }

private:
    static constexpr int L = SIMD_WIDTH<T>;
    static constexpr int64_t CHUNK = 32;  // rows that are summed before they are added, for less to be rounded
    static constexpr DType DTYPE = sizeof(T) == 8 ? DType::f64 : DType::f32;
    using V = vector_t<T, L>;

    int64_t width(int64_t first) const { return std::min(MOST, k_ - first); }
    static int64_t whole(int64_t columns) { return (columns + L - 1) / L * L; }

    /// The reflection that leaves of a's column j only what is on the diagonal, beta; column j is divided by `divisor`, which
    /// may be so small that it has no inverse. What is smaller still counts as 0.
    struct Reflection {
        T tau, divisor, beta;
    };
    Reflection reflection(int64_t j) const {
        const T alpha = a_[j * row_ + j];
        double largest = 1, squares = 0;
        if constexpr (sizeof(T) == 8) {  // whose squares may be too large, or nothing
            largest = 0;
            for (int64_t i = j; i < m_; ++i) largest = std::max(largest, std::abs(a_[i * row_ + j]));
            if (largest == 0) largest = 1;
        }
        for (int64_t i = j + 1, next; i < m_; i = next) {
            double part = 0;
            for (next = std::min(i + CHUNK, m_); i < next; ++i) {
                const double x = a_[i * row_ + j] / largest;
                part += x * x;
            }
            squares += part;
        }
        const double first = alpha / largest;
        const T beta = T(-std::copysign(largest * std::sqrt(squares + first * first), double(alpha)));
        if (squares == 0 || std::abs(beta) < std::numeric_limits<T>::min()) return {0, 1, alpha};
        return {(beta - alpha) / beta, alpha - beta, beta};
    }

    /// The reflections of some columns, each done to those that follow among them.
    void reflect_panel(int64_t first) {
        T* const panel = a_ + first;
        const int64_t count = width(first), vectors = whole(count) / L;
        for (int64_t c = 0; c < count; ++c) {
            const int64_t j = first + c, v0 = c / L;
            const Reflection r = reflection(j);
            tau_[c] = r.tau;
            V sums[MOST / L] = {};
            const auto before = first_lanes<T, L>(int(c % L)), done = first_lanes<T, L>(int(c % L + 1));
            for (int64_t v = v0; v < vectors; ++v) sums[v] = load_vector<L>(panel + j * row_ + v * L);
            for (int64_t i = j + 1, next; i < m_; i = next) {
                V parts[MOST / L] = {};
                for (next = std::min(i + CHUNK, m_); i < next; ++i) {
                    const T* const at = panel + i * row_;
                    const T x = at[c] / r.divisor;
                    for (int64_t v = v0; v < vectors; ++v) parts[v] += x * load_vector<L>(at + v * L);
                }
                for (int64_t v = v0; v < vectors; ++v) sums[v] += parts[v];
            }
            for (int64_t v = v0; v < vectors; ++v) sums[v] *= r.tau;
            sums[v0] = done ? V{} : sums[v0];
            for (int64_t v = v0; v < vectors; ++v) {
                T* const at = panel + j * row_ + v * L;
                store_vector(at, load_vector<L>(at) - sums[v]);
            }
            for (int64_t i = j + 1; i < m_; ++i) {
                T* const at = panel + i * row_;
                const T x = at[c] / r.divisor;
                for (int64_t v = v0 + 1; v < vectors; ++v)
                    store_vector(at + v * L, load_vector<L>(at + v * L) - x * sums[v]);
                const V own = load_vector<L>(at + v0 * L), changed = own - x * sums[v0];
                store_vector(at + v0 * L, done & ~before ? V{} + x : changed);
            }
            panel[j * row_ + c] = r.beta;
        }
    }

    /// The vectors of a panel's reflections, from row `first` on, with the ones and zeros that are not stored.
    void show_panel(int64_t first) {
        const int64_t count = width(first), columns = whole(count);
        for (int64_t i = first; i < m_; ++i) {
            T* const to = panel_.data() + (i - first) * MOST;
            std::memcpy(to, a_ + i * row_ + first, size_t(columns) * sizeof(T));
            if (i - first < count) to[i - first] = 1;
            for (int64_t c = std::min(i - first + 1, count); c < columns; ++c) to[c] = 0;
        }
    }

    /// The upper triangle F with which the panel's reflections are 1 - V @ F @ V.T.
    void make_factor(int64_t first) {
        const int64_t count = width(first);
        T *const f = factors_.data() + first * MOST, *const inner = square_.data();
        std::fill(inner, inner + MOST * MOST, T(0));
        std::fill(f, f + MOST * MOST, T(0));
        subtract_product(inner, MOST, turned(panel_.data(), MOST), panel_.data(), MOST, count, count, m_ - first);
        for (int64_t j = 0; j < count; ++j) {
            f[j * MOST + j] = tau_[j];
            for (int64_t i = 0; i < j; ++i) {
                T sum = 0;
                for (int64_t l = i; l < j; ++l) sum += f[i * MOST + l] * inner[l * MOST + j];
                f[i * MOST + j] = tau_[j] * sum;
            }
        }
    }

    /// c -= V @ F @ V.T @ c, or with F.T in place of F.
    void apply(int64_t first, bool transposed, T* c, int64_t c_row, int64_t columns) {
        const int64_t count = width(first), rows = m_ - first;
        const T* const f = factors_.data() + first * MOST;
        T *const inner = beside_.data(), *const outer = inner + MOST * beside_row_;
        std::fill(inner, inner + 2 * MOST * beside_row_, T(0));
        subtract_product(inner, beside_row_, turned(panel_.data(), MOST), c, c_row, count, columns, rows);
        const Strided<T> factor = transposed ? turned(f, MOST) : Strided<T>{f, MOST, 1};
        subtract_product(outer, beside_row_, factor, inner, beside_row_, count, columns, count);
        subtract_product(c, c_row, Strided<T>{panel_.data(), MOST, 1}, outer, beside_row_, rows, columns, count);
    }
    static Strided<T> turned(const T* data, int64_t row) { return {data, 1, row}; }

    T* a_;
    int64_t row_, m_, k_;
    T tau_[MOST];
    Scratch<T> panel_, square_, factors_;
    int64_t beside_row_;
    Scratch<T> beside_;
};

}  // namespace norch::linalg
