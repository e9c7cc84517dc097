// What the steps of optimisers do to one element, on any processor: C is what a dtype is computed in.
//
// A rule is made of an op's flags and scalars, in the order of norch/ops/optimizer/__init__.py. It changes the parameter p
// and the states a, b, c, of which those whose bit is set in PRESENT are there; g is the gradient. What depends on flags
// is chosen by value, not by branches, so that loops vectorise (by numbers of type C: not so by bools for 16-bit floats);
// 0 times an infinite parameter must not get in.
#pragma once

#include <cmath>
#include <type_traits>

#include "common/arithmetic_ops.h"
#include "common/kernel.h"

namespace norch {

struct StepFlags {
    bool maximize = false, nesterov = false, decoupled = false, rectified = false;

    explicit StepFlags(const Attrs& attrs)
        : maximize(attrs.has("maximize") && attrs.flag("maximize")),
          nesterov(attrs.has("nesterov") && attrs.flag("nesterov")),
          decoupled(attrs.has("decoupled") && attrs.flag("decoupled")),
          rectified(attrs.has("rectified") && attrs.flag("rectified")) {}
};

/// The gradient to descend along, with the decay of the parameter in it, or made at once where it is decoupled.
template <class C>
struct Descent {
    C sign, decay, decay_factor;

    Descent(const StepFlags& flags, double lr, double weight_decay)
        : sign(C(flags.maximize ? -1 : 1)),
          decay(C(flags.decoupled ? 0 : weight_decay)),
          decay_factor(C(flags.decoupled ? 1 - lr * weight_decay : 1)) {}

    NORCH_FN C operator()(C& p, C g) const {
        p *= decay_factor;
        const C d = sign * g, decayed = d + decay * p;
        return decay != 0 ? decayed : d;
    }
};

template <class C>
struct SgdRule {
    static constexpr int SCALARS = 4;
    Descent<C> descent;
    C lr, momentum, one_minus_dampening, nesterov;

    SgdRule(const StepFlags& flags, const Scalar* s)
        : descent(flags, 0, s[1].f),
          lr(C(s[0].f)),
          momentum(C(s[2].f)),
          one_minus_dampening(C(1 - s[3].f)),
          nesterov(C(flags.nesterov)) {}

    template <unsigned PRESENT>
    NORCH_FN void apply(C& p, C& a, C&, C&, C g) const {
        C d = descent(p, g);
        if constexpr (PRESENT & 1) {
            a = momentum * a + one_minus_dampening * d;
            const C ahead = d + momentum * a;
            d = nesterov != 0 ? ahead : a;
        }
        p -= lr * d;
    }
};

template <class C>
struct AsgdRule {
    static constexpr int SCALARS = 4;
    Descent<C> descent;
    C eta, decay_factor, mu;

    AsgdRule(const StepFlags& flags, const Scalar* s)
        : descent(flags, 0, s[1].f), eta(C(s[0].f)), decay_factor(C(1 - s[2].f * s[0].f)), mu(C(s[3].f)) {}

    template <unsigned>
    NORCH_FN void apply(C& p, C& a, C&, C&, C g) const {
        const C d = descent(p, g);
        p = decay_factor * p - eta * d;
        const C nearer = a + mu * (p - a);
        a = mu == 1 ? p : nearer;
    }
};

template <class C>
struct RpropRule {
    static constexpr int SCALARS = 4;
    C sign, minus, plus, smallest, largest;

    RpropRule(const StepFlags& flags, const Scalar* s)
        : sign(C(flags.maximize ? -1 : 1)), minus(C(s[0].f)), plus(C(s[1].f)), smallest(C(s[2].f)), largest(C(s[3].f)) {}

    template <unsigned>
    NORCH_FN void apply(C& p, C& a, C& b, C&, C g) const {
        const C d = sign * g, turn = d * a;
        const C size = b * (turn > 0 ? plus : turn < 0 ? minus : turn + 1);
        b = size < smallest ? smallest : size > largest ? largest : size;
        a = turn < 0 ? C(0) : d;
        p -= Sign::apply(a) * b;
    }
};

template <class C>
struct LionRule {
    static constexpr int SCALARS = 4;
    C sign, lr, decay_factor, beta1, one_minus_beta1, beta2, one_minus_beta2;

    LionRule(const StepFlags& flags, const Scalar* s)
        : sign(C(flags.maximize ? -1 : 1)),
          lr(C(s[0].f)),
          decay_factor(C(1 - s[0].f * s[1].f)),
          beta1(C(s[2].f)),
          one_minus_beta1(C(1 - s[2].f)),
          beta2(C(s[3].f)),
          one_minus_beta2(C(1 - s[3].f)) {}

