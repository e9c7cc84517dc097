// dropout: the uniforms that `random` would draw, compared as they are made.
#include <cmath>

#include "common/operands.h"
#include "elementwise/loop.h"
#include "random/philox.h"
#include "runtime/parallel.h"

namespace norch::nn {
namespace {

constexpr int64_t CHUNK = 1024;  // elements: their words stay in the first-level cache

/// The dims of two operands of one shape, in row-major order, merged where both allow it; strides in elements.
struct RowMajor {
    std::vector<int64_t> shape, out, x;

    RowMajor(const Operand& a, const Operand& b) {
        for (int d = 0; d < a.ndim(); ++d) {
            int64_t n = a.shape[d];
            if (n == 1) continue;
            if (!shape.empty() && out.back() == a.strides[d] * n && x.back() == b.strides[d] * n) {
                shape.back() *= n;
                out.back() = a.strides[d];
                x.back() = b.strides[d];
            } else {
                shape.push_back(n);
                out.push_back(a.strides[d]);
                x.push_back(b.strides[d]);
            }
        }
        if (shape.empty()) {
            shape = {1};
            out = x = {1};
        }
    }
};

/// Words below this are dropped: those whose float32 uniform (word >> 8) * 2**-24 is less than p in float32.
uint32_t threshold_of(double p) {
    double fraction = std::ceil(double(float(p)) * 0x1p24);
    return fraction > 0 ? uint32_t(std::min(fraction, 0x1p24)) : 0;
}

template <class T>
void drop(T* out, const T* x, const uint32_t* words, int64_t n, uint32_t threshold, compute_t<T> scale) {
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
        compute_t<T> value = load(x[i]) * scale;
        out[i] = store<T>(words[i] >> 8 >= threshold ? value : compute_t<T>(0));
    }
}

template <class T>
void drop(T* out, int64_t out_stride, const T* x, int64_t x_stride, const uint32_t* words, int64_t n,
          uint32_t threshold, compute_t<T> scale) {
    for (int64_t i = 0; i < n; ++i) {
        compute_t<T> value = load(x[i * x_stride]) * scale;
        out[i * out_stride] = store<T>(words[i] >> 8 >= threshold ? value : compute_t<T>(0));
    }
}

template <class T>
class Dropout final : public Kernel {
public:
    Dropout(const Request& request)
        : layout_(request.operands[0], request.operands[1]),
          n_(request.operands[0].numel()),
          p_is_float_(is_floating(request.operands[2].dtype)) {
        work = double(n_) * NS;
    }

    void run(char* const* data, const Scalar* scalars) const override {
        T* out = reinterpret_cast<T*>(data[0]);
        const T* x = reinterpret_cast<const T*>(data[1]);
        double p = p_is_float_ ? scalars[2].f : double(scalars[2].i);
        auto scale = compute_t<T>(p < 1 ? 1 / (1 - p) : 0.0);
        uint32_t threshold = threshold_of(p);
        uint64_t seed = uint64_t(scalars[3].i), offset = uint64_t(scalars[4].i);
        parallel_for(
            n_, NS,
            [&](int64_t begin, int64_t end) {
                uint32_t words[CHUNK];
                for (; begin < end; begin += CHUNK) {
                    int64_t count = std::min(CHUNK, end - begin);
                    random::philox(seed, offset, uint64_t(begin / 4), (count + 3) / 4, words);
                    chunk(out, x, words, begin, count, threshold, scale);
                }
            },
            4 * random::PHILOX_LANES);
    }

private:
    static constexpr double NS = 1.2;

    /// Elements [start, start + count), row by row.
    void chunk(T* out, const T* x, const uint32_t* words, int64_t start, int64_t count, uint32_t threshold,
               compute_t<T> scale) const {
        size_t inner = layout_.shape.size() - 1;
        while (count > 0) {
            int64_t column = start % layout_.shape[inner], rest = start / layout_.shape[inner];
            int64_t n = std::min(count, layout_.shape[inner] - column);
            T* to = out + column * layout_.out[inner];
            const T* from = x + column * layout_.x[inner];
            for (size_t d = inner; d-- > 0; rest /= layout_.shape[d]) {
                to += rest % layout_.shape[d] * layout_.out[d];
                from += rest % layout_.shape[d] * layout_.x[d];
            }
            if (layout_.out[inner] == 1 && layout_.x[inner] == 1)
                drop(to, from, words, n, threshold, scale);
            else
                drop(to, layout_.out[inner], from, layout_.x[inner], words, n, threshold, scale);
            words += n;
            start += n;
            count -= n;
        }
    }

    RowMajor layout_;
    int64_t n_;
    bool p_is_float_;
};

KernelPtr dropout(const Request& request) {
    return visit_floating(request.operands[0].dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        return std::make_unique<Dropout<T>>(request);
    });
}

}  // namespace

void add_dropout(Registry& registry) { registry["dropout"] = dropout; }

}  // namespace norch::nn
