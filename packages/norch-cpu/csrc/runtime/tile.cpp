#include "runtime/tile.h"

#include <algorithm>
#include <cstring>

#include "runtime/streams.h"
#include "runtime/widen.h"

namespace norch {
namespace {

#if defined(__clang__) || __GNUC__ >= 12
#define NORCH_SHUFFLE 1

constexpr int64_t FEW_PLACES = 1024;  // bytes from a line to the next, of 4,096 that a way of the first cache has

/// Every second S lanes of rows i and i + S change places.
template <int S, class V, int... I>
NORCH_INLINE void exchange_lanes(V& a, V& b, std::integer_sequence<int, I...>) {
    constexpr int N = sizeof...(I);
    const V first = __builtin_shufflevector(a, b, (I & S ? N + I - S : I)...);
    b = __builtin_shufflevector(a, b, (I & S ? N + I : I + S)...);
    a = first;
}

template <int S, int N, class V>
NORCH_INLINE void exchange(V (&rows)[N]) {
    NORCH_UNROLL
    for (int i = 0; i < N; ++i)
        if (!(i & S)) exchange_lanes<S>(rows[i], rows[i + S], std::make_integer_sequence<int, N>());
}

/// N x N elements, columns to rows.
template <class T, int N, bool STREAMS>
NORCH_INLINE void transpose_block(char* to, int64_t to_row, const char* from, int64_t from_column) {
    vector_t<T, N> rows[N];
    NORCH_UNROLL
    for (int i = 0; i < N; ++i) std::memcpy(&rows[i], from + i * from_column, sizeof rows[i]);
    exchange<1>(rows);
    exchange<2>(rows);
    if constexpr (N > 4) exchange<4>(rows);
    if constexpr (N > 8) exchange<8>(rows);
    NORCH_UNROLL
    for (int i = 0; i < N; ++i) {
        if constexpr (STREAMS) stream_vector(to + i * to_row, rows[i]);
        else std::memcpy(to + i * to_row, &rows[i], sizeof rows[i]);
    }
}
#endif

template <class To, class From, class F>
void move_tile(Plane to, Plane from, int64_t rows, int64_t columns, F convert) {
    if (to.column == sizeof(To) && from.column == sizeof(From)) {
        for (int64_t i = 0; i < rows; ++i) {
            To* out = reinterpret_cast<To*>(to.data + i * to.row);
            const From* x = reinterpret_cast<const From*>(from.data + i * from.row);
            if constexpr (std::is_same_v<To, bfloat16> || (HAS_HALF && std::is_same_v<To, half>)) narrow_row(x, columns, out);
            else if constexpr (std::is_same_v<From, bfloat16> || (HAS_HALF && std::is_same_v<From, half>)) widen_row(x, columns, out);
            else
                for (int64_t j = 0; j < columns; ++j) out[j] = convert(x[j]);
        }
        return;
    }
    // Along the shorter strides of the source inside, in pieces that stay in the cache.
    constexpr int64_t PIECE = 16;
    for (int64_t j0 = 0; j0 < columns; j0 += PIECE) {
        int64_t j1 = std::min(columns, j0 + PIECE);
        for (int64_t i = 0; i < rows; ++i) {
            char* out = to.data + i * to.row;
            const char* x = from.data + i * from.row;
            for (int64_t j = j0; j < j1; ++j)
                *reinterpret_cast<To*>(out + j * to.column) =
                    convert(*reinterpret_cast<const From*>(x + j * from.column));
        }
    }
}

template <class T>
void copy_elements(Plane to, Plane from, int64_t rows, int64_t columns) {
#ifdef NORCH_SHUFFLE
    if constexpr (sizeof(T) == 4) {
        constexpr int L = SIMD_WIDTH<float>, HALF = L / 2;
        if (to.column == 4 && from.column == 8 && columns > HALF) {  // every second element
            for (int64_t i = 0; i < rows; ++i) {
                T* out = reinterpret_cast<T*>(to.data + i * to.row);
                const T* x = reinterpret_cast<const T*>(from.data + i * from.row);
                int64_t j = 0;  // the last one may have nothing behind it
                for (; j + L < columns; j += L)
                    store_vector(out + j, deinterleave<0, L>(load_vector<L>(x + 2 * j), load_vector<L>(x + 2 * j + L)));
                for (; j + HALF < columns; j += HALF)
                    store_vector(out + j, deinterleave<0, HALF>(load_vector<HALF>(x + 2 * j), load_vector<HALF>(x + 2 * j + HALF)));
                for (; j < columns; ++j) out[j] = x[2 * j];
            }
            return;
        }
    }
#endif
    move_tile<T, T>(to, from, rows, columns, [](T x) { return x; });
}

#if defined(NORCH_SHUFFLE) && (defined(__SSSE3__) || defined(__aarch64__))
typedef uint8_t Bytes __attribute__((vector_size(16)));

/// Bytes FIRST, FIRST + STEP, ... of four vectors.
template <int FIRST, int STEP, int... I>
inline Bytes every(const Bytes (&v)[4], std::integer_sequence<int, I...>) {
    const Bytes two = __builtin_shufflevector(v[0], v[1], ((FIRST + STEP * I) & 31)...);
    const Bytes rest = __builtin_shufflevector(v[2], v[3], ((FIRST + STEP * I) & 31)...);
    return __builtin_shufflevector(two, rest, ((FIRST + STEP * I < 32 ? 0 : 16) + I)...);
}

/// Sixteen pixels of K bytes at a time to K lines; returns how many.
template <int K, int... C>
int64_t split_bytes(const uint8_t* pixels, uint8_t* const* lines, int64_t n, std::integer_sequence<int, C...>) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        Bytes v[4] = {};
        NORCH_UNROLL
        for (int k = 0; k < K; ++k) v[k] = load_vector<16>(pixels + K * i + 16 * k);
        (store_vector(lines[C] + i, every<C, K>(v, std::make_integer_sequence<int, 16>())), ...);
    }
    return i;
}
#endif