    template <unsigned>
    NORCH_FN void apply(C& p, C& a, C&, C&, C g) const {
        const C d = sign * g;
        p = decay_factor * p - lr * Sign::apply(C(beta1 * a + one_minus_beta1 * d));
        a = beta2 * a + one_minus_beta2 * d;
    }
};

/// The parameter is an exponential moving average, the gradient its new value.
template <class C>
struct AverageRule {
    static constexpr int SCALARS = 1;
    C weight;

    AverageRule(const StepFlags&, const Scalar* s) : weight(C(s[0].f)) {}

    template <unsigned>
    NORCH_FN void apply(C& p, C&, C&, C&, C g) const {
        p += weight * (g - p);
    }
};

/// The averages that Adam and its relatives share.
template <class C>
struct Moments {
    Descent<C> descent;
    C beta1, one_minus_beta1, beta2, one_minus_beta2, eps;

    Moments(const StepFlags& flags, const Scalar* s)
        : descent(flags, s[0].f, s[1].f),
          beta1(C(s[2].f)),
          one_minus_beta1(C(1 - s[2].f)),
          beta2(C(s[3].f)),
          one_minus_beta2(C(1 - s[3].f)),
          eps(C(s[4].f)) {}

    NORCH_FN C update(C& p, C& m, C& v, C g) const {
        const C d = descent(p, g);
        m = beta1 * m + one_minus_beta1 * d;
        v = beta2 * v + one_minus_beta2 * d * d;
        return d;
    }
};

template <class C>
struct AdamRule : Moments<C> {
    static constexpr int SCALARS = 7;
    C lr, root;  // with what undoes the bias of the averages

    AdamRule(const StepFlags& flags, const Scalar* s)
        : Moments<C>(flags, s), lr(C(s[0].f / s[5].f)), root(C(1 / std::sqrt(s[6].f))) {}

    template <unsigned PRESENT>
    NORCH_FN void apply(C& p, C& a, C& b, C& c, C g) const {
        this->update(p, a, b, g);
        C v = b;
        if constexpr (PRESENT & 4) v = c = Maximum::apply(c, b);
        p -= lr * a / (std::sqrt(v) * root + this->eps);
    }
};

template <class C>
struct NadamRule : Moments<C> {
    static constexpr int SCALARS = 8;
    C of_gradient, of_average, root;

    NadamRule(const StepFlags& flags, const Scalar* s)
        : Moments<C>(flags, s),
          of_gradient(C(s[0].f * s[5].f)),
          of_average(C(s[0].f * s[6].f)),
          root(C(1 / std::sqrt(s[7].f))) {}

    template <unsigned>
    NORCH_FN void apply(C& p, C& a, C& b, C&, C g) const {
        const C d = this->update(p, a, b, g);
        p -= (of_gradient * d + of_average * a) / (std::sqrt(b) * root + this->eps);
    }
};

template <class C>
struct RadamRule : Moments<C> {
    static constexpr int SCALARS = 6;
    C lr, rectified;

    RadamRule(const StepFlags& flags, const Scalar* s)
        : Moments<C>(flags, s), lr(C(s[0].f * s[5].f)), rectified(C(flags.rectified)) {}

    template <unsigned>
    NORCH_FN void apply(C& p, C& a, C& b, C&, C g) const {
        this->update(p, a, b, g);
        const C spread = std::sqrt(b) + this->eps;
        p -= lr * a / (rectified != 0 ? spread : C(1));
    }
};

template <class C>
struct AdamaxRule {
    static constexpr int SCALARS = 6;
    Descent<C> descent;
    C lr, beta1, one_minus_beta1, beta2, eps;

    AdamaxRule(const StepFlags& flags, const Scalar* s)
        : descent(flags, 0, s[1].f),
          lr(C(s[0].f / s[5].f)),
          beta1(C(s[2].f)),
          one_minus_beta1(C(1 - s[2].f)),
          beta2(C(s[3].f)),
          eps(C(s[4].f)) {}

    template <unsigned>
    NORCH_FN void apply(C& p, C& a, C& b, C&, C g) const {
        const C d = descent(p, g);
        a = beta1 * a + one_minus_beta1 * d;
        b = Maximum::apply(C(beta2 * b), C(std::fabs(d) + eps));
        p -= lr * a / b;
    }
};

template <class C>
struct AdagradRule {
    static constexpr int SCALARS = 3;
    Descent<C> descent;
    C lr, eps;

    AdagradRule(const StepFlags& flags, const Scalar* s)
        : descent(flags, 0, s[1].f), lr(C(s[0].f)), eps(C(s[2].f)) {}

    template <unsigned>
    NORCH_FN void apply(C& p, C& a, C&, C&, C g) const {
        const C d = descent(p, g);
        a += d * d;
        p -= lr * d / (std::sqrt(a) + eps);
    }
};

template <class C>
struct AdadeltaRule {
    static constexpr int SCALARS = 4;
    Descent<C> descent;
    C lr, rho, one_minus_rho, eps;

    AdadeltaRule(const StepFlags& flags, const Scalar* s)
        : descent(flags, 0, s[1].f), lr(C(s[0].f)), rho(C(s[2].f)), one_minus_rho(C(1 - s[2].f)), eps(C(s[3].f)) {}

