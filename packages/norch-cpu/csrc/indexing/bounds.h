// Looks at all indices of an operand before anything is written.
#pragma once

#include "common/layout.h"

namespace norch::indexing {

class Bounds {
public:
    /// `index` is an int64 operand; it may hold `low` (0, or -size where negative ones count from the end) to size - 1.
    Bounds(const Operand& index, int64_t low, int64_t size);
    /// Throws IndexOutOfBounds with the first wrong index in row-major order.
    void check(const char* index) const;

    double work() const;

private:
    bool any_wrong(const char* index, int64_t begin, int64_t end) const;
    [[noreturn]] void raise(const char* index) const;

    Operand operand_;
    Loops loops_;  // broadcast dims left out
    int64_t low_, size_, columns_ = 1, column_ = 0, rows_ = 1;
};

/// An index that may count from the end, as one from the start.
inline int64_t wrapped(int64_t index, int64_t size) { return index + ((index >> 63) & size); }

}  // namespace norch::indexing
