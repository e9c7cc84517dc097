// Losses: nll_loss and cross_entropy by class index, of one row or a batch of rows, with their gradients; and mse_loss,
// huber_loss, smooth_l1_loss.
#include <algorithm>
#include <cmath>

#include "common/arithmetic_ops.h"
#include "common/losses.h"
#include "elementwise/loop.h"
#include "nn/softmax.h"
#include "nn/lines.h"

namespace norch::nn {
namespace {

using ReadIndex = int64_t (*)(const char*);

/// nullptr for a dtype that is no integer.
ReadIndex reader_of_indices(DType dtype) {
    return visit(dtype, []<class T>(Tag<T>) -> ReadIndex {
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
            return [](const char* p) { return int64_t(*reinterpret_cast<const T*>(p)); };
        else
            return nullptr;
    });
}

/// One class index for each row.
struct Targets {
    Targets(const Operand& operand, int64_t classes, const Request& request)
        : read(reader_of_indices(operand.dtype)),
          step(operand.ndim() ? operand.strides[0] * size_of(operand.dtype) : 0),
          count(operand.numel()),
          classes(classes),
          ignored(request.attrs.integer("ignore_index")) {}

    /// The class of a row, or -1 where it is ignored.
    int64_t operator()(const char* data, int64_t row) const {
        int64_t index = read(data + row * step);
        if (index == ignored) return -1;
        if (index < 0 || index >= classes) throw IndexOutOfBounds(index, classes);
        return index;
    }

    int64_t counted(const char* data) const {
        int64_t found = 0;
        for (int64_t i = 0; i < count; ++i) found += read(data + i * step) != ignored;
        return found;
    }

    ReadIndex read;
    int64_t step, count, classes, ignored;
};

struct Rows {
    explicit Rows(const Operand& operand)
        : count(operand.ndim() == 2 ? operand.shape[0] : 1),
          classes(operand.shape.back()),
          row(operand.ndim() == 2 ? operand.strides[0] : 0),
          column(operand.strides.back()) {}
    int64_t count, classes, row, column;
};

/// Minus the elements of `logs` that the targets name, into `loss`.
template <class T>
void pick(T* loss, const T* logs, const Rows& rows, const char* target, const Targets& targets, LossReduction reduction) {
    double sum = 0;
    int64_t counted = 0;
    for (int64_t i = 0; i < rows.count; ++i) {
        int64_t index = targets(target, i);
        compute_t<T> value = index < 0 ? compute_t<T>(0) : -load(logs[i * rows.row + index * rows.column]);
        counted += index >= 0;
        if (reduction == LossReduction::none)
            loss[i] = store<T>(value);
        else
            sum += value;
    }
    if (reduction == LossReduction::mean) sum /= double(counted);
    if (reduction != LossReduction::none) *loss = store<T>(compute_t<T>(sum));
}

[[gnu::cold]] KernelPtr picking(const Request& request, int logs, int target, KernelPtr first) {
    const Operand &scores = request.operands[logs], &loss = request.operands[0];
    if (!loss.is_contiguous() || loss.dtype != scores.dtype) return nullptr;
    Rows rows(scores);
    Targets targets(request.operands[target], rows.classes, request);
    LossReduction reduction = reduction_of(request);
    std::shared_ptr<Kernel> before(std::move(first));
    double work = 3 * double(rows.count) + (before ? before->work : 0);
    return visit_floating(scores.dtype, [&]<class T>(Tag<T>) {
        return make_kernel(work, [=](char* const* data, const Scalar* scalars) {
            if (before) before->run(data + 1, scalars);
            pick(reinterpret_cast<T*>(data[0]), reinterpret_cast<const T*>(data[logs]), rows, data[target], targets,
                 reduction);
        });
    });
}

/// loss, input, target
[[gnu::cold]] KernelPtr nll_loss(const Request& request) {
    if (request.operands.size() != 3 || !are_plain(request.operands[1], request.operands[2])) return nullptr;
    return picking(request, 1, 2, nullptr);
}

/// loss, logs, input, target
[[gnu::cold]] KernelPtr cross_entropy(const Request& request) {
    if (!are_plain(request.operands[2], request.operands[3])) return nullptr;
    Request inner = request;
    inner.operands = {request.operands[1], request.operands[2]};
    return picking(request, 1, 3, log_softmax(inner, -1));
}

/// The gradient of each row's loss, from that of the reduced one.
template <class T>
class Scales {
public:
    using C = compute_t<T>;
    Scales(const Operand& grad, const Request& request)
        : reduction_(reduction_of(request)), step_(grad.ndim() ? grad.strides[0] : 0) {}

