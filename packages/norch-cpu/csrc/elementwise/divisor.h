// Division of many integers by one.
#pragma once

#include <bit>
#include <cstdint>

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

}  // namespace norch::elementwise
