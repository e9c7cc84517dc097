// random and arange. What each kind of draw makes of the words is defined in norch.numpy_backend.philox.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "common/kernel.h"
#include "common/staging.h"
#include "elementwise/loop.h"
#include "random/boxmuller.h"
#include "random/philox.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::random {
namespace {

constexpr int64_t CHUNK = 256;  // blocks made at a time: their words and elements stay in the first-level cache

/// From the words of blocks to n elements.
template <class T>
using Draw = void (*)(const uint32_t* words, T* out, int64_t n);

void bits(const uint32_t* w, int64_t* out, int64_t n) {
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = int64_t(w[i]);
}

void bits64(const uint32_t* w, int64_t* out, int64_t n) {
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = int64_t((uint64_t(w[2 * i]) << 32 | w[2 * i + 1]) >> 1);
}

/// The leading `digits` bits as a fraction; exact in float32 and in T.
template <class T, int digits>
void uniform(const uint32_t* w, T* out, int64_t n) {
    constexpr float unit = 1.0f / float(1 << digits);
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = store<T>(float(int32_t(w[i] >> (32 - digits))) * unit);
}

inline double uniform64(uint32_t a, uint32_t b) {
    return (double(int32_t(a >> 5)) * 0x1p26 + double(int32_t(b >> 6))) * 0x1p-53;
}

void uniform(const uint32_t* w, double* out, int64_t n) {
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = uniform64(w[2 * i], w[2 * i + 1]);
}

/// Elements come in pairs, so an odd n writes one more than that.
template <class T>
void normal(const uint32_t* w, T* out, int64_t n) {
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; i += 2) {
        Pair<float> pair = box_muller(w[i] >> 8, w[i + 1] >> 8);
        out[i] = store<T>(pair.first);
        out[i + 1] = store<T>(pair.second);
    }
}

void normal(const uint32_t* w, double* out, int64_t n) {
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; i += 2) {
        Pair<double> pair = box_muller(uniform64(w[2 * i], w[2 * i + 1]), uniform64(w[2 * i + 2], w[2 * i + 3]));
        out[i] = pair.first;
        out[i + 1] = pair.second;
    }
}

template <class T>
void fill(uint64_t seed, uint64_t offset, Draw<T> draw, int64_t per_block, double ns, T* out, int64_t n) {
    int64_t blocks = (n + per_block - 1) / per_block;
    parallel_for(
        blocks, ns * double(per_block),
        [=](int64_t begin, int64_t end) {
            uint32_t words[4 * CHUNK];
            for (; begin < end; begin += CHUNK) {
                int64_t count = std::min(CHUNK, end - begin), start = begin * per_block;
                philox(seed, offset, uint64_t(begin), count, words);
                if (start + count * per_block <= n) {
                    draw(words, out + start, count * per_block);
                } else {
                    T last[4 * CHUNK];
                    draw(words, last, n - start);
                    std::memcpy(out + start, last, size_t(n - start) * sizeof(T));
                }
            }
        },
        PHILOX_LANES);
}

/// Elements are counted in row-major order: other layouts are filled by way of a contiguous copy.
template <class T>
[[gnu::cold]] KernelPtr random_kernel(const Request& request, Draw<T> draw, int64_t per_block, double ns) {
    const Operand& out = request.operands[0];
    int64_t n = out.numel();
    double work = double(n) * ns;
    auto fill_all = [=](char* const* data, const Scalar* s) {
        fill<T>(uint64_t(s[1].i), uint64_t(s[2].i), draw, per_block, ns, reinterpret_cast<T*>(data[0]), n);
    };
    return Staged::make(request, 1, {out.dtype, DType::i64, DType::i64}, make_kernel(work, fill_all));
}

[[gnu::cold]] KernelPtr make_random(const Request& request) {
    const std::string& kind = request.attrs.text("kind");
    DType dtype = request.operands[0].dtype;
    if (kind == "bits" && dtype == DType::i64) return random_kernel<int64_t>(request, bits, 4, 1);
    if (kind == "bits64" && dtype == DType::i64) return random_kernel<int64_t>(request, bits64, 2, 2);
    if (kind == "uniform") {
        switch (dtype) {
            case DType::f64: return random_kernel<double>(request, uniform, 2, 2);
            case DType::f32: return random_kernel<float>(request, uniform<float, 24>, 4, 1);
            case DType::f16: return random_kernel<half>(request, uniform<half, 11>, 4, 1);
            case DType::bf16: return random_kernel<bfloat16>(request, uniform<bfloat16, 8>, 4, 1);
            default: break;
        }
    }
    if (kind == "normal") {
        switch (dtype) {
            case DType::f64: return random_kernel<double>(request, normal, 2, 5);
            case DType::f32: return random_kernel<float>(request, normal<float>, 4, 2);
            case DType::f16: return random_kernel<half>(request, normal<half>, 4, 2);
            case DType::bf16: return random_kernel<bfloat16>(request, normal<bfloat16>, 4, 2);
            default: break;
        }
    }
    return nullptr;
}

/// Rounded once: to float32 towards the odd neighbour, which leaves the second rounding what it needs to know.
inline float to_odd_float(double x) {
    float near = float(x);
    uint32_t bits = bit_cast<uint32_t>(near);
    uint32_t down = std::fabs(double(near)) > std::fabs(x) ? 1 : 0;  // false for NaN
    uint32_t exact = double(near) == x || x != x ? 1 : 0;
    return bit_cast<float>(exact ? bits : (bits - down) | 1u);
}

template <class T>
inline T round_once(double x) {
    if constexpr (std::is_same_v<compute_t<T>, T>)
        return T(x);
    else
        return store<T>(to_odd_float(x));
}

template <class T>
void count_up(T* out, int64_t stride, int64_t first, int64_t n, Scalar start, Scalar step) {
    constexpr int64_t PART = 256;
    for (int64_t done = 0; done < n; done += PART) {
        int64_t count = std::min(PART, n - done);
        T* to = out + done * stride;
        if constexpr (std::is_integral_v<T>) {
            for (int64_t i = 0; i < count; ++i) {
                uint64_t value = uint64_t(start.i) + uint64_t(first + done + i) * uint64_t(step.i);
                to[i * stride] = std::is_same_v<T, bool> ? T(value != 0) : T(value);
            }
        } else {
            // The product is rounded before the sum, as in NumPy: in one loop the compiler would fuse them.
            double product[PART];
            const double base = double(first + done);  // the index in two parts: 64 bits are not converted in vectors
            for (int32_t i = 0; i < int32_t(count); ++i) product[i] = (base + double(i)) * step.f;
            for (int64_t i = 0; i < count; ++i) to[i * stride] = round_once<T>(start.f + product[i]);
        }
    }
}

[[gnu::cold]] KernelPtr arange(const Request& request) {
    const Operand& out = request.operands[0];
    int64_t n = out.shape[0], stride = out.strides[0];
    return visit(out.dtype, [=]<class T>(Tag<T>) {
        constexpr double ns = 0.4;
        return make_kernel(double(n) * ns, [=](char* const* data, const Scalar* s) {
            parallel_for(n, ns, [=](int64_t begin, int64_t end) {
                T* to = reinterpret_cast<T*>(data[0]) + begin * stride;
                if (stride == 1)
                    count_up(to, 1, begin, end - begin, s[1], s[2]);
                else
                    count_up(to, stride, begin, end - begin, s[1], s[2]);
            });
        });
    });
}

}  // namespace

void add_random(Registry& registry) {
    registry["random"] = make_random;
    registry["arange"] = arange;
}

}  // namespace norch::random
