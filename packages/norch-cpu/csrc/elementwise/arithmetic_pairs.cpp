// Compiled without contraction to multiply-adds (CMakeLists.txt): each step rounds.
#include "common/arithmetic_ops.h"
#include "elementwise/pair_input.h"
#include "elementwise/superinstructions.h"

namespace norch::elementwise {
namespace {

/// G(F(a, b), c), or with PLACE 1 G(c, F(a, b)).
template <class F, class G, int PLACE>
struct Pair {
    template <unsigned MASK>
    static void loop(char* const* p, unsigned, int64_t n) {
        float* out = reinterpret_cast<float*>(p[0]);
        const Input<(MASK & 2) != 0> a(p[1]);
        const Input<(MASK & 4) != 0> b(p[2]);
        const Input<(MASK & 8) != 0> c(p[3]);
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) {
            const float x = F::apply(a[i], b[i]);
            out[i] = PLACE ? G::apply(c[i], x) : G::apply(x, c[i]);
        }
    }
};

template <class F, class G, int PLACE>
void add(Pairs& pairs, const char* name) {
    using P = Pair<F, G, PLACE>;
    PairLoops& loops = pairs[std::string(name) + (PLACE ? " 1" : " 0")];
    loops[0] = P::template loop<0>;
    loops[2] = P::template loop<2>;
    loops[4] = P::template loop<4>;
    loops[6] = P::template loop<6>;
    loops[8] = P::template loop<8>;
    loops[10] = P::template loop<10>;
    loops[12] = P::template loop<12>;
}

template <class F, class G>
void add(Pairs& pairs, const char* name) {
    add<F, G, 0>(pairs, name);
    add<F, G, 1>(pairs, name);
}

}  // namespace

Pairs arithmetic_pairs() {
    Pairs pairs;
    add<Mul, Add>(pairs, "mul add");
    add<Mul, Sub>(pairs, "mul sub");
    add<Mul, Mul>(pairs, "mul mul");
    add<Add, Add>(pairs, "add add");
    add<Add, Mul>(pairs, "add mul");
    add<Sub, Mul>(pairs, "sub mul");
    return pairs;
}

}  // namespace norch::elementwise
