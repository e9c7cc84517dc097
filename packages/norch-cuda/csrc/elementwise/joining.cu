#include "elementwise/joining.h"

#include <algorithm>
#include <numeric>

#include "runtime/device.cuh"

namespace norch::elementwise {
namespace {

constexpr int PARTS = 16;  // in one launch

/// Rows of bytes without gaps: all of a part, `step` bytes from one to the next, go to byte `start` of the result's rows.
struct Part {
    int64_t step, start, bytes;
};

struct Launched {
    const char* from[PARTS];
    int64_t step[PARTS], start[PARTS];
    FastDivide width[PARTS];  // units in a row
    uint32_t units[PARTS];    // in all rows
    char* to;
    int64_t to_step;
};

template <class Unit>
__global__ void __launch_bounds__(THREADS) join(const __grid_constant__ Launched p) {
    const int part = int(blockIdx.y);
    const FastDivide width = p.width[part];
    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < p.units[part]; i += gridDim.x * THREADS) {
        const uint32_t row = width.quotient(i), at = i - row * width.divisor;
        reinterpret_cast<Unit*>(p.to + row * p.to_step + p.start[part])[at] =
            reinterpret_cast<const Unit*>(p.from[part] + row * p.step[part])[at];
    }
}

/// The elements from one row to the next, where a row is what lies from dim `dim` on, without gaps; -1 where it is none.
int64_t row_step(const Operand& o, int dim) {
    int64_t step = 1;
    for (int d = o.ndim() - 1; d >= dim; --d) {
        if (o.shape[size_t(d)] != 1 && o.strides[size_t(d)] != step) return -1;
        step *= o.shape[size_t(d)];
    }
    int64_t found = -1, rows = 1;
    for (int d = dim - 1; d >= 0; --d) {
        if (o.shape[size_t(d)] == 1) continue;
        if (found < 0) found = o.strides[size_t(d)];
        else if (o.strides[size_t(d)] != found * rows) return -1;
        rows *= o.shape[size_t(d)];
    }
    return found < 0 ? step : found;
}

class Joined final : public Kernel {
public:
    /// Rows are what lies from dim `dim` on, in the result and in the parts.
    static KernelPtr make(const Request& request, int dim) {
        const Operand& out = request.operands[0];
        const int64_t size = size_of(out.dtype);
        auto made = std::make_unique<Joined>();
        if (out.numel() == 0 || !out.is_contiguous()) return nullptr;
        for (int d = 0; d < dim; ++d) made->rows_ *= out.shape[size_t(d)];
        made->out_step_ = out.numel() / made->rows_ * size;
        int64_t start = 0;
        for (size_t i = 1; i < request.operands.size(); ++i) {
            const Operand& part = request.operands[i];
            const int64_t bytes = part.numel() / made->rows_ * size;
            if (part.dtype != out.dtype || part.numel() >> 31) return nullptr;
            const int64_t step = part.numel() ? row_step(part, dim) * size : 0;
            if (step < 0 || (made->rows_ > 1 && step < bytes)) return nullptr;
            made->parts_.push_back({step, start, bytes});
            made->alignment_ = std::gcd(made->alignment_, made->rows_ > 1 ? std::gcd(std::gcd(step, bytes), start)
                                                                          : std::gcd(bytes, start));
            start += bytes;
        }
        if (made->rows_ > 1) made->alignment_ = std::gcd(made->alignment_, made->out_step_);
        made->written = 1;
        return made;
    }

    void run(char* const* data, const Scalar*) const override {
        for (size_t first = 0; first < parts_.size(); first += PARTS) {
            const size_t count = std::min<size_t>(PARTS, parts_.size() - first);
            uint64_t all = uint64_t(alignment_) | reinterpret_cast<uintptr_t>(data[0]);
            for (size_t i = first; i < first + count; ++i)
                if (parts_[i].bytes) all |= reinterpret_cast<uintptr_t>(data[i + 1]);
            const int64_t unit = int64_t(all & -all);
            if (unit >= 16) launch<uint4>(data, first, count);
            else if (unit == 8) launch<uint64_t>(data, first, count);
            else if (unit == 4) launch<uint32_t>(data, first, count);
            else if (unit == 2) launch<uint16_t>(data, first, count);
            else launch<uint8_t>(data, first, count);
        }
    }

private:
    template <class Unit>
    void launch(char* const* data, size_t first, size_t count) const {
        Launched p = {};
        p.to = data[0], p.to_step = out_step_;
        uint32_t most = 0;
        for (size_t i = 0; i < count; ++i) {
            const Part& part = parts_[first + i];
            p.from[i] = data[first + i + 1];
            p.step[i] = part.step, p.start[i] = part.start;
            const int64_t width = part.bytes / int64_t(sizeof(Unit));
            p.width[i] = FastDivide(uint32_t(std::max<int64_t>(width, 1)));
            p.units[i] = uint32_t(width * rows_);
            most = std::max(most, p.units[i]);
        }
        if (!most) return;
        const int64_t wanted = ceil_div(most, THREADS), enough = int64_t(multiprocessors()) * 32;
        launch_kernel("joining tensors", join<Unit>, dim3(unsigned(std::min(wanted, enough)), unsigned(count)), THREADS, p);
    }

    std::vector<Part> parts_;
    int64_t rows_ = 1, out_step_ = 0, alignment_ = 16;
};

}  // namespace

KernelPtr cat(const Request& request) {
    const int ndim = request.operands[0].ndim();
    const int dim = int(request.attrs.integer("dim"));
    for (const Operand& o : request.operands)
        if (o.ndim() != ndim) return nullptr;  // one without elements, of one dim
    if (ndim < 3 || request.operands[0].is_contiguous()) return Joined::make(request, dim);
    Request turned = request;  // channels last: dim 1 becomes the last
    for (Operand& o : turned.operands) {
        std::rotate(o.shape.begin() + 1, o.shape.begin() + 2, o.shape.end());
        std::rotate(o.strides.begin() + 1, o.strides.begin() + 2, o.strides.end());
    }
    return Joined::make(turned, dim == 0 ? 0 : dim == 1 ? ndim - 1 : dim - 1);
}

KernelPtr stack(const Request& request) {
    const int dim = int(request.attrs.integer("dim"));
    return Joined::make(request, dim);
}

}  // namespace norch::elementwise
