// dropout: the uniforms that `random` would draw, compared as they are made.
#include <algorithm>
#include <cmath>

#include "common/layout.h"
#include "random/philox.h"
#include "runtime/families.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"
#include "runtime/widen.h"

namespace norch::nn {
namespace {

constexpr int64_t CHUNK = 1024;  // elements: their words stay in the first-level cache

/// Words below this are dropped: those whose float32 uniform (word >> 8) * 2**-24 is less than p in float32.
uint32_t threshold_of(double p) {
    double fraction = std::ceil(double(float(p)) * 0x1p24);
    return fraction > 0 ? uint32_t(std::min(fraction, 0x1p24)) : 0;
}

/// At most CHUNK elements.
template <class T>
void drop(T* out, const T* x, const uint32_t* words, int64_t n, uint32_t threshold, compute_t<T> scale) {
    if constexpr (sizeof(T) == 2) {
        float row[CHUNK];
        widen_row(x, n, row);
        drop<float>(row, row, words, n, threshold, scale);
        narrow_row(row, n, out);
    } else {
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) out[i] = words[i] >> 8 >= threshold ? x[i] * scale : T(0);
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
        : layout_(row_major_loops({&request.operands[0], &request.operands[1]})),
          n_(request.operands[0].numel()),
          p_is_float_(is_floating(request.operands[2].dtype)) {
        for (int k = 0; k < 2; ++k) stride_[k] = layout_.ndim() ? layout_.strides[size_t(k)].back() : int64_t(sizeof(T));
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
        const int inner = layout_.ndim() - 1;
        const int64_t columns = inner < 0 ? 1 : layout_.shape[size_t(inner)];
        while (count > 0) {
            int64_t column = start % columns, rest = start / columns;
            int64_t n = std::min(count, columns - column);
            char* at[] = {reinterpret_cast<char*>(out) + column * stride_[0],
                          reinterpret_cast<char*>(const_cast<T*>(x)) + column * stride_[1]};
            layout_.move(at, inner, rest);
            T* to = reinterpret_cast<T*>(at[0]);
            const T* from = reinterpret_cast<const T*>(at[1]);
            if (stride_[0] == sizeof(T) && stride_[1] == sizeof(T))
                drop(to, from, words, n, threshold, scale);
            else
                drop(to, stride_[0] / int64_t(sizeof(T)), from, stride_[1] / int64_t(sizeof(T)), words, n, threshold, scale);
            words += n;
            start += n;
            count -= n;
        }
    }

    Loops layout_;
    int64_t stride_[2];  // of the innermost dim, in bytes
    int64_t n_;
    bool p_is_float_;
};

[[gnu::cold]] KernelPtr dropout(const Request& request) {
    return visit_floating(request.operands[0].dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        return std::make_unique<Dropout<T>>(request);
    });
}

}  // namespace

void add_dropout(Registry& registry) { registry["dropout"] = dropout; }

}  // namespace norch::nn
