// Short vectors in the compiler's own notation (GCC and Clang), for loops that do not vectorise by themselves: too few
// iterations, or lanes that change places.
#pragma once

#include <cstring>
#include <utility>

#if defined(__clang__)
#define NORCH_UNROLL _Pragma("unroll")
#else
#define NORCH_UNROLL _Pragma("GCC unroll 16")
#endif

namespace norch {

#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64;
#elif defined(__AVX__)
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif

template <class T, int LANES>
struct Vector {
    typedef T type __attribute__((vector_size(LANES * sizeof(T))));
};
template <class T, int LANES>
using vector_t = typename Vector<T, LANES>::type;

template <int LANES, class T>
inline vector_t<T, LANES> load_vector(const T* p) {
    vector_t<T, LANES> out;
    std::memcpy(&out, p, sizeof out);
    return out;
}

template <class T, class V>
inline void store_vector(T* p, V v) {
    std::memcpy(p, &v, sizeof v);
}

template <bool HIGH, class V, int... I>
inline V interleaved(V a, V b, std::integer_sequence<int, I...>) {
    constexpr int lanes = sizeof...(I), first = HIGH ? lanes / 2 : 0;
    return __builtin_shufflevector(a, b, (first + I / 2 + (I % 2 ? lanes : 0))...);
}
/// a and b lane by lane in turn: the lower halves of both, or the higher.
template <bool HIGH, int LANES, class V>
inline V interleave(V a, V b) {
    return interleaved<HIGH>(a, b, std::make_integer_sequence<int, LANES>());
}

template <int FIRST, class V, int... I>
inline V every_second(V a, V b, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(a, b, (2 * I + FIRST)...);
}
/// Of the lanes of a, then b: those with even numbers (FIRST 0), or odd ones (1).
template <int FIRST, int LANES, class V>
inline V deinterleave(V a, V b) {
    return every_second<FIRST>(a, b, std::make_integer_sequence<int, LANES>());
}

}  // namespace norch
