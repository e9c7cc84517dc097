// Division of integers: of many by one, and of each by another in vectors of doubles.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "elementwise/loop.h"
#include "elementwise/small_integers.h"

namespace norch::elementwise {

/// One positive number: a / divisor is a product with its inverse (Granlund and Montgomery, 1994).
class Divisor {
public:
    explicit Divisor(int64_t divisor) : divisor_(divisor), shift_(63 + std::bit_width(uint64_t(divisor - 1))) {
        inverse_ = uint64_t((Wide(1) << shift_) / Wide(divisor)) + 1;
    }
    /// The floored quotient: of a negative number that of its complement, complemented.
    int64_t quotient(int64_t a) const {
        const int64_t sign = a >> 63;
        return int64_t(uint64_t(Wide(uint64_t(a ^ sign)) * inverse_ >> shift_)) ^ sign;
    }
    int64_t remainder(int64_t a) const {  // whose multiple may lie below the least number
        return int64_t(uint64_t(a) - uint64_t(quotient(a)) * uint64_t(divisor_));
    }

private:
    using Wide = unsigned __int128;
    int64_t divisor_;
    int shift_;
    uint64_t inverse_;
};

/// Quotients of doubles have the integral part of those of the integers that they were made of, if these are below 2^51: what
/// is no integer is further than 2^-51 of itself from one.
template <class T>
struct AsDoubles {
    static constexpr bool HAS_VECTORS = sizeof(T) == 4;
    static bool fits(const T*, const T* b, int64_t n_b, int64_t) {  // the least number over -1 is no int32
        bool any = false;
        for (int64_t i = 0; i < n_b; ++i) any |= b[i] == T(-1);
        return !any;
    }
    NORCH_INLINE static double of(T x) { return double(x); }
    NORCH_INLINE static T back(double x) { return T(x); }
};
template <>
struct AsDoubles<int64_t> : SmallIntegers {
    static bool fits(const int64_t* a, const int64_t* b, int64_t n_b, int64_t n_a) {
        return fit(a, n_a) && fit(b, n_b);
    }
};

template <class T, class F>
void divide_as_doubles(char* const* p, unsigned broadcast, int64_t n) {
    using As = AsDoubles<T>;
    apply_to_two<T, T>(p, broadcast, n, [](T a, T b) NORCH_INLINE_LAMBDA {
        const double x = As::of(a), y = As::of(b);
        if constexpr (sizeof(T) == 4) return F::of_quotient(a, b, T(x / y));
        else return As::back(F::of_quotient(x, y, std::trunc(x / y)));
    });
}

}  // namespace norch::elementwise
