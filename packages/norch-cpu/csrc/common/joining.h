// cat and stack as rows of bytes, as every backend copies them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/kernel.h"

namespace norch {

/// Rows without gaps, in bytes: those of part i are `bytes` long and `step` apart, and go to byte `start` of the result's rows,
/// which are `out_step` apart. A part may have no elements.
struct JoinedRows {
    struct Part {
        int64_t step, start, bytes;
    };
    std::vector<Part> parts;
    int64_t rows = 1, out_step = 0;
};

/// Nothing where parts lie in no such rows, are of several dtypes, or the result has no elements.
std::optional<JoinedRows> joined_rows(const Request& request);

}  // namespace norch
