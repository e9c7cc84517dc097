// The dtypes, their C++ types, and the conversions of the 16-bit floats.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace norch {

enum class DType : uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean };
constexpr int DTYPES = 10;

template <class To, class From>
inline To bit_cast(From value) {
    static_assert(sizeof(To) == sizeof(From), "bit_cast needs types of one size");
    To out;
    std::memcpy(&out, &value, sizeof out);
    return out;
}

struct half {
    uint16_t bits;
};

struct bfloat16 {
    uint16_t bits;
};

// The casts round to nearest, ties to even, keep subnormals, and are free of branches so that loops over them vectorise.

inline float to_float(bfloat16 x) { return bit_cast<float>(uint32_t(x.bits) << 16); }

inline bfloat16 to_bfloat16(float x) {
    uint32_t u = bit_cast<uint32_t>(x);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
    uint32_t quiet_nan = (u >> 16) | 0x40;
    return {uint16_t((u & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded)};
}

inline float to_float(half x) {
    // F. Giesen, "half to float done quick": shift exponent and mantissa into place, then mend the exponent.
    uint32_t magnitude = (uint32_t(x.bits) & 0x7fffu) << 13;
    uint32_t sign = (uint32_t(x.bits) & 0x8000u) << 16;
    uint32_t exponent = magnitude & 0x0f800000u;
    uint32_t normal = magnitude + 0x38000000u;
    uint32_t special = magnitude + 0x70000000u;
    uint32_t subnormal = bit_cast<uint32_t>(bit_cast<float>(magnitude + 0x38800000u) - bit_cast<float>(0x38800000u));
    uint32_t out = exponent == 0x0f800000u ? special : exponent == 0 ? subnormal : normal;
    return bit_cast<float>(out | sign);
}

inline half to_half(float x) {
    uint32_t u = bit_cast<uint32_t>(x);
    uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t magnitude = u & 0x7fffffffu;
    uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1)) >> 13;
    uint32_t subnormal = bit_cast<uint32_t>(bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    uint32_t out = magnitude >= 0x47800000u ? special : magnitude < 0x38800000u ? subnormal : normal;
    return {uint16_t(out | sign)};
}

/// What a dtype is computed in: 16-bit floats in float32, everything else in itself.
template <class T>
struct Compute {
    using type = T;
};
template <>
struct Compute<half> {
    using type = float;
};
template <>
struct Compute<bfloat16> {
    using type = float;
};
template <class T>
using compute_t = typename Compute<T>::type;

/// An element as the number that it is computed in, and back.
template <class T>
inline T load(T x) {
    return x;
}
inline float load(half x) { return to_float(x); }
inline float load(bfloat16 x) { return to_float(x); }

template <class T>
inline T store(compute_t<T> x) {
    return x;
}
template <>
inline half store<half>(float x) {
    return to_half(x);
}
template <>
inline bfloat16 store<bfloat16>(float x) {
    return to_bfloat16(x);
}

inline int64_t size_of(DType dtype) {
    constexpr int64_t sizes[DTYPES] = {8, 4, 2, 2, 8, 4, 2, 1, 1, 1};
    return sizes[int(dtype)];
}

inline bool is_floating(DType dtype) { return dtype <= DType::bf16; }
inline bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

/// A type as a value: what a lambda `[]<class T>(Tag<T>)` takes.
template <class T>
struct Tag {
    using type = T;
};

/// Calls f(Tag<T>) with the C++ type of a floating dtype.
template <class F>
auto visit_floating(DType dtype, const F& f) {
    switch (dtype) {
        case DType::f64: return f(Tag<double>{});
        case DType::f32: return f(Tag<float>{});
        case DType::f16: return f(Tag<half>{});
        case DType::bf16: return f(Tag<bfloat16>{});
        default: throw std::invalid_argument("expected a floating dtype");
    }
}

/// The same for any dtype.
template <class F>
auto visit(DType dtype, const F& f) {
    switch (dtype) {
        case DType::i64: return f(Tag<int64_t>{});
        case DType::i32: return f(Tag<int32_t>{});
        case DType::i16: return f(Tag<int16_t>{});
        case DType::i8: return f(Tag<int8_t>{});
        case DType::u8: return f(Tag<uint8_t>{});
        case DType::boolean: return f(Tag<bool>{});
        default: return visit_floating(dtype, f);
    }
}

/// By the size of an element alone, for what only moves bits.
template <class F>
auto visit_bits(int64_t itemsize, const F& f) {
    switch (itemsize) {
        case 1: return f(Tag<uint8_t>{});
        case 2: return f(Tag<uint16_t>{});
        case 4: return f(Tag<uint32_t>{});
        default: return f(Tag<uint64_t>{});
    }
}

}  // namespace norch