#ifdef NORCH_SHUFFLE
/// Columns to rows by whole blocks. Where the lines that are written fall upon few places of the cache, each is finished before
/// the next, else each that is read.
template <class T, int SIDE, bool STREAMS>
void transpose_blocks(Plane to, Plane from, int64_t rows, int64_t columns) {
    constexpr int64_t SIZE = sizeof(T);
    const auto at = [&](int64_t i, int64_t j) NORCH_INLINE_LAMBDA {
        transpose_block<T, SIDE, STREAMS>(to.data + i * to.row + j * SIZE, to.row, from.data + i * SIZE + j * from.column, from.column);
    };
    if (to.row % FEW_PLACES == 0) {
        for (int64_t i = 0; i < rows; i += SIDE)
            for (int64_t j = 0; j < columns; j += SIDE) at(i, j);
    } else {
        for (int64_t j = 0; j < columns; j += SIDE)
            for (int64_t i = 0; i < rows; i += SIDE) at(i, j);
    }
}

/// The same, and what is left at the edges.
template <class T, int SIDE>
void transpose_tile(Plane to, Plane from, int64_t rows, int64_t columns, [[maybe_unused]] bool streams) {
    constexpr int64_t SIZE = sizeof(T);
    const int64_t i_end = rows / SIDE * SIDE, j_end = columns / SIDE * SIDE;
    if constexpr (SIDE * SIZE == STREAMED_BYTES) {
        streams = streams && (reinterpret_cast<uintptr_t>(to.data) | uintptr_t(to.row)) % (SIDE * SIZE) == 0;
        if (streams) transpose_blocks<T, SIDE, true>(to, from, i_end, j_end);
        else transpose_blocks<T, SIDE, false>(to, from, i_end, j_end);
    } else {
        transpose_blocks<T, SIDE, false>(to, from, i_end, j_end);
    }
    const Plane right{to.data + j_end * SIZE, to.row, SIZE}, right_from{from.data + j_end * from.column, SIZE, from.column};
    const Plane below{to.data + i_end * to.row, to.row, SIZE}, below_from{from.data + i_end * SIZE, SIZE, from.column};
    if constexpr (SIDE > 8) {
        if (j_end < columns) transpose_tile<T, 8>(right, right_from, rows, columns - j_end, false);
        if (i_end < rows) transpose_tile<T, 8>(below, below_from, rows - i_end, j_end, false);
    } else {
        if (j_end < columns) copy_elements<T>(right, right_from, rows, columns - j_end);
        if (i_end < rows) copy_elements<T>(below, below_from, rows - i_end, j_end);
    }
}
#endif

