// Steps of optimisers: one pass over all parameters of a group.
#include <algorithm>
#include <new>

#include "common/optimizer_rules.h"
#include "runtime/families.h"
#include "runtime/flushing.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"
#include "runtime/tile.h"

namespace norch::nn {
namespace {

constexpr int64_t RULE_BYTES = 128;  // the largest rule

constexpr int64_t PIECE = 1024;      // elements of 16-bit floats that are float32 at a time

/// What a rule does in float32 or float64, for the driver below.
struct Step {
    void (*prepare)(void* rule, const StepFlags& flags, const Scalar* scalars);
    /// n elements of one parameter: `at` are the parameter, those states that are there, and the gradient, which is only read.
    void (*run)(const void* rule, char* const* at, int64_t n);
};

template <class T, class Rule, unsigned PRESENT>
struct StepLoop {
    static_assert(sizeof(Rule) <= RULE_BYTES);

    static void prepare(void* rule, const StepFlags& flags, const Scalar* scalars) { new (rule) Rule(flags, scalars); }

    static void run(const void* given, char* const* at, int64_t n) {
        const Rule rule = *static_cast<const Rule*>(given);
        constexpr int first = 1, second = first + (PRESENT & 1), third = second + (PRESENT >> 1 & 1);
        const auto list = [at](int i) { return reinterpret_cast<T*>(at[i]); };
        T* p = list(0);
        T* a = PRESENT & 1 ? list(first) : nullptr;
        T* b = PRESENT & 2 ? list(second) : nullptr;
        T* c = PRESENT & 4 ? list(third) : nullptr;
        const T* g = list(third + (PRESENT >> 2 & 1));
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) {
            T x = p[i], s = T(0), t = T(0), u = T(0);
            if constexpr (PRESENT & 1) s = a[i];
            if constexpr (PRESENT & 2) t = b[i];
            if constexpr (PRESENT & 4) u = c[i];
            rule.template apply<PRESENT>(x, s, t, u, g[i]);
            p[i] = x;
            if constexpr (PRESENT & 1) a[i] = s;
            if constexpr (PRESENT & 2) b[i] = t;
            if constexpr (PRESENT & 4) c[i] = u;
        }
    }
};

/// How many elements each parameter has.
struct Sizes {
    static constexpr int64_t LARGE = 16 << 10;
    std::vector<int64_t> parameters;
    int64_t total = 0, small = 0;  // of all, and of those that are not large

    Sizes(const Request& request, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
            const int64_t n = request.operands[i].numel();
            parameters.push_back(n);
            total += n;
            if (n < LARGE) small += n;
        }
    }

    /// Where that part of n elements ends which is `of_total` elements of all.
    int64_t part(int64_t n, int64_t of_total) const {
        return of_total == total ? n : int64_t(double(n) * double(of_total) / double(total)) / 64 * 64;
    }
};

/// Calls body(i, begin, n) for pieces of all parameters: n elements of parameter i from element `begin` on. Each thread
/// has the same part of every large parameter, as it has in products: its part of the gradient is in its own cache.
template <class Body>
void for_pieces(const Sizes& sizes, double ns, const Body& body) {
    parallel_for(
        sizes.total, ns,
        [&](int64_t begin, int64_t end) {
            // Averages whose gradients stay 0, as of words that are not seen again, would be subnormal for ever.
            const FloatingMode flushing(floating_mode() | FLUSH);
            int64_t before = 0;  // in the row of those that are not large
            for (size_t i = 0; i < sizes.parameters.size(); ++i) {
                const int64_t n = sizes.parameters[i];
                const bool is_large = n >= Sizes::LARGE;
                const int64_t row = is_large ? n : sizes.small, shift = is_large ? 0 : before;
                const int64_t first = std::max<int64_t>(0, sizes.part(row, begin) - shift);
                const int64_t last = std::min(n, sizes.part(row, end) - shift);
                if (last > first) body(i, first, last - first);
                if (!is_large) before += n;
            }
        },
        64);
}

/// A step in 16-bit floats, of which a piece at a time is float32.
void run_staged(const Step& step, const void* rule, DType dtype, char* const* at, int lists, int64_t n) {
    alignas(64) float piece[LISTS<7>][PIECE];
    char* seen[LISTS<7>];
    for (int k = 0; k < lists; ++k) seen[k] = reinterpret_cast<char*>(piece[k]);
    for (int64_t i = 0; i < n; i += PIECE) {
        const int64_t count = std::min(PIECE, n - i), done = i * size_of(dtype);
        for (int k = 0; k < lists; ++k) convert_line(at[k] + done, dtype, count, seen[k], DType::f32);
        step.run(rule, seen, count);
        for (int k = 0; k < lists - 1; ++k) convert_line(seen[k], DType::f32, count, at[k] + done, dtype);
    }
}

[[gnu::cold]] KernelPtr step_kernel(const Request& request, int lists, const Step& step) {
    const int64_t count = request.attrs.integer("count"), size = size_of(request.operands[0].dtype);
    const DType dtype = request.operands[0].dtype;
    const StepFlags flags(request.attrs);
    const Sizes sizes(request, count);
    // What an element costs: mostly the memory that is read, and written but for the gradient.
    const double ns = 0.06 * (2 * lists - 1) * double(size) / 4;
    return make_kernel(ns * double(sizes.total), [=](char* const* data, const Scalar* scalars) {
        alignas(16) char rule[RULE_BYTES];
        step.prepare(rule, flags, scalars + count * lists);
        for_pieces(sizes, ns, [&](size_t i, int64_t begin, int64_t n) {
            char* at[LISTS<7>];
            for (int k = 0; k < lists; ++k) at[k] = data[i + size_t(k * count)] + begin * size;
            is_half(dtype) ? run_staged(step, rule, dtype, at, lists, n) : step.run(rule, at, n);
        });
    });
}

struct Make {
    template <template <class> class Rule, unsigned PRESENT, bool = false>
    static KernelPtr step(const Request& request) {
        constexpr int lists = LISTS<PRESENT>;
        if (!suits_step(request, request.attrs.integer("count"), lists, Rule<float>::SCALARS)) return nullptr;
        const auto of = [&]<class T>(Tag<T>) -> KernelPtr {
            using Loop = StepLoop<T, Rule<T>, PRESENT>;
            return step_kernel(request, lists, {Loop::prepare, Loop::run});
        };
        return request.operands[0].dtype == DType::f64 ? of(Tag<double>{}) : of(Tag<float>{});
    }
};

}  // namespace

void add_optimizers(Registry& registry) { add_optimizer_steps<Make>(registry); }

}  // namespace norch::nn
