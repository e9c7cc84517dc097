// Groups of element types that are computed alike. One kernel serves a group and asks for the dtype where it loads and
// stores, which costs nothing beside the memory, where a kernel for each type would be most of the module.
#pragma once

#include "runtime/device.cuh"

namespace norch {

struct Halves {};    // float16, bfloat16
struct Integers {};  // of at most 32 bits, and bools, which are bytes
struct Anything {};
struct Widened {};   // what becomes float32 in one step: itself, Halves, bools, integers of 8, 32 and 64 bits
struct Narrow {};    // of these what is exact in Halves, and they

template <>
struct Compute<Halves> {
    using type = float;
};
template <>
struct Compute<Integers> {
    using type = int32_t;
};
template <>
struct Compute<Widened> {
    using type = float;
};
template <>
struct Compute<Narrow> {
    using type = float;
};

/// How many elements a thread loads at once: 16 bytes of them, and no more than 8; 8 of a group, 4 where float32 is in it.
template <class Group>
constexpr int PACKET = sizeof(Group) == 1 ? 8 : 16 / int(sizeof(Group));
template <>
constexpr int PACKET<Widened> = 4;

/// Calls f(Tag<T>) with the type of a dtype of a group; a type is a group of itself alone.
template <class Group, class F>
__device__ inline void with_type(DType dtype, const F& f) {
    if constexpr (std::is_same_v<Group, Halves>) {
        if (dtype == DType::f16) f(Tag<__half>{});
        else f(Tag<__nv_bfloat16>{});
    } else if constexpr (std::is_same_v<Group, Integers>) {
        if (dtype == DType::i32) f(Tag<int32_t>{});
        else if (dtype == DType::i16) f(Tag<int16_t>{});
        else if (dtype == DType::i8) f(Tag<int8_t>{});
        else f(Tag<uint8_t>{});
    } else if constexpr (std::is_same_v<Group, Narrow>) {
        if (dtype <= DType::bf16) with_type<Halves>(dtype, f);
        else if (dtype == DType::i8) f(Tag<int8_t>{});
        else f(Tag<uint8_t>{});
    } else if constexpr (std::is_same_v<Group, Widened>) {
        if (dtype == DType::f32) f(Tag<float>{});
        else if (dtype <= DType::bf16) with_type<Halves>(dtype, f);
        else if (dtype == DType::i64) f(Tag<int64_t>{});
        else if (dtype == DType::i32) f(Tag<int32_t>{});
        else if (dtype == DType::i8) f(Tag<int8_t>{});
        else f(Tag<uint8_t>{});
    } else if constexpr (std::is_same_v<Group, Anything>) {
        if (dtype == DType::f64) f(Tag<double>{});
        else if (dtype == DType::f32) f(Tag<float>{});
        else if (dtype <= DType::bf16) with_type<Halves>(dtype, f);
        else if (dtype == DType::i64) f(Tag<int64_t>{});
        else with_type<Integers>(dtype, f);
    } else {
        f(Tag<Group>{});
    }
}

/// Calls f(Tag<Group>) with the group of a dtype.
template <class F>
auto visit_floating_groups(DType dtype, const F& f) {
    if (is_half(dtype)) return f(Tag<Halves>{});
    return dtype == DType::f32 ? f(Tag<float>{}) : f(Tag<double>{});
}
template <class F>
auto visit_groups(DType dtype, const F& f) {
    if (is_floating(dtype)) return visit_floating_groups(dtype, f);
    return dtype == DType::i64 ? f(Tag<int64_t>{}) : f(Tag<Integers>{});
}

}  // namespace norch
