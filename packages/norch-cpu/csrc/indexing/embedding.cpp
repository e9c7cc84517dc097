// embedding, sums of its rows, and its gradient: gather and scatter_add of whole rows, behind what makes an index of any
// integer dtype and layout a list of int64.
#include <algorithm>
#include <cstring>
#include <optional>

#include "common/staging.h"
#include "indexing/bounds.h"
#include "indexing/row_sums.h"
#include "runtime/families.h"
#include "runtime/parallel.h"

namespace norch::indexing {
namespace {

/// The operand as a list of n elements, or n rows.
Operand list_of(const Operand& index, int64_t n) {
    Operand out = index;
    out.shape = {n};
    out.strides = {1};
    return out;
}
Operand rows_of(const Operand& operand, int64_t n) {
    int64_t features = operand.shape.back();
    Operand out = operand;
    out.shape = {n, features};
    out.strides = {features, 1};
    return out;
}

/// The index of each row, and the same for all features of a row.
Operand index_of_rows(int64_t n, int64_t features) {
    return {DType::i64, {n, features}, {1, 0}};
}

[[gnu::cold]] KernelPtr compile(const char* op, void (*add)(Registry&), std::vector<Operand> operands) {
    Registry registry;
    add(registry);
    Request request;
    request.op = op;
    request.operands = std::move(operands);
    request.attrs.values["dim"].kind = Attrs::Value::integer;  // dim 0
    return registry.at(op)(request);
}

class Embedding final : public Kernel {
public:
    Embedding(const Operand& out, const Operand& input, const Operand& weight)
        : index_(StagedOperand::contiguous_in(input, DType::i64)),
          bounds_(list_of(contiguous(input, DType::i64), input.numel()), 0, weight.shape[0]) {
        int64_t n = input.numel(), features = weight.shape[1];
        gather_ = compile("gather", add_gather, {rows_of(out, n), weight, index_of_rows(n, features)});
        work = 0.3 * double(n) + bounds_.work() + gather_->work;
    }
    void run(char* const* data, const Scalar* scalars) const override {
        const Seen index(index_, data[1]);
        bounds_.check(index.data());
        char* const operands[] = {data[0], data[2], index.data()};
        gather_->run(operands, scalars);
    }

private:
    StagedOperand index_;
    Bounds bounds_;
    KernelPtr gather_;
};

/// The sum of a bag's rows, of a table's `features`; T is their dtype.
template <class T>
void sum_bag(const char* table, Bag<char> bag, int64_t features, char* out) {
    const Bag<T> rows{bag.rows, bag.count, bag.known, bag.padding, reinterpret_cast<const T*>(bag.factors)};
    const auto sum = bag.factors ? sum_rows<true, T> : sum_rows<false, T>;
    sum(reinterpret_cast<const T*>(table), rows, features, reinterpret_cast<T*>(out));
}

class EmbeddingSum final : public Kernel {
public:
    /// offsets: null where the bags are the rows of `input`. factors: of each index, or null.
    EmbeddingSum(const Operand& input, const Operand& weight, const Operand* offsets, const Operand* factors, int64_t padding)
        : index_(StagedOperand::contiguous_in(input, DType::i64)),
          weight_(StagedOperand::contiguous_in(weight, weight.dtype)),
          bounds_(list_of(contiguous(input, DType::i64), input.numel()), 0, weight.shape[0]),
          size_(input.shape.back()), features_(weight.shape[1]), padding_(padding), bytes_(size_of(weight.dtype)) {
        sum_ = visit_floating(weight.dtype, []<class T>(Tag<T>) { return &sum_bag<T>; });
        if (factors) factors_.emplace(StagedOperand::contiguous_in(*factors, factors->dtype));
        bags_ = 1;
        for (size_t d = 0; d + 1 < input.shape.size(); ++d) bags_ *= input.shape[d];
        if (offsets) {
            offsets_ = StagedOperand::contiguous_in(*offsets, DType::i64);
            edges_.emplace(contiguous(*offsets, DType::i64), 0, size_ + 1);
            count_ = size_;
            bags_ = offsets->shape[0] - 1;
            size_ = std::max<int64_t>(count_ / std::max<int64_t>(bags_, 1), 1);
        } else {
            count_ = bags_ * size_;
        }
        ns_ = double(size_) * (0.05 * double(features_ * bytes_) + 4);
        work = bounds_.work() + double(bags_) * ns_;
    }
    void run(char* const* data, const Scalar*) const override {
        const Seen index(index_, data[1]), weight(weight_, data[2]);
        bounds_.check(index.data());
        const int64_t* all = reinterpret_cast<const int64_t*>(index.data());
        std::optional<Seen> offsets;
        char* const* more = data + 3;  // factors, then offsets, of those that there are
        std::optional<Seen> factors;
        if (factors_) factors.emplace(*factors_, *more++);
        if (edges_) edges_->check(offsets.emplace(offsets_, *more).data());
        const int64_t* edges = edges_ ? reinterpret_cast<const int64_t*>(offsets->data()) : nullptr;
        parallel_for(bags_, ns_, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t first = edges ? edges[i] : i * size_, last = edges ? edges[i + 1] : first + size_;
                const char* const own = factors ? factors->data() + first * bytes_ : nullptr;
                sum_(weight.data(), {all + first, last - first, count_ - first, padding_, own}, features_, data[0] + i * features_ * bytes_);
            }
        });
    }

private:
    StagedOperand index_, weight_, offsets_;
    std::optional<StagedOperand> factors_;
    Bounds bounds_;
    std::optional<Bounds> edges_;
    int64_t size_, features_, padding_, bytes_, bags_, count_;  // size: of a bag; of one among several about
    void (*sum_)(const char*, Bag<char>, int64_t, char*);
    double ns_;
};

