// The gradient of an embedding's weight: the sum of the gradient's rows for each row of the table.
#include "common/staging.h"
#include "indexing/indexing.cuh"
#include "indexing/row_sums.h"
#include "runtime/families.h"

namespace norch::indexing {
namespace {

/// out (rows, features), grad (*shape, features), input (*shape).
KernelPtr embedding_grad(const Request& r) {
    const Operand &out = r.operands[0], &grad = r.operands[1], &input = r.operands[2];
    const int64_t padding = r.attrs.has("padding_idx") ? r.attrs.integer("padding_idx") : -1;
    if (!out.is_contiguous()) return nullptr;
    const int64_t rows = out.shape[0], features = out.shape[1];
    std::shared_ptr<Kernel> sums =
        row_sums_kernel({out.dtype, input, rows, features, features, features, false, false, padding, op_number(r.op)});
    if (!sums) return nullptr;
    auto staged = std::make_shared<StagedOperand>(StagedOperand::contiguous_in(grad, grad.dtype));
    return make_kernel(0, [=](char* const* data, const Scalar* scalars) {
        const Seen seen(*staged, data[1]);
        char* const operands[] = {data[0], seen.data(), data[2]};
        sums->run(operands, scalars);
    });
}

}  // namespace

void add_embedding_grad(Registry& registry) { registry["embedding_grad"] = embedding_grad; }

}  // namespace norch::indexing