    template <unsigned>
    NORCH_FN void apply(C& p, C& a, C& b, C&, C g) const {
        const C d = descent(p, g);
        a = rho * a + one_minus_rho * d * d;
        const C change = std::sqrt(b + eps) / std::sqrt(a + eps) * d;
        b = rho * b + one_minus_rho * change * change;
        p -= lr * change;
    }
};

template <class C>
struct RmspropRule {
    static constexpr int SCALARS = 5;
    Descent<C> descent;
    C lr, alpha, one_minus_alpha, eps, momentum;

    RmspropRule(const StepFlags& flags, const Scalar* s)
        : descent(flags, 0, s[1].f),
          lr(C(s[0].f)),
          alpha(C(s[2].f)),
          one_minus_alpha(C(1 - s[2].f)),
          eps(C(s[3].f)),
          momentum(C(s[4].f)) {}

    template <unsigned PRESENT>
    NORCH_FN void apply(C& p, C& a, C& b, C& c, C g) const {
        C d = descent(p, g);
        a = alpha * a + one_minus_alpha * d * d;
        C spread = a;
        if constexpr (PRESENT & 2) {
            b = alpha * b + one_minus_alpha * d;
            spread = a - b * b;
        }
        d /= std::sqrt(spread) + eps;
        if constexpr (PRESENT & 4) d = c = momentum * c + d;
        p -= lr * d;
    }
};

/// Calls f(std::integral_constant<unsigned, PRESENT>) with the states that a step of these attributes has.
template <unsigned PRESENT>
using Present = std::integral_constant<unsigned, PRESENT>;

template <class F>
auto with_sgd_states(const Attrs& attrs, const F& f) {
    return attrs.flag("momentum") ? f(Present<1>{}) : f(Present<0>{});
}
template <class F>
auto with_adam_states(const Attrs& attrs, const F& f) {
    return attrs.has("amsgrad") && attrs.flag("amsgrad") ? f(Present<7>{}) : f(Present<3>{});
}
template <class F>
auto with_rmsprop_states(const Attrs& attrs, const F& f) {
    if (attrs.flag("centered")) return attrs.flag("momentum") ? f(Present<7>{}) : f(Present<3>{});
    return attrs.flag("momentum") ? f(Present<5>{}) : f(Present<1>{});
}

/// The lists of a step: parameters, the states whose bit is set in PRESENT, gradients.
template <unsigned PRESENT>
constexpr int LISTS = 2 + (PRESENT & 1) + (PRESENT >> 1 & 1) + (PRESENT >> 2 & 1);

/// Whether the operands are as a step needs them: `lists` lists of `count` contiguous tensors, then scalars.
inline bool suits_step(const Request& request, int64_t count, int64_t lists, int64_t scalars) {
    const auto& operands = request.operands;
    if (count < 1 || int64_t(operands.size()) != count * lists + scalars) return false;
    for (int64_t i = 0; i < int64_t(operands.size()); ++i) {
        const Operand& o = operands[i];
        if (o.is_scalar != (i >= count * lists)) return false;
        if (o.is_scalar ? !is_floating(o.dtype)
                        : o.dtype != operands[0].dtype || !o.is_contiguous() ||
                              o.numel() != operands[i % count].numel())
            return false;
    }
    return is_floating(operands[0].dtype);
}

/// Adds the steps: Make::step<Rule, PRESENT> is a factory; a third argument says which of them are the commonest.
template <class Make>
void add_optimizer_steps(Registry& registry) {
    registry["sgd_step"] = [](const Request& r) {
        return with_sgd_states(r.attrs, [&]<unsigned P>(Present<P>) { return Make::template step<SgdRule, P, true>(r); });
    };
    registry["adam_step"] = [](const Request& r) {
        return with_adam_states(r.attrs, [&]<unsigned P>(Present<P>) { return Make::template step<AdamRule, P, true>(r); });
    };
    registry["rmsprop_step"] = [](const Request& r) {
        return with_rmsprop_states(r.attrs, [&]<unsigned P>(Present<P>) { return Make::template step<RmspropRule, P>(r); });
    };
    registry["update_averages"] = Make::template step<AverageRule, 0>;
    registry["asgd_step"] = Make::template step<AsgdRule, 1>;
    registry["rprop_step"] = Make::template step<RpropRule, 3>;
    registry["lion_step"] = Make::template step<LionRule, 1>;
    registry["nadam_step"] = Make::template step<NadamRule, 3>;
    registry["radam_step"] = Make::template step<RadamRule, 3>;
    registry["adamax_step"] = Make::template step<AdamaxRule, 3>;
    registry["adagrad_step"] = Make::template step<AdagradRule, 1>;
    registry["adadelta_step"] = Make::template step<AdadeltaRule, 3>;
}

}  // namespace norch
