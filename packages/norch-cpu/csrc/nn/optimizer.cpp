// Steps of optimisers: one pass over all parameters of a group.
#include <algorithm>

#include "common/optimizer_rules.h"
#include "runtime/families.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"

namespace norch::nn {
namespace {

/// n elements of one parameter: `at` are the parameter, those states that are there, and the gradient.
template <class T, class Rule, unsigned PRESENT>
void step_loop(T* const* at, int64_t n, const Rule rule) {
    using C = compute_t<T>;
    constexpr int first = 1, second = first + (PRESENT & 1), third = second + (PRESENT >> 1 & 1);
    T* p = at[0];
    T* a = PRESENT & 1 ? at[first] : nullptr;
    T* b = PRESENT & 2 ? at[second] : nullptr;
    T* c = PRESENT & 4 ? at[third] : nullptr;
    const T* g = at[third + (PRESENT >> 2 & 1)];
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
        C x = load(p[i]), s = C(0), t = C(0), u = C(0);
        if constexpr (PRESENT & 1) s = load(a[i]);
        if constexpr (PRESENT & 2) t = load(b[i]);
        if constexpr (PRESENT & 4) u = load(c[i]);
        rule.template apply<PRESENT>(x, s, t, u, load(g[i]));
        p[i] = store<T>(x);
        if constexpr (PRESENT & 1) a[i] = store<T>(s);
        if constexpr (PRESENT & 2) b[i] = store<T>(t);
        if constexpr (PRESENT & 4) c[i] = store<T>(u);
    }
}

/// Where each parameter begins in the row of all of them.
std::vector<int64_t> starts_of(const Request& request, int64_t count) {
    std::vector<int64_t> starts(size_t(count) + 1);
    for (int64_t i = 0; i < count; ++i) starts[i + 1] = starts[i] + request.operands[i].numel();
    return starts;
}

/// Calls body(i, begin, n) for pieces of all parameters: n elements of parameter i from element `begin` on.
template <class Body>
void for_pieces(const std::vector<int64_t>& starts, double ns, const Body& body) {
    parallel_for(
        starts.back(), ns,
        [&](int64_t begin, int64_t end) {
            size_t i = size_t(std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin()) - 1;
            for (; begin < end; ++i) {
                int64_t stop = std::min(end, starts[i + 1]);
                if (stop > begin) body(i, begin - starts[i], stop - begin);
                begin = std::max(begin, stop);
            }
        },
        64);
}

struct Make {
    template <template <class> class Rule, unsigned PRESENT, bool = false>
    static KernelPtr step(const Request& request) {
        constexpr int lists = LISTS<PRESENT>;
        int64_t count = request.attrs.integer("count");
        if (!suits_step(request, count, lists, Rule<float>::SCALARS)) return nullptr;
        StepFlags flags(request.attrs);
        auto starts = starts_of(request, count);
        return visit_floating(request.operands[0].dtype, [&]<class T>(Tag<T>) {
            // What an element costs: mostly the memory that is read, and written but for the gradient.
            double ns = 0.06 * (2 * lists - 1) * double(sizeof(T)) / 4;
            return make_kernel(ns * double(starts.back()), [=](char* const* data, const Scalar* scalars) {
                const Rule<compute_t<T>> rule(flags, scalars + count * lists);
                for_pieces(starts, ns, [&](size_t i, int64_t begin, int64_t n) {
                    T* at[lists];
                    for (int k = 0; k < lists; ++k) at[k] = reinterpret_cast<T*>(data[i + size_t(k * count)]) + begin;
                    step_loop<T, Rule<compute_t<T>>, PRESENT>(at, n, rule);
                });
            });
        });
    }
};

}  // namespace

void add_optimizers(Registry& registry) { add_optimizer_steps<Make>(registry); }

}  // namespace norch::nn