/// N bytes from the front and as many up to the end, which may overlap.
template <int64_t N>
inline void copy_ends(char* to, const char* from, int64_t bytes) {
    char first[N], last[N];
    std::memcpy(first, from, N);
    std::memcpy(last, from + bytes - N, N);
    std::memcpy(to, first, N);
    std::memcpy(to + bytes - N, last, N);
}

/// Pieces of N bytes, the last of which may overlap that before it.
template <int64_t N>
inline void copy_pieces(char* to, const char* from, int64_t bytes) {
    for (int64_t k = 0; k + N < bytes; k += N) std::memcpy(to + k, from + k, N);
    std::memcpy(to + bytes - N, from + bytes - N, N);
}

void copy_rows(Plane to, Plane from, int64_t rows, int64_t bytes) {
    const auto each = [&](auto copy) {
        for (int64_t i = 0; i < rows; ++i) copy(to.data + i * to.row, from.data + i * from.row);
    };
    if (bytes > 256) return each([=](char* out, const char* x) { std::memcpy(out, x, size_t(bytes)); });
    if (bytes >= VECTOR_BYTES) return each([=](char* out, const char* x) { copy_pieces<VECTOR_BYTES>(out, x, bytes); });
    if (bytes >= 16) return each([=](char* out, const char* x) { copy_pieces<16>(out, x, bytes); });
    if (bytes >= 8) return each([=](char* out, const char* x) { copy_ends<8>(out, x, bytes); });
    if (bytes >= 4) return each([=](char* out, const char* x) { copy_ends<4>(out, x, bytes); });
    each([=](char* out, const char* x) {
        for (int64_t k = 0; k < bytes; ++k) out[k] = x[k];
    });
}

/// n elements of each of K lines, in turn, or apart again.
template <class T, int K, bool APART>
void zip_lines(char* zipped, char* lines, int64_t line, int64_t n) {
    T* both = reinterpret_cast<T*>(zipped);
    T* of[K];
    for (int k = 0; k < K; ++k) of[k] = reinterpret_cast<T*>(lines + k * line);
    int64_t done = 0;
#if defined(NORCH_SHUFFLE) && (defined(__SSSE3__) || defined(__aarch64__))
    if constexpr (APART && sizeof(T) == 1) done = split_bytes<K>(both, of, n, std::make_integer_sequence<int, K>());
#endif
    NORCH_INDEPENDENT
    for (int64_t i = done; i < n; ++i) {
        NORCH_UNROLL
        for (int k = 0; k < K; ++k) {
            if constexpr (APART) of[k][i] = both[K * i + k];
            else both[K * i + k] = of[k][i];
        }
    }
}

/// Pixels of 2 to 4 channels, from planes or to them; false where these are not such.
template <class T>
bool copy_pixels(Plane to, Plane from, int64_t rows, int64_t columns) {
    constexpr int64_t size = sizeof(T);
    const auto zip = [&](int64_t channels, auto apart, char* zipped, char* lines, int64_t line, int64_t n) {
        switch (channels) {
            case 2: zip_lines<T, 2, apart.value>(zipped, lines, line, n); break;
            case 3: zip_lines<T, 3, apart.value>(zipped, lines, line, n); break;
            default: zip_lines<T, 4, apart.value>(zipped, lines, line, n);
        }
    };
    if (to.column == size && to.row == columns * size && from.row == size && columns >= 2 && columns <= 4) {
        zip(columns, std::false_type{}, to.data, from.data, from.column, rows);
        return true;
    }
    if (from.row == size && from.column == rows * size && to.column == size && rows >= 2 && rows <= 4) {
        zip(rows, std::true_type{}, from.data, to.data, to.row, columns);
        return true;
    }
    return false;
}

}  // namespace