class EmbeddingGrad final : public Kernel {
public:
    EmbeddingGrad(const Operand& out, const Operand& grad, const Operand& input, int64_t padding)
        : grad_(StagedOperand::contiguous_in(grad, grad.dtype)),
          index_(StagedOperand::contiguous_in(input, DType::i64)),
          padding_(padding) {
        int64_t n = input.numel(), features = out.shape[1];
        row_bytes_ = features * size_of(out.dtype);
        rows_ = out.shape[0];
        Operand source = rows_of(contiguous(grad), n);
        add_ = compile("scatter_add", add_scatter, {rows_of(out, rows_), index_of_rows(n, features), source});
        work = add_->work + double(rows_ * row_bytes_) * 0.03 + double(grad.numel()) * 0.2 + 0.3 * double(n);
    }
    void run(char* const* data, const Scalar* scalars) const override {
        const Seen grad(grad_, data[1]), index(index_, data[2]);
        parallel_for(rows_, 0.03 * double(row_bytes_), [&](int64_t begin, int64_t end) {
            std::memset(data[0] + begin * row_bytes_, 0, size_t((end - begin) * row_bytes_));
        });
        char* const operands[] = {data[0], index.data(), grad.data()};
        add_->run(operands, scalars);
        // What was added up for the padding is not wanted.
        if (padding_ >= 0) std::memset(data[0] + padding_ * row_bytes_, 0, size_t(row_bytes_));
    }

private:
    StagedOperand grad_, index_;
    int64_t padding_, rows_, row_bytes_;
    KernelPtr add_;
};

[[gnu::cold]] KernelPtr embedding(const Request& request) {
    const Operand &out = request.operands[0], &input = request.operands[1], &weight = request.operands[2];
    if (!out.is_contiguous()) return nullptr;
    return std::make_unique<Embedding>(out, input, weight);
}

/// out (*shape, features), input (*shape, n) or (n) with offsets (bags + 1), weight (rows, features); factors of input's shape
/// stand before the offsets.
[[gnu::cold]] KernelPtr embedding_sum(const Request& request) {
    const Operand &out = request.operands[0], &input = request.operands[1], &weight = request.operands[2];
    const int64_t padding = request.attrs.has("padding_idx") ? request.attrs.integer("padding_idx") : -1;
    const size_t given = request.op == "embedding_weighted_sum" ? 4 : 3;
    const Operand* factors = given == 4 ? &request.operands[3] : nullptr;
    const Operand* offsets = request.operands.size() > given ? &request.operands[given] : nullptr;
    if (!out.is_contiguous() || !out.numel()) return nullptr;
    return std::make_unique<EmbeddingSum>(input, weight, offsets, factors, padding);
}

[[gnu::cold]] KernelPtr embedding_grad(const Request& request) {
    const Operand &out = request.operands[0], &grad = request.operands[1], &input = request.operands[2];
    int64_t padding = -1;
    if (request.attrs.has("padding_idx")) padding = request.attrs.integer("padding_idx");
    if (!out.is_contiguous() || padding >= out.shape[0]) return nullptr;
    return std::make_unique<EmbeddingGrad>(out, grad, input, padding);
}

}  // namespace

void add_embedding(Registry& registry) {
    registry["embedding"] = embedding;
    registry["embedding_sum"] = registry["embedding_weighted_sum"] = embedding_sum;
    registry["embedding_grad"] = embedding_grad;
}

}  // namespace norch::indexing
