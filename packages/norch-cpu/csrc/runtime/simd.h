// Bytes of a vector register, hints for loops that vectorise, and short vectors in the compiler's own notation (GCC and
// Clang), for loops that do not vectorise by themselves: too few iterations, or lanes that change places.
#pragma once

#ifdef NORCH_SHARED
#error "What is compiled once for all instruction sets must not depend on one"
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__clang__)
#define NORCH_UNROLL _Pragma("unroll")
// No iteration of the loop depends on another: its output is either an input or apart from it.
#define NORCH_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define NORCH_UNROLL _Pragma("GCC unroll 24")
#define NORCH_INDEPENDENT _Pragma("GCC ivdep")
#endif
// What a loop calls must be in it: else it does not vectorise.
#define NORCH_INLINE inline __attribute__((always_inline))
#define NORCH_INLINE_LAMBDA __attribute__((always_inline))

namespace norch {

#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64;
#elif defined(__AVX__)
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif
/// Elements of one vector register.
template <class T>
constexpr int SIMD_WIDTH = VECTOR_BYTES / int(sizeof(T));

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

/// The compiler loads it into a register once, where each that uses it could read it from memory.
template <class V>
NORCH_INLINE void load_once(V& vector) {
#if defined(__x86_64__)
    asm("" : "+v"(vector));
#elif defined(__aarch64__)
    asm("" : "+w"(vector));
#else
    (void)vector;
#endif
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

template <class I, int... J>
inline auto lanes_below(I n, std::integer_sequence<int, J...>) {
    return vector_t<I, int(sizeof...(J))>{I(J)...} < n;
}
/// Which lanes of numbers of type T are the first n, for a choice between vectors.
template <class T, int LANES>
inline auto first_lanes(int n) {
    using I = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
    return lanes_below<I>(I(n), std::make_integer_sequence<int, LANES>());
}

template <int BY, class V, int... I>
inline V rotated(V v, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(v, v, ((I + BY) % int(sizeof...(I)))...);
}
/// Lane BY first, those before it behind the others.
template <int BY, int LANES, class V>
inline V rotate(V v) {
    return rotated<BY>(v, std::make_integer_sequence<int, LANES>());
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
