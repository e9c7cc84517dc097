// sum, prod, any, all, and how operands become the loops of a reduction.
#include "common/layout.h"
#include "reduction/fold.h"

namespace norch::reduction {
namespace {

std::vector<Axis> axes_of(const Loops& loops, int count) {
    std::vector<Axis> axes;
    for (int d = 0; d < count; ++d)
        axes.push_back({loops.shape[d], loops.strides[0][d], loops.strides.size() > 1 ? loops.strides[1][d] : 0});
    return axes;
}

/// Whether the inner loop should run over what is kept: over whichever lies closer together.
bool prefers_columns(const Loops& kept, const Loops& reduced, int64_t size) {
    if (!kept.ndim() || !reduced.ndim()) return kept.ndim() > 0;
    int64_t k = kept.strides[0].back(), r = reduced.strides[0].back();
    if (k == size || r == size) return k == size;
    return k != 0 && (k < r || r == 0);
}

template <class Op>
KernelPtr fold_bool(const Request& request) {
    if (request.operands[1].dtype != DType::boolean) throw std::invalid_argument(request.op + " is of bool only");
    const Operand& x = request.operands[1];
    ReductionPlan plan = plan_reduction(request.operands[0], x, request.attrs.integers("dims"));
    return make_fold<uint8_t, Op>(plan, x.dtype);
}

}  // namespace

int64_t count_of(const std::vector<Axis>& axes) {
    int64_t count = 1;
    for (const Axis& axis : axes) count *= axis.size;
    return count;
}

ReductionPlan plan_reduction(const Operand& out, const Operand& x, const std::vector<int64_t>& dims) {
    std::vector<int> kept_dims, reduced_dims;
    for (int d = 0; d < x.ndim(); ++d) {
        bool is_reduced = std::find(dims.begin(), dims.end(), d) != dims.end();
        (is_reduced ? reduced_dims : kept_dims).push_back(d);
    }
    // The input decides the order of the loops: there is more of it.
    Loops kept = collapse({x, out}, kept_dims), reduced = collapse({x}, reduced_dims);
    ReductionPlan plan;
    plan.outputs = kept.numel;
    plan.inputs = reduced.numel;
    plan.columns = prefers_columns(kept, reduced, size_of(x.dtype));
    const Loops& inner = plan.columns ? kept : reduced;
    bool has_inner = inner.ndim() > 0;
    plan.n = has_inner ? inner.shape.back() : 1;
    plan.x_stride = has_inner ? inner.strides[0].back() : size_of(x.dtype);
    plan.out_stride = plan.columns ? kept.strides[1].back() : 0;
    plan.kept = axes_of(kept, kept.ndim() - (plan.columns ? 1 : 0));
    plan.reduced = axes_of(reduced, std::max(0, reduced.ndim() - (plan.columns ? 0 : 1)));
    if (plan.kept.size() >= MOST_AXES || plan.reduced.size() >= MOST_AXES)
        throw std::invalid_argument("a reduction of more than 64 dims");
    plan.kept_count = count_of(plan.kept);
    plan.row_count = count_of(plan.reduced);
    return plan;
}

void add_reductions(Registry& registry) {
    registry["sum"] = fold<Sum>;
    registry["prod"] = fold<Prod>;
    registry["amax"] = amax;
    registry["amin"] = amin;
    registry["any"] = fold_bool<Or>;
    registry["all"] = fold_bool<And>;
    registry["argmax"] = argmax;
    registry["argmin"] = argmin;
}

}  // namespace norch::reduction