void copy_tile(const Plane& to_plane, const Plane& from_plane, int64_t rows, int64_t columns, int64_t size,
               [[maybe_unused]] bool streams) {
    const Plane to = to_plane, from = from_plane;  // which what is written cannot change
    if (to.row == size && to.column != size)  // columns are what lies together
        return copy_tile({to.data, to.column, to.row}, {from.data, from.column, from.row}, columns, rows, size, streams);
    if (to.column == size && from.column == size) return copy_rows(to, from, rows, columns * size);
    if (to.column == size && from.column == 0) {  // one element, repeated
        visit_bits(size, [&]<class T>(Tag<T>) {
            for (int64_t i = 0; i < rows; ++i) {
                const T value = *reinterpret_cast<const T*>(from.data + i * from.row);
                std::fill_n(reinterpret_cast<T*>(to.data + i * to.row), columns, value);
            }
        });
        return;
    }
    const bool are_pixels = visit_bits(size, [&]<class T>(Tag<T>) { return copy_pixels<T>(to, from, rows, columns); });
    if (are_pixels) return;
#ifdef NORCH_SHUFFLE
    if (to.column == size && from.row == size) {
        constexpr bool IS_WIDE = VECTOR_BYTES == 64;
        if (size == 8) return transpose_tile<uint64_t, IS_WIDE ? 8 : 4>(to, from, rows, columns, streams);
        if (size == 4) return transpose_tile<uint32_t, IS_WIDE ? 16 : 8>(to, from, rows, columns, streams);
        if (size == 2) return transpose_tile<uint16_t, 8>(to, from, rows, columns, streams);
    }
#endif
    visit_bits(size, [&]<class T>(Tag<T>) { copy_elements<T>(to, from, rows, columns); });
}

void load_tile(const Plane& to, const Plane& from, int64_t rows, int64_t columns, int64_t size, Convert convert) {
    const auto upcast = [](auto x) { return to_float(x); };
    switch (convert) {
        case Convert::none: return copy_tile(to, from, rows, columns, size);
        case Convert::half: return move_tile<float, half>(to, from, rows, columns, upcast);
        case Convert::bfloat16: return move_tile<float, bfloat16>(to, from, rows, columns, upcast);
    }
}

void store_tile(const Plane& to, const Plane& from, int64_t rows, int64_t columns, int64_t size, Convert convert) {
    constexpr int64_t ROOM = 4096;
    if (convert != Convert::none && to.column != size && from.column == sizeof(float) && columns <= ROOM) {  // turned over when narrow
        alignas(64) uint16_t narrow[ROOM];
        const Plane room{reinterpret_cast<char*>(narrow), columns * 2, 2};
        for (int64_t i = 0, count; i < rows; i += count) {
            count = std::min(rows - i, ROOM / columns);
            store_tile(room, {from.data + i * from.row, from.row, from.column}, count, columns, size, convert);
            copy_tile({to.data + i * to.row, to.row, to.column}, room, count, columns, size);
        }
        return;
    }
    switch (convert) {
        case Convert::none: return copy_tile(to, from, rows, columns, size);
        case Convert::half: return move_tile<half, float>(to, from, rows, columns, to_half);
        case Convert::bfloat16: return move_tile<bfloat16, float>(to, from, rows, columns, to_bfloat16);
    }
}

void convert_line(const char* from, DType given, int64_t n, char* to, DType wanted) {
    char* data = const_cast<char*>(from);
    if (given == wanted) return std::memcpy(to, from, size_t(n * size_of(given))), void();
    if (is_half(given) && wanted == DType::f32) return load_tile({to, 0, 4}, {data, 0, 2}, 1, n, 2, conversion_of(given));
    if (is_half(wanted) && given == DType::f32) return store_tile({to, 0, 2}, {data, 0, 4}, 1, n, 2, conversion_of(wanted));
    if (given == DType::f32) return std::copy_n(reinterpret_cast<const float*>(from), n, reinterpret_cast<double*>(to)), void();
    if (wanted == DType::f32) return std::copy_n(reinterpret_cast<const double*>(from), n, reinterpret_cast<float*>(to)), void();
    constexpr int64_t PIECE = 256;  // 16-bit floats and float64 by way of float32
    float piece[PIECE];
    for (int64_t i = 0; i < n; i += PIECE) {
        const int64_t count = std::min(PIECE, n - i);
        convert_line(from + i * size_of(given), given, count, reinterpret_cast<char*>(piece), DType::f32);
        convert_line(reinterpret_cast<const char*>(piece), DType::f32, count, to + i * size_of(wanted), wanted);
    }
}

}  // namespace norch
