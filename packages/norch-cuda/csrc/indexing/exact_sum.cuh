// Sums of floats that are the same in any order: added as 62-bit integers, in a unit that the largest addend sets.
#pragma once

#include "runtime/device.cuh"

namespace norch::indexing {

/// Of each place of the output: what is known of its addends (0: there are none), and their sum so far.
struct ExactSums {
    uint32_t* seen;
    unsigned long long* high;
    unsigned long long* low;  // float64 only
    int64_t step;             // places along the dim
    int headroom;             // bits that the count of addends takes
};

/// Of one place.
template <class T>
constexpr int BYTES_PER_PLACE = sizeof(T) == 8 ? 20 : 12;

/// The headroom of `count` addends.
inline int bits_of(int64_t count) {
    int bits = 0;
    while (bits < 40 && (int64_t(1) << bits) < count) ++bits;
    return bits;
}

// `seen` is the largest exponent of an addend (biased, as float64 has it) + 1, and these.
constexpr uint32_t PLUS_INFINITY = 1u << 16, MINUS_INFINITY = 1u << 17, NOT_A_NUMBER = 1u << 18;

__device__ inline uint32_t biased_exponent(double x) {
    return uint32_t(__double_as_longlong(x) >> 52) & 0x7ff;
}

/// The exponent of the unit in which addends of a place are counted: the largest takes 61 - headroom bits of it.
__device__ inline int unit_of(uint32_t seen, int headroom) { return int(seen - 1) - 1023 - (61 - headroom); }

/// Whether the addend is the first that a place sees.
__device__ inline bool note(uint32_t* seen, double x) {
    const uint32_t exponent = biased_exponent(x);
    if (exponent != 0x7ff) return atomicMax(seen, exponent + 1) == 0;
    return atomicOr(seen, x != x ? NOT_A_NUMBER : x > 0 ? PLUS_INFINITY : MINUS_INFINITY) == 0;
}

/// Adds to the sum of a place, in the place's unit; of a float64 also in a unit of what that leaves.
template <class T>
__device__ inline void add_in_units(uint32_t seen, int headroom, unsigned long long* high, unsigned long long* low,
                                    double x) {
    if (seen >= PLUS_INFINITY || x == 0) return;
    const double scaled = scalbn(x, -unit_of(seen, headroom));
    const long long whole = __double2ll_rn(scaled);
    if (whole) atomicAdd(high, static_cast<unsigned long long>(whole));
    if constexpr (std::is_same_v<T, double>) {
        const long long rest = __double2ll_rn(scalbn(scaled - double(whole), 61 - headroom));
        if (rest) atomicAdd(low, static_cast<unsigned long long>(rest));
    }
}

template <class T>
__device__ inline void write_sum(T& result, uint32_t seen, int headroom, unsigned long long high,
                                 unsigned long long low) {
    double sum;
    if (seen >= PLUS_INFINITY) {
        const bool is_nan = (seen & NOT_A_NUMBER) || ((seen & PLUS_INFINITY) && (seen & MINUS_INFINITY));
        const double infinity = __longlong_as_double(0x7ff0000000000000);
        sum = is_nan ? infinity - infinity : seen & PLUS_INFINITY ? infinity : -infinity;
    } else {
        const double rest = scalbn(double(static_cast<long long>(low)), headroom - 61);
        sum = scalbn(double(static_cast<long long>(high)) + rest, unit_of(seen, headroom));
    }
    result = downcast<T>(computed<T>(double(upcast(result)) + sum));
}

}  // namespace norch::indexing
