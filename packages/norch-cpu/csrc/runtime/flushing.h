// Subnormal numbers as 0, which a thread may choose: Intel's processors take a hundred times as long for a vector with one.
#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace norch {

#if defined(__x86_64__)
constexpr bool CAN_FLUSH = true;
constexpr uint64_t FLUSH = 0x8040;  // MXCSR: results (FTZ) and operands (DAZ)
inline uint64_t floating_mode() { return _mm_getcsr(); }
inline void set_floating_mode(uint64_t mode) { _mm_setcsr(unsigned(mode)); }
#elif defined(__aarch64__) && defined(__GNUC__)
constexpr bool CAN_FLUSH = true;
constexpr uint64_t FLUSH = uint64_t(1) << 24;  // FPCR: FZ, of both
inline uint64_t floating_mode() {
    uint64_t mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
inline void set_floating_mode(uint64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#else
constexpr bool CAN_FLUSH = false;
constexpr uint64_t FLUSH = 0;
inline uint64_t floating_mode() { return 0; }
inline void set_floating_mode(uint64_t) {}
#endif

/// While it lives this thread computes in a mode; what is computed must be behind calls that are not inlined.
class FloatingMode {
public:
    explicit FloatingMode(uint64_t mode) : before_(floating_mode()) {
        if (mode != before_) set_floating_mode(mode);
    }
    ~FloatingMode() { set_floating_mode(before_); }
    FloatingMode(const FloatingMode&) = delete;
    FloatingMode& operator=(const FloatingMode&) = delete;

private:
    uint64_t before_;
};

}  // namespace norch
