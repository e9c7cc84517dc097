// copy (with every cast), fill, where: what moves elements and computes nothing.
#include "elementwise/loop.h"
#include "runtime/widen.h"

namespace norch::elementwise {
namespace {

template <class To, class From>
struct Cast {
    static To apply(From x) {
        if constexpr (std::is_same_v<To, From>) {
            return x;
        } else if constexpr (std::is_same_v<To, bool>) {
            return load(x) != 0;
        } else if constexpr (std::is_same_v<compute_t<From>, bool>) {
            return store<To>(compute_t<To>(x ? 1 : 0));
        } else if constexpr (std::is_floating_point_v<compute_t<From>> && std::is_integral_v<To>) {
            // C leaves a float beyond the integer's range open; by way of a wider integer small ones wrap around.
            using Promoted = std::conditional_t<(sizeof(To) < 4), int32_t, To>;
            return To(Promoted(load(x)));
        } else {
            return store<To>(compute_t<To>(load(x)));
        }
    }
};

template <class To, class From>
void cast_loop(char* const* p, unsigned broadcast, int64_t n) {
    To* out = reinterpret_cast<To*>(p[0]);
    const From* x = reinterpret_cast<const From*>(p[1]);
    if (broadcast & 2) {
        const To value = Cast<To, From>::apply(*x);
        for (int64_t i = 0; i < n; ++i) out[i] = value;
        return;
    }
    if constexpr (HAS_HALF && std::is_same_v<To, half> && std::is_same_v<From, float>) return narrow_row(x, n, out);
    if constexpr (HAS_HALF && std::is_same_v<To, float> && std::is_same_v<From, half>) return widen_row(x, n, out);
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

KernelPtr copy(const Request& request) {
    DType to = request.operands[0].dtype, from = request.operands[1].dtype;
    Loop loop = visit(to, [&]<class To>(Tag<To>) {
        return visit(from, []<class From>(Tag<From>) -> Loop { return cast_loop<To, From>; });
    });
    return elementwise_kernel(request, loop, 0.05 * double(size_of(to) + size_of(from)) / 2, BITS | TAKES_BROADCAST);
}

KernelPtr where(const Request& request) {
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
