// copy (with every cast), fill, where: what moves elements and computes nothing.
#include <algorithm>

#include "elementwise/loop.h"
#include "elementwise/small_integers.h"
#include "runtime/parallel.h"
#include "runtime/streams.h"
#include "runtime/tile.h"
#include "runtime/widen.h"

namespace norch::elementwise {
namespace {

/// A bool as it is read: of `bool` itself no loop vectorises.
enum class Byte : uint8_t {};

template <class To, class From>
struct Cast {
    static To apply(From x) {
        if constexpr (std::is_same_v<To, From>) {
            return x;
        } else if constexpr (std::is_same_v<To, bool>) {
            return load(x) != 0;
        } else if constexpr (std::is_same_v<From, Byte> && std::is_same_v<To, half>) {
            return half{uint16_t(x != Byte{} ? 0x3c00 : 0)};
        } else if constexpr (std::is_same_v<From, Byte>) {
            return store<To>(compute_t<To>(int32_t(x != Byte{})));
        } else if constexpr (std::is_floating_point_v<compute_t<From>> && std::is_integral_v<To>) {
            // C leaves a float beyond the integer's range open; by way of a wider integer small ones wrap around.
            using Promoted = std::conditional_t<(sizeof(To) < 4), int32_t, To>;
            return To(Promoted(load(x)));
        } else {
            return store<To>(compute_t<To>(load(x)));
        }
    }
};

#if defined(__AVX512DQ__)
constexpr bool CONVERTS_INT64 = true;
#else
constexpr bool CONVERTS_INT64 = false;
#endif

/// By way of doubles, which small numbers are exactly, else one by one.
template <class To>
void cast_int64(const int64_t* x, int64_t n, To* out) {
    constexpr int64_t BLOCK = 1024;
    for (int64_t begin = 0; begin < n; begin += BLOCK, x += BLOCK, out += BLOCK) {
        const int64_t size = std::min(n - begin, BLOCK);
        if (SmallIntegers::fit(x, size)) {
            NORCH_INDEPENDENT
            for (int64_t i = 0; i < size; ++i) out[i] = To(SmallIntegers::of(x[i]));
        } else {
            for (int64_t i = 0; i < size; ++i) out[i] = To(x[i]);
        }
    }
}

/// float16 goes by way of float32, which holds what it holds.
template <class To, class From>
constexpr bool IS_STAGED = (std::is_same_v<To, half> && !std::is_same_v<From, float> && !std::is_same_v<From, half>) ||
                           (std::is_same_v<From, half> && !std::is_same_v<To, float> && !std::is_same_v<To, half>);

template <class To, class From>
__attribute__((noinline)) void cast_loop(char* const* p, unsigned broadcast, int64_t n) {
    To* out = reinterpret_cast<To*>(p[0]);
    const From* x = reinterpret_cast<const From*>(p[1]);
    if (broadcast & 2) {
        using Bits = std::conditional_t<sizeof(To) == 2, uint16_t, To>;  // GCC copies structs of two bytes one by one
        const auto value = bit_cast<Bits>(Cast<To, From>::apply(*x));
        std::fill_n(reinterpret_cast<Bits*>(out), n, value);
        return;
    }
    if constexpr (IS_STAGED<To, From> && !std::is_same_v<From, Byte>) {
        constexpr int64_t BLOCK = 256;
        float block[BLOCK];
        char* const between = reinterpret_cast<char*>(block);
        for (int64_t i = 0; i < n; i += BLOCK) {
            char* const first[] = {between, p[1] + i * int64_t(sizeof(From))};
            char* const second[] = {p[0] + i * int64_t(sizeof(To)), between};
            cast_loop<float, From>(first, 0, std::min(BLOCK, n - i));
            cast_loop<To, float>(second, 0, std::min(BLOCK, n - i));
        }
        return;
    }
    if constexpr (HAS_HALF && std::is_same_v<To, half> && std::is_same_v<From, float>) return narrow_row(x, n, out);
    if constexpr (HAS_HALF && std::is_same_v<To, float> && std::is_same_v<From, half>) return widen_row(x, n, out);
    if constexpr (SmallIntegers::HAS_VECTORS && !CONVERTS_INT64 && std::is_same_v<From, int64_t> && std::is_floating_point_v<To>)
        return cast_int64(x, n, out);
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = Cast<To, From>::apply(x[i]);
}

template <class T>
void where_loop(char* const* p, unsigned broadcast, int64_t n) {
    T* out = reinterpret_cast<T*>(p[0]);
    const uint8_t* condition = reinterpret_cast<const uint8_t*>(p[1]);
    const T* a = reinterpret_cast<const T*>(p[2]);
    const T* b = reinterpret_cast<const T*>(p[3]);
    if (broadcast & 2) {
        const T* chosen = *condition ? a : b;
        bool is_broadcast = broadcast & (*condition ? 4 : 8);
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) out[i] = chosen[is_broadcast ? 0 : i];
        return;
    }
    auto run = [&](auto first, auto second) {
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) {
            T x = first(i), y = second(i);
            out[i] = condition[i] ? x : y;
        }
    };
    auto each_a = [=](int64_t i) { return a[i]; };
    auto each_b = [=](int64_t i) { return b[i]; };
    auto one_a = [value = *a](int64_t) { return value; };
    auto one_b = [value = *b](int64_t) { return value; };
    switch (broadcast & 12) {
        case 0: return run(each_a, each_b);
        case 4: return run(one_a, each_b);
        case 8: return run(each_a, one_b);
        default: return run(one_a, one_b);
    }
}

