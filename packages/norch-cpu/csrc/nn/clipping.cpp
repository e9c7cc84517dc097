// total_norm, of all gradients of a model, and scale, of all of them: what clips gradients.
#include "nn/normalization.h"

namespace norch::nn {
namespace {

constexpr int64_t CHUNK = 16 << 10;  // elements

/// CHUNK elements or fewer of one tensor.
struct Piece {
    size_t tensor;
    int64_t begin, size;
};

std::vector<Piece> pieces_of(const std::vector<Operand>& tensors, size_t first, size_t count) {
    std::vector<Piece> out;
    for (size_t i = 0; i < count; ++i) {
        const int64_t n = tensors[first + i].numel();
        for (int64_t begin = 0; begin < n; begin += CHUNK) out.push_back({i, begin, std::min(CHUNK, n - begin)});
    }
    return out;
}

bool are_flat(const Request& request, size_t first, size_t last) {
    return std::all_of(request.operands.begin() + long(first), request.operands.begin() + long(last), [&](const Operand& o) {
        return !o.is_scalar && o.dtype == request.operands[first].dtype && o.is_contiguous();
    });
}

/// Sums of chunks are added in their order, however many threads there are.
template <class T>
[[gnu::cold]] KernelPtr make_total_norm(const Request& request) {
    using C = compute_t<T>;
    const auto pieces = pieces_of(request.operands, 1, request.operands.size() - 1);
    const double ns = 0.05 * CHUNK * double(sizeof(T)) / 4;
    return make_kernel(ns * double(pieces.size()), [=](char* const* data, const Scalar*) {
        std::vector<double> sums(pieces.size());
        parallel_for(int64_t(pieces.size()), ns, [&](int64_t begin, int64_t end) {
            for (auto i = size_t(begin); i < size_t(end); ++i) {
                const Piece& piece = pieces[i];
                const T* x = reinterpret_cast<const T*>(data[1 + piece.tensor]) + piece.begin;
                const auto square = [x](int64_t j) {
                    const C value = load(x[j]);
                    return value * value;
                };
                sums[i] = total<C>(piece.size, square);
                // Squares that float32 does not hold, or not well, are added up again as float64.
                if (sizeof(C) == 4 && !(sums[i] > 1e-25 && sums[i] < 1e30))
                    sums[i] = total<double>(piece.size, [x](int64_t j) { return double(load(x[j])) * double(load(x[j])); });
            }
        });
        double sum = 0;
        for (double part : sums) sum += part;
        *reinterpret_cast<C*>(data[0]) = C(std::sqrt(sum));
    });
}

[[gnu::cold]] KernelPtr total_norm(const Request& request) {
    const size_t n = request.operands.size();
    if (n < 2 || !are_flat(request, 1, n) || !is_floating(request.operands[1].dtype)) return nullptr;
    return visit_floating(request.operands[1].dtype, [&]<class T>(Tag<T>) { return make_total_norm<T>(request); });
}

template <class T>
[[gnu::cold]] KernelPtr make_scale(const Request& request, size_t count) {
    using C = compute_t<T>;
    const auto pieces = pieces_of(request.operands, 0, count);
    const double ns = 0.1 * CHUNK * double(sizeof(T)) / 4;
    return make_kernel(ns * double(pieces.size()), [=](char* const* data, const Scalar*) {
        const C factor = *reinterpret_cast<const C*>(data[count]);
        if (factor == 1) return;  // what is short enough stays as it is
        parallel_for(int64_t(pieces.size()), ns, [&](int64_t first, int64_t last) {
            for (auto i = size_t(first); i < size_t(last); ++i) {
                const Piece& piece = pieces[i];
                T* x = reinterpret_cast<T*>(data[piece.tensor]) + piece.begin;
                NORCH_INDEPENDENT
                for (int64_t j = 0; j < piece.size; ++j) x[j] = store<T>(C(load(x[j]) * factor));
            }
        });
    });
}

[[gnu::cold]] KernelPtr scale(const Request& request) {
    const size_t count = request.operands.size() - 1;
    if (request.operands.size() < 2 || !are_flat(request, 0, count)) return nullptr;
    const Operand& factor = request.operands.back();
    if (!is_floating(request.operands[0].dtype) || factor.is_scalar) return nullptr;
    return visit_floating(request.operands[0].dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        const DType wide = sizeof(compute_t<T>) == 8 ? DType::f64 : DType::f32;
        return factor.dtype == wide && factor.numel() == 1 ? make_scale<T>(request, count) : nullptr;
    });
}

}  // namespace

void add_clipping(Registry& registry) {
    registry["total_norm"] = total_norm;
    registry["scale"] = scale;
}

}  // namespace norch::nn