    /// What the mean divides by, else 1.
    C divisor(const Targets& targets, const char* target) const {
        return reduction_ == LossReduction::mean ? C(targets.counted(target)) : C(1);
    }
    C operator()(const char* grad, int64_t row, C divisor) const {
        return load(reinterpret_cast<const T*>(grad)[row * step_]) / divisor;
    }

private:
    LossReduction reduction_;
    int64_t step_;
};

/// out, grad, target
[[gnu::cold]] KernelPtr nll_loss_grad(const Request& request) {
    const Operand& out = request.operands[0];
    if (request.operands.size() != 3 || !are_plain(out, request.operands[2]) || !out.is_contiguous()) return nullptr;
    Rows rows(out);
    Targets targets(request.operands[2], rows.classes, request);
    return visit_floating(out.dtype, [&]<class T>(Tag<T>) {
        Scales<T> scales(request.operands[1], request);
        double ns = 3 + 0.1 * double(rows.classes);
        return make_kernel(double(rows.count) * ns, [=](char* const* data, const Scalar*) {
            const auto divisor = scales.divisor(targets, data[2]);
            parallel_for(rows.count, ns, [&](int64_t begin, int64_t end) {
                T* to = reinterpret_cast<T*>(data[0]) + begin * rows.classes;
                for (int64_t i = begin; i < end; ++i, to += rows.classes) {
                    std::fill(to, to + rows.classes, T{});
                    int64_t index = targets(data[2], i);
                    if (index >= 0) to[index] = store<T>(-scales(data[1], i, divisor));
                }
            });
        });
    });
}

/// (exp(logs) - [class is the target's]) * scale, for rows of float or double.
template <class T, class C>
void cross_entropy_rows(C* out, const C* logs, char* const* data, int64_t first, int64_t count, C divisor,
                        const Targets& targets, const Scales<T>& scales) {
    const int64_t n = targets.classes;
    exponentials(out, logs, count * n);
    for (int64_t i = first; i < first + count; ++i, out += n) {
        const int64_t index = targets(data[3], i);
        if (index < 0) {
            std::fill(out, out + n, C(0));
            continue;
        }
        const C scale = scales(data[1], i, divisor);
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < n; ++j) out[j] *= scale;
        out[index] -= scale;
    }
}

/// out, grad, logs, target
[[gnu::cold]] KernelPtr cross_entropy_grad(const Request& request) {
    const Operand &out = request.operands[0], &logs = request.operands[2];
    if (!are_plain(out, request.operands[3]) || !out.is_contiguous() || !logs.is_contiguous()) return nullptr;
    Rows rows(out);
    Targets targets(request.operands[3], rows.classes, request);
    return visit_floating(out.dtype, [&]<class T>(Tag<T>) {
        using C = compute_t<T>;
        Scales<T> scales(request.operands[1], request);
        double ns = 3 + (sizeof(C) == 8 ? 3.0 : 0.6) * double(rows.classes);
        int64_t block = std::max<int64_t>(1, LINES_BLOCK / std::max<int64_t>(1, rows.classes));
        return make_kernel(double(rows.count) * ns, [=](char* const* data, const Scalar*) {
            const C divisor = scales.divisor(targets, data[3]);
            parallel_for(rows.count, ns, [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; i += block) {
                    const int64_t count = std::min(block, end - i), n = count * rows.classes;
                    T* to = reinterpret_cast<T*>(data[0]) + i * rows.classes;
                    const T* from = reinterpret_cast<const T*>(data[2]) + i * rows.classes;
                    if constexpr (std::is_same_v<T, C>) {
                        cross_entropy_rows(to, from, data, i, count, divisor, targets, scales);
                    } else {
                        Scratch<C> scratch(n);
                        for (int64_t j = 0; j < n; ++j) scratch[j] = load(from[j]);
                        cross_entropy_rows(scratch.data(), scratch.data(), data, i, count, divisor, targets, scales);
                        for (int64_t j = 0; j < n; ++j) to[j] = store<T>(scratch[j]);
                    }
                }
            });
        });
    });
}

