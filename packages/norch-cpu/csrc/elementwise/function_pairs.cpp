#include "common/activation_ops.h"
#include "elementwise/functions.h"
#include "elementwise/pair_input.h"
#include "elementwise/superinstructions.h"

namespace norch::elementwise {
namespace {

/// G(F(a, b)), of which the compiler makes no multiply-add: a sum is no factor of one, and G adds nothing to its input.
template <class F, class G>
struct Pair {
    template <unsigned MASK>
    static void loop(char* const* p, unsigned, int64_t n) {
        float* out = reinterpret_cast<float*>(p[0]);
        const Input<(MASK & 2) != 0> a(p[1]);
        const Input<(MASK & 4) != 0> b(p[2]);
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) out[i] = G::template apply<Functions>(F::apply(a[i], b[i]), Constants<float>{});
    }
};

template <class F, class G>
void add(Pairs& pairs, const char* name) {
    PairLoops& loops = pairs[name];
    loops[0] = Pair<F, G>::template loop<0>;
    loops[2] = Pair<F, G>::template loop<2>;
    loops[4] = Pair<F, G>::template loop<4>;
}

}  // namespace

Pairs function_pairs() {
    Pairs pairs;
    add<Mul, Sigmoid>(pairs, "mul sigmoid 0");
    add<Mul, Tanh>(pairs, "mul tanh 0");
    add<Add, Sigmoid>(pairs, "add sigmoid 0");
    add<Add, Tanh>(pairs, "add tanh 0");
    add<Add, Relu>(pairs, "add relu 0");
    add<Add, Silu>(pairs, "add silu 0");
    return pairs;
}

}  // namespace norch::elementwise
