#pragma once

#include <cstdint>

namespace norch {

/// Float32 operations per second that `threads` threads reach together, a multiply-add counting as two.
double fma_peak(int threads);

/// Bfloat16 operations per second that `threads` threads reach together in tile registers, 0 where there are none.
double tile_peak(int threads);

/// Bytes read and written per second when `threads` threads copy `nbytes` between warm pages.
double copy_bandwidth(int64_t nbytes, int threads);

}  // namespace norch