NORCH_BINARY(T, SquaredDifference, (a - b) * (a - b))

/// What a loss makes of the difference of two elements.
struct Squared {
    template <class C>
    static NORCH_INLINE C apply(C difference, C) {
        return difference * difference;
    }
};
/// huber_loss by its delta, and beta times smooth_l1_loss by its beta.
struct Clipped {
    template <class C>
    static NORCH_INLINE C apply(C difference, C limit) {
        const C size = std::fabs(difference), near = size < limit ? size : limit;
        return (size - near * C(0.5)) * near;
    }
};

/// The sum over all elements: of pieces first, so that it does not depend on the number of threads.
template <class F, class T>
double sum_over_differences(const char* a, const char* b, int64_t n, double limit) {
    using C = compute_t<T>;
    constexpr int64_t PIECE = 4096;
    const int64_t pieces = (n + PIECE - 1) / PIECE;
    Scratch<double> sums(pieces);
    parallel_for(pieces, 0.3 * PIECE, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const T *x = reinterpret_cast<const T*>(a) + i * PIECE, *y = reinterpret_cast<const T*>(b) + i * PIECE;
            sums[i] = sum_of<C>(std::min(PIECE, n - i * PIECE), [=, limit = C(limit)](int64_t j) {
                return F::apply(C(load(x[j]) - load(y[j])), limit);
            });
        }
    });
    double total = 0;
    for (int64_t i = 0; i < pieces; ++i) total += sums[i];
    return total;
}

/// loss, input, target; the loss is what `sum` gives or the mean.
[[gnu::cold]] KernelPtr reduced(const Request& request, double (*sum)(const char*, const char*, int64_t, double)) {
    const Operand &out = request.operands[0], &a = request.operands[1], &b = request.operands[2];
    const LossReduction reduction = reduction_of(request);
    if (reduction == LossReduction::none || !lie_alike(a, b)) return nullptr;
    const int64_t n = a.numel();
    const bool is_divided = request.attrs.has("beta");
    const char* name = is_divided ? "beta" : "delta";
    const double limit = request.attrs.has(name) ? request.attrs.number(name) : 0;
    const double divisor = (reduction == LossReduction::mean ? double(n) : 1) * (is_divided ? limit : 1);
    return make_kernel(0.3 * double(n), [=, dtype = out.dtype](char* const* data, const Scalar*) {
        Scalar total;
        total.f = sum(data[1], data[2], n, limit) / divisor;
        elementwise::write_scalar(data[0], total, dtype, true, false);
    });
}

[[gnu::cold]] KernelPtr clipped_loss(const Request& request) {
    // Of other dtypes `fused` and a mean do.
    if (!is_difference_loss(request) || request.operands[0].dtype != DType::f32) return nullptr;
    return reduced(request, sum_over_differences<Clipped, float>);
}

[[gnu::cold]] KernelPtr mse_loss(const Request& request) {
    if (!is_difference_loss(request)) return nullptr;
    const DType dtype = request.operands[0].dtype;
    if (reduction_of(request) == LossReduction::none) {
        using elementwise::binary_loop;
        const bool is_double = dtype == DType::f64;
        return elementwise::elementwise_kernel(request, is_double ? binary_loop<double, double, SquaredDifference>
                                                                  : binary_loop<float, float, SquaredDifference>, 0.2);
    }
    return reduced(request, visit_floating(dtype, []<class T>(Tag<T>) { return sum_over_differences<Squared, T>; }));
}

}  // namespace

void add_losses(Registry& registry) {
    registry["nll_loss"] = nll_loss;
    registry["nll_loss_grad"] = nll_loss_grad;
    registry["cross_entropy"] = cross_entropy;
    registry["cross_entropy_grad"] = cross_entropy_grad;
    registry["mse_loss"] = mse_loss;
    registry["huber_loss"] = clipped_loss;
    registry["smooth_l1_loss"] = clipped_loss;
}

}  // namespace norch::nn
