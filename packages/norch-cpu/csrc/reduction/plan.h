// How operands of any layout become the loops of a reduction, and walking them.
#pragma once

#include <cstdint>
#include <vector>

#include "common/kernel.h"

namespace norch::reduction {

struct Axis {
    int64_t size, x, out;  // byte strides of the input and the output
};
constexpr int MAX_AXES = 64;

/// The loops of a reduction. The inner one runs over `n` elements: reduced ones, or with `columns` kept ones.
struct ReductionPlan {
    bool columns;
    int64_t n, x_stride, out_stride;  // byte strides; out_stride is 0 where the inner loop is reduced
    std::vector<Axis> kept, reduced;  // the loops around it, outermost first
    int64_t kept_count, row_count;    // how many elements those have
    int64_t outputs, inputs;          // of the whole reduction: elements of the output, elements behind each

    /// Whether nothing is reduced or nothing comes out.
    bool is_empty() const { return outputs == 0 || inputs == 0; }
};
int64_t count_of(const std::vector<Axis>& axes);
ReductionPlan plan_reduction(const Operand& out, const Operand& x, const std::vector<int64_t>& dims);

/// Walks some axes from flat index `start`: how far the input and the output are from where they begin, in bytes.
class Odometer {
public:
    Odometer(const std::vector<Axis>& axes, int64_t start) : axes_(axes.data()), count_(int(axes.size())) {
        for (int d = count_ - 1; d >= 0; --d) {
            index_[d] = start % axes_[d].size;
            start /= axes_[d].size;
            x += index_[d] * axes_[d].x;
            out += index_[d] * axes_[d].out;
        }
    }
    void next() {
        for (int d = count_ - 1; d >= 0; --d) {
            x += axes_[d].x;
            out += axes_[d].out;
            if (++index_[d] < axes_[d].size) return;
            index_[d] = 0;
            x -= axes_[d].size * axes_[d].x;
            out -= axes_[d].size * axes_[d].out;
        }
    }
    int64_t x = 0, out = 0;

private:
    const Axis* axes_;
    int count_;
    int64_t index_[MAX_AXES];
};

}  // namespace norch::reduction
