// Loops over several strided operands: dims of size 1 dropped, dims ordered by the output's strides, then merged where
// all operands allow it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/kernel.h"

namespace norch {

struct Loops {
    /// Outermost first; empty for one element. strides[operand][dim], in bytes.
    std::vector<int64_t> shape;
    std::vector<std::vector<int64_t>> strides;
    int64_t numel = 1;

    int ndim() const { return int(shape.size()); }
};

/// The loops over `operands`, which all have one shape; scalar operands get strides 0. The first is the output.
Loops collapse(const std::vector<Operand>& operands);

/// Like `collapse`, for dims chosen from the operands' own: dims[i] indexes shape and strides.
Loops collapse(const std::vector<Operand>& operands, const std::vector<int>& dims);

/// Walks the outer dims of some loops: keeps one pointer for each operand.
class Walker {
public:
    /// Starts at flat index `start` of the first `dims` dims.
    Walker(const Loops& loops, int dims, char* const* data, int64_t start = 0);
    void next();
    char* const* pointers() const { return pointers_.data(); }
    char* operator[](int operand) const { return pointers_[operand]; }

private:
    const Loops& loops_;
    int dims_;
    std::vector<int64_t> index_;
    std::vector<char*> pointers_;
};

}  // namespace norch
