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

    /// Moves a pointer for each operand to place `index` of the first `dims` dims.
    template <class P>
    void move(P* pointers, int dims, int64_t index) const {
        for (int d = dims - 1; d >= 0; --d) {
            const int64_t at = index % shape[d];
            index /= shape[d];
            for (size_t i = 0; i < strides.size(); ++i) pointers[i] += at * strides[i][d];
        }
    }
};

/// The loops over `operands`, which all have one shape; scalar operands get strides 0. The first is the output.
Loops collapse(const std::vector<Operand>& operands);

/// Like `collapse`, for dims chosen from the operands' own: dims[i] indexes shape and strides.
Loops collapse(const std::vector<Operand>& operands, const std::vector<int>& dims);

/// The loops over operands of one shape in row-major order, whatever their strides; dims merged where all allow it.
Loops row_major_loops(const std::vector<const Operand*>& operands);

/// The first `ndim` dims, without `left_out`.
std::vector<int> dims_but(int ndim, int64_t left_out = -1);

/// The loops of a reduction over some dims.
struct ReductionLoops {
    Loops kept;      // over the outputs: strides of x, of out
    Loops reduced;   // over what becomes one output: strides of x
    bool is_columns; // whether the outputs lie closer together than what is reduced
};
ReductionLoops reduction_loops(const Operand& out, const Operand& x, const std::vector<int64_t>& dims);

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