/// Elements that change places and not their dtype: in pieces that go from one layout to the other at once.
class Moved final : public ElementwiseKernel {
public:
    Moved(const Inner& inner, Loops loops, bool is_transposed, bool are_rows, int64_t size)
        : inner_(inner), loops_(std::move(loops)), outer_dims_(loops_.ndim() - 2), size_(size) {
        rows_ = loops_.shape[size_t(outer_dims_)], columns_ = loops_.shape[size_t(outer_dims_ + 1)];
        for (size_t k = 0; k < 2; ++k) {
            row_step_[k] = loops_.strides[k][size_t(outer_dims_)], column_step_[k] = loops_.strides[k][size_t(outer_dims_ + 1)];
            if (outer_dims_) plane_step_[k] = loops_.strides[k][size_t(outer_dims_ - 1)];
        }
        if (outer_dims_) last_ = loops_.shape[size_t(outer_dims_ - 1)];
        constexpr int64_t PIECE = 2048, LARGE = 16384, SIDE = 64;  // elements
        const int64_t side = rows_ < 8 ? PIECE / rows_ : SIDE;
        piece_columns_ = std::min(columns_, is_transposed ? side : are_rows ? LARGE : PIECE);
        const int64_t piece = is_transposed ? 2 * PIECE : are_rows ? LARGE : PIECE;
        piece_rows_ = std::min(rows_, std::max<int64_t>(piece / piece_columns_, 1));
        row_pieces_ = (rows_ + piece_rows_ - 1) / piece_rows_;
        column_pieces_ = (columns_ + piece_columns_ - 1) / piece_columns_;
        items_ = loops_.numel / (rows_ * columns_) * row_pieces_ * column_pieces_;
        work = double(loops_.numel) * inner.ns;
        streams_ = loops_.numel * size >= STREAMED_FROM;
    }

    void run(char* const* data, const Scalar*) const override {
        parallel_for(items_, inner_.ns * double(piece_rows_ * piece_columns_), [&](int64_t begin, int64_t end) {
            const int64_t pieces = row_pieces_ * column_pieces_;
            int64_t piece = begin % pieces, plane = begin / pieces, ahead = 0;  // planes until more than the last dim changes
            char* at[2];
            for (int64_t i = begin; i < end; ++i) {
                if (!ahead) {
                    at[0] = data[0], at[1] = data[1];
                    loops_.move(at, outer_dims_, plane);
                    ahead = outer_dims_ ? last_ - plane % last_ : 1;
                }
                const int64_t column = piece % column_pieces_ * piece_columns_, row = piece / column_pieces_ * piece_rows_;
                const auto part = [&](int k) {
                    return Plane{at[k] + row * row_step_[k] + column * column_step_[k], row_step_[k], column_step_[k]};
                };
                copy_tile(part(0), part(1), std::min(piece_rows_, rows_ - row), std::min(piece_columns_, columns_ - column), size_,
                          streams_);
                if (++piece < pieces) continue;
                piece = 0, ++plane;
                if (--ahead) at[0] += plane_step_[0], at[1] += plane_step_[1];
            }
            if (streams_) end_streams();
        });
    }

