#include "reduction/plan.h"

#include <algorithm>

#include "common/layout.h"

namespace norch::reduction {
namespace {

std::vector<Axis> axes_of(const Loops& loops, int count) {
    std::vector<Axis> axes;
    for (int d = 0; d < count; ++d)
        axes.push_back({loops.shape[d], loops.strides[0][d], loops.strides.size() > 1 ? loops.strides[1][d] : 0});
    return axes;
}

}  // namespace

int64_t count_of(const std::vector<Axis>& axes) {
    int64_t count = 1;
    for (const Axis& axis : axes) count *= axis.size;
    return count;
}

ReductionPlan plan_reduction(const Operand& out, const Operand& x, const std::vector<int64_t>& dims) {
    const ReductionLoops loops = reduction_loops(out, x, dims);
    const Loops &kept = loops.kept, &reduced = loops.reduced;
    ReductionPlan plan;
    plan.outputs = kept.numel;
    plan.inputs = reduced.numel;
    plan.columns = loops.is_columns;
    const Loops& inner = plan.columns ? kept : reduced;
    bool has_inner = inner.ndim() > 0;
    plan.n = has_inner ? inner.shape.back() : 1;
    plan.x_stride = has_inner ? inner.strides[0].back() : size_of(x.dtype);
    plan.out_stride = plan.columns ? kept.strides[1].back() : 0;
    plan.kept = axes_of(kept, kept.ndim() - (plan.columns ? 1 : 0));
    plan.reduced = axes_of(reduced, std::max(0, reduced.ndim() - (plan.columns ? 0 : 1)));
    if (plan.kept.size() >= MAX_AXES || plan.reduced.size() >= MAX_AXES)
        throw std::invalid_argument("a reduction of more than 64 dims");
    plan.kept_count = count_of(plan.kept);
    plan.row_count = count_of(plan.reduced);
    return plan;
}

}  // namespace norch::reduction
