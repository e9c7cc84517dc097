// Fourier transforms of a vector's lanes: as many transforms as it has, side by side, in place.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/simd.h"

namespace norch::spectral {

/// Primes that a size may have as factors: of larger ones a transform is better made by convolution.
constexpr int64_t LARGEST_RADIX = 127;

/// exp(-2 pi i k / n), to the last bit or so.
struct Root {
    Root(int64_t k, int64_t n);
    double re, im;
};

/// What transforms of n complex numbers share, for all whose numbers are of type T.
template <class T>
struct FourierTables {
    struct Pass {
        int64_t radix, size;    // of `size` numbers at a time
        const T *turns, *roots;  // of each q < size / radix: `radix` - 1 complex factors; the `radix` roots of 1
    };
    int64_t n;
    std::vector<Pass> passes;
    std::vector<int32_t> places;  // of result k, once the passes are done
    std::vector<T> half_turns[2];  // exp(-pi i k / n) for k <= n / 2: real parts, imaginary parts

    /// The tables, which are kept as long as somebody has them. Null for a size with too large a prime factor.
    static std::shared_ptr<const FourierTables> of(int64_t n);

private:
    std::vector<std::vector<T>> stored_;
};

/// The passes (Cooley and Tukey, decimated in frequency) over n numbers of `SIMD_WIDTH` lanes, of which the real parts
/// lie before the imaginary ones. Result k is where `places` says.
template <class T>
void transform_lanes(const FourierTables<T>& tables, T* z);

extern template struct FourierTables<float>;
extern template struct FourierTables<double>;

}  // namespace norch::spectral