    Inner inner() const override { return inner_; }

private:
    static constexpr int64_t STREAMED_FROM = 16 << 20;  // bytes that hardly stay in a cache

    Inner inner_;
    Loops loops_;
    bool streams_;
    int outer_dims_;
    int64_t row_step_[2], column_step_[2], plane_step_[2] = {}, last_ = 1;  // last_: of the outer dims' sizes
    int64_t size_, rows_, columns_, piece_rows_, piece_columns_, row_pieces_, column_pieces_, items_;
};

/// The same copy in larger elements, where some that lie together are one of those: the two parts of a complex number.
[[gnu::cold]] Request in_larger_elements(Request request) {
    auto& operands = request.operands;
    const auto is_whole = [&](int64_t count) {
        for (const Operand& o : operands) {
            if (o.strides.back() != 1) return false;
            for (size_t d = 0; d + 1 < o.strides.size(); ++d)
                if (o.strides[d] % count) return false;
        }
        return true;
    };
    while (operands[0].ndim() > 1) {
        const int64_t count = operands[0].shape.back(), size = count * size_of(operands[0].dtype);
        if (count < 2 || (size != 2 && size != 4 && size != 8) || !is_whole(count)) break;
        for (Operand& o : operands) {
            o.dtype = size == 2 ? DType::i16 : size == 4 ? DType::i32 : DType::i64;
            o.shape.pop_back();
            o.strides.pop_back();
            for (int64_t& stride : o.strides) stride /= count;
        }
    }
    return request;
}

/// Null where neither layout has gaps, or one element is repeated.
[[gnu::cold]] KernelPtr moved(const Request& request, const Inner& inner) {
    Loops loops = collapse(request.operands);
    const int64_t size = size_of(request.operands[0].dtype);
    const bool is_transposed = move_contiguous_dim(loops, request.operands);
    const int nd = loops.ndim();
    if (!nd || !loops.numel) return nullptr;
    const int64_t out = loops.strides[0].back(), x = loops.strides[1].back();
    const bool are_rows = out == size && x == size;
    if ((are_rows && nd == 1) || !x) return nullptr;
    if (nd == 1) {
        loops.shape.insert(loops.shape.begin(), 1);
        for (auto& strides : loops.strides) strides.insert(strides.begin(), 0);
    }
    return std::make_unique<Moved>(inner, std::move(loops), is_transposed, are_rows, size);
}

[[gnu::cold]] KernelPtr copy(const Request& request) {
    DType to = request.operands[0].dtype, from = request.operands[1].dtype;
    Loop loop = visit(to, [&]<class To>(Tag<To>) {
        return visit(from, []<class From>(Tag<From>) -> Loop {
            constexpr bool is_read = std::is_same_v<From, bool> && !std::is_same_v<To, bool>;
            return cast_loop<To, std::conditional_t<is_read, Byte, From>>;
        });
    });
    const Inner inner{loop, 0.05 * double(size_of(to) + size_of(from)) / 2, BITS | TAKES_BROADCAST, {}};
    if (to == from && !request.operands[1].is_scalar)
        if (KernelPtr kernel = moved(in_larger_elements(request), inner)) return kernel;
    return elementwise_kernel(request, loop, inner.ns, inner.flags);
}

[[gnu::cold]] KernelPtr where(const Request& request) {
    int64_t size = size_of(request.operands[0].dtype);
    Loop loop = visit_bits(size, []<class T>(Tag<T>) -> Loop { return where_loop<T>; });
    return elementwise_kernel(request, loop, 0.05 * double(size), BITS | TAKES_BROADCAST);
}

}  // namespace

void add_copying(Registry& registry) {
    registry["copy"] = copy;
    registry["fill"] = copy;  // the scalar stands for a tensor of one element
    registry["where"] = where;
}

}  // namespace norch::elementwise
