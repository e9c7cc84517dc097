"""Draws that are differentiable, and what distributions check, expand to and share with programs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from distribution_cases import COVARIANCE, PROBS

import norch

D = norch.distributions
constraints, transforms = D.constraints, D.transforms


def wide(values: Any, grad: bool = False) -> Any:
    return norch.tensor(values, dtype=norch.float64, requires_grad=grad)


# --- Gradients of draws ---------------------------------------------------------------------------------------------

# Of those whose draws are, for one seed, a smooth function of the parameters.
SMOOTH = {
    "cauchy": (lambda a, b: D.Cauchy(a, b), (0.3, 1.5)),
    "continuous bernoulli": (lambda a: D.ContinuousBernoulli(a), (0.3,)),
    "exponential": (lambda a: D.Exponential(a), (0.7,)),
    "generalised pareto": (lambda a, b: D.GeneralizedPareto(a, 1.0, b), (0.3, 0.7)),
    "gumbel": (lambda a, b: D.Gumbel(a, b), (0.3, 1.5)),
    "half cauchy": (lambda a: D.HalfCauchy(a), (1.5,)),
    "half normal": (lambda a: D.HalfNormal(a), (1.5,)),
    "kumaraswamy": (lambda a, b: D.Kumaraswamy(a, b), (0.7, 2.5)),
    "laplace": (lambda a, b: D.Laplace(a, b), (0.3, 1.5)),
    "log normal": (lambda a, b: D.LogNormal(a, b), (0.3, 0.5)),
    "normal": (lambda a, b: D.Normal(a, b), (0.3, 1.5)),
    "pareto": (lambda a, b: D.Pareto(a, b), (0.3, 3.5)),
    "relaxed bernoulli": (lambda a, b: D.RelaxedBernoulli(a, b), (0.7, 0.3)),
    "uniform": (lambda a, b: D.Uniform(a, b), (0.3, 1.5)),
    "weibull": (lambda a, b: D.Weibull(a, b), (0.7, 2.5)),
    "gamma by rate": (lambda b: D.Gamma(1.3, b), (0.7,)),
    "student by loc and scale": (lambda a, b: D.StudentT(3.0, a, b), (0.3, 1.5)),
    "affine of tanh": (
        lambda a, b: D.TransformedDistribution(D.Normal(a, 1.0), [D.TanhTransform(), D.AffineTransform(a, b)]),
        (0.3, 1.5),
    ),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_of_draws_by_finite_differences(name):
    make, values = SMOOTH[name]

    def draw(*parameters: Any) -> Any:
        norch.manual_seed(5)
        return make(*parameters).rsample((7,))

    for i, value in enumerate(values):
        parameters = [wide(v, True) for v in values]
        drawn = draw(*parameters)
        (found,) = norch.autograd.grad((drawn * norch.arange(1.0, 8.0)).sum(), parameters[i])
        step = 1e-6 * value
        up, down = (draw(*[wide(v + sign * step * (i == j)) for j, v in enumerate(values)]) for sign in (1, -1))
        expected = ((up - down) / (2 * step) * norch.arange(1.0, 8.0)).sum()
        assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def quantiles_slope(a: float, z: float) -> float:
    """dz/da of gamma draws where the quantile is kept: minus the derivative of the distribution function by a over the
    density, by Simpson's rule in log z.
    """
    t = np.linspace(min(math.log(z), 0) - 60 / a, math.log(z), 100_001)
    width = (t[1] - t[0]) / 3
    weights = np.where(np.arange(len(t)) % 2, 4.0, 2.0) * width
    weights[[0, -1]] = width
    step = 1e-5

    e_t = np.exp(t)

    def below(c: float) -> float:
        return float((np.exp(c * t - e_t - math.lgamma(c)) * weights).sum())

    by_a = (below(a * (1 + step)) - below(a * (1 - step))) / (2 * a * step)
    return -by_a / math.exp((a - 1) * math.log(z) - z - math.lgamma(a))


@pytest.mark.parametrize("a", [0.05, 0.3, 0.999, 1.0, 2.5, 10.0, 150.0])
def test_implicit_gradients_of_gamma_draws(a):
    norch.manual_seed(2)
    concentration = wide([a] * 12, True)
    drawn = D.Gamma(concentration, 1.0).rsample()
    drawn.sum().backward()
    for z, found in zip(drawn.tolist(), concentration.grad.tolist(), strict=True):
        if z > 1e-200:
            assert found == pytest.approx(quantiles_slope(a, z), rel=2e-5)


def slope_of_beta(a: float, b: float, x: float) -> float:
    """`quantiles_slope` of beta draws, by a, in the logit."""
    logit = math.log(x) - math.log1p(-x)
    t = np.linspace(min(logit, 0) - 60 / a, logit, 200_001)
    width = (t[1] - t[0]) / 3
    weights = np.where(np.arange(len(t)) % 2, 4.0, 2.0) * width
    weights[[0, -1]] = width
    step, log_t, log_rest = 1e-5, -np.logaddexp(0, -t), -np.logaddexp(0, t)

    def below(c: float) -> float:
        scale = math.lgamma(c + b) - math.lgamma(c) - math.lgamma(b)
        return float((np.exp(c * log_t + b * log_rest + scale) * weights).sum())

    by_a = (below(a * (1 + step)) - below(a * (1 - step))) / (2 * a * step)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return -by_a / math.exp((a - 1) * math.log(x) + (b - 1) * math.log1p(-x) + scale)


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.2), (1.0, 1.0), (0.05, 4.0), (2.5, 0.9), (30.0, 12.0), (2.0, 150.0)])
@pytest.mark.parametrize(("dtype", "bound"), [(norch.float64, 2e-5), (norch.float32, 5e-5)])
def test_implicit_gradients_of_beta_draws(a: float, b: float, dtype: norch.DType, bound: float) -> None:
    norch.manual_seed(2)
    first, second = (norch.full((12,), v, dtype=dtype, requires_grad=True) for v in (a, b))
    drawn = D.Beta(first, second).rsample()
    by_a, by_b = (v.tolist() for v in norch.autograd.grad(drawn.sum(), [first, second]))
    for x, found_a, found_b in zip(drawn.tolist(), by_a, by_b, strict=True):
        if 1e-6 < x < 1 - 1e-3:
            assert found_a == pytest.approx(slope_of_beta(a, b, x), rel=bound)
            assert found_b == pytest.approx(-slope_of_beta(b, a, 1 - x), rel=bound)


def test_the_gradient_of_a_dirichlet_draw_moves_its_own_element_and_scales_the_others() -> None:
    norch.manual_seed(3)
    a = wide([0.7, 2.0, 5.0], True)
    drawn = D.Dirichlet(a).rsample()
    x, total = drawn.tolist(), 7.7
    rows = [norch.autograd.grad(drawn[i], a, retain_graph=True)[0].tolist() for i in range(3)]
    for j, own in enumerate(a.tolist()):
        slope = slope_of_beta(own, total - own, x[j])
        for i in range(3):
            expected = slope if i == j else -slope * x[i] / (1 - x[j])
            assert rows[i][j] == pytest.approx(expected, rel=2e-5)


def test_gradients_of_the_gamma_distribution_function():
    a, z = wide([0.3, 1.0, 2.5, 40.0], True), wide([0.1, 3.0, 2.0, 44.0], True)
    p = D.Gamma(a, 1.0)
    by_a, by_z = norch.autograd.grad(p.cdf(z).sum(), [a, z])
    assert norch.allclose(by_z, p.log_prob(z).exp())
    step = 1e-5
    expected = (D.Gamma(a + step, 1.0).cdf(z) - D.Gamma(a - step, 1.0).cdf(z)) / (2 * step)
    assert norch.allclose(by_a, expected, rtol=1e-6)


def test_a_gamma_draw_is_differentiable_once():
    a = wide(1.5, True)
    drawn = D.Gamma(a, 1.0).rsample()
    (first,) = norch.autograd.grad(drawn, a, create_graph=True)
    with pytest.raises(NotImplementedError, match="twice"):
        first.backward()


@pytest.mark.parametrize(
    ("make", "values", "of"),
    [
        (lambda a, b: D.Beta(a, b), (0.7, 2.5), lambda p: p.mean),
        (lambda a, b: D.Beta(a, b), (0.02, 0.05), lambda p: p.mean),
        (lambda a, b: D.Dirichlet(norch.stack([a, b, a * b])), (0.7, 2.5), lambda p: p.mean[0]),
        (lambda a, b: D.FisherSnedecor(a, b), (5.0, 30.0), lambda p: p.mean),
        (lambda a, b: D.InverseGamma(a, b), (9.0, 2.0), lambda p: p.mean),
        (lambda a, b: D.Chi2(a + b), (1.0, 2.0), lambda p: p.mean),
        (lambda a, b: D.Wishart(a, b * wide(COVARIANCE)), (4.5, 1.5), lambda p: p.mean[0, 0]),
    ],
    ids=["beta", "small beta", "dirichlet", "fisher", "inverse gamma", "chi2", "wishart"],
)
def test_gradients_of_draws_by_their_means(make, values, of):
    norch.manual_seed(9)
    parameters = [wide(v, True) for v in values]
    wanted = norch.autograd.grad(of(make(*parameters)), parameters, allow_unused=True)
    wanted = [norch.zeros_like(v) if g is None else g for v, g in zip(parameters, wanted, strict=True)]
    parts = []
    for _ in range(40):
        drawn = make(*parameters).rsample((250,))
        drawn = drawn if drawn.ndim == 1 else drawn.reshape(250, -1)[:, 0]
        parts.append(norch.stack(norch.autograd.grad(drawn.mean(), parameters)))
    found = norch.stack(parts)
    error = found.std(0) / math.sqrt(40) + 1e-9
    assert bool(((found.mean(0) - norch.stack(wanted)).abs() < 4.5 * error).all())


def test_straight_through_and_multivariate_gradients():
    logits = wide(PROBS, True)
    p, probs = D.OneHotCategoricalStraightThrough(logits=logits), norch.softmax(logits, -1)
    weights = wide([1.0, 2.0, 5.0])
    (found,) = norch.autograd.grad((p.rsample() * weights).sum(), logits)
    (expected,) = norch.autograd.grad((probs * weights).sum(), logits)
    assert norch.allclose(found, expected)
    cov = wide(COVARIANCE, True)
    norch.manual_seed(1)
    drawn = D.MultivariateNormal(wide([1.0, 2.0, 3.0]), cov).rsample()
    norch.manual_seed(1)
    noise = norch.randn(3, dtype=norch.float64)
    assert norch.allclose(drawn, wide([1.0, 2.0, 3.0]) + norch.linalg.cholesky(cov) @ noise)
    assert norch.autograd.grad(drawn.sum(), cov)[0].abs().sum().item() > 0


@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16, norch.float16])
def test_draws_keep_their_dtype(dtype):
    for name, make in {
        "gamma": lambda: D.Gamma(norch.full((50,), 0.02, dtype=dtype), 1.0),
        "beta": lambda: D.Beta(norch.full((50,), 0.02, dtype=dtype), 0.02),
        "dirichlet": lambda: D.Dirichlet(norch.full((50, 3), 0.05, dtype=dtype)),
        "student": lambda: D.StudentT(norch.full((50,), 3.0, dtype=dtype)),
        "exponential": lambda: D.Exponential(norch.full((50,), 3.0, dtype=dtype)),
        "poisson": lambda: D.Poisson(norch.full((50,), 3.0, dtype=dtype)),
        "binomial": lambda: D.Binomial(5, norch.full((50,), 0.3, dtype=dtype)),
        "von mises": lambda: D.VonMises(norch.full((50,), 0.3, dtype=dtype), 2.0),
        "relaxed": lambda: D.RelaxedOneHotCategorical(0.5, logits=norch.zeros(50, 3, dtype=dtype)),
    }.items():
        drawn = make().sample()
        assert drawn.dtype is dtype, name
        assert bool(norch.isfinite(drawn).all()), name


# --- What is checked ------------------------------------------------------------------------------------------------

BAD = {
    "parameter scale .*GreaterThan": lambda: D.Normal(0.0, -1.0),
    "parameter loc .*Real": lambda: D.Normal(math.nan, 1.0),
    "Uniform: expected parameter high .*GreaterThan": lambda: D.Uniform(2.0, 1.0),
    r"parameter probs .*Interval\(lower_bound=0.0, upper_bound=1.0\)": lambda: D.Bernoulli(1.5),
    "parameter logits .*Real": lambda: D.Bernoulli(logits=math.nan),
    "Categorical: expected parameter probs .*Simplex": lambda: D.Categorical(wide([-1.0, 2.0])),
    "Categorical: expected parameter logits": lambda: D.Categorical(logits=wide([math.nan, 2.0])),
    "parameter concentration ": lambda: D.Gamma(-1.0, 1.0),
    "parameter rate ": lambda: D.Gamma(1.0, 0.0),
    "parameter df ": lambda: D.Chi2(-1.0),
    "parameter concentration1 ": lambda: D.Beta(0.0, 1.0),
    "parameter concentration .*Independent": lambda: D.Dirichlet(wide([1.0, 0.0])),
    "parameter total_count ": lambda: D.Binomial(-1, 0.5),
    "Geometric: expected parameter probs": lambda: D.Geometric(0.0),
    "HalfNormal: expected parameter scale": lambda: D.HalfNormal(-1.0),
    "LogNormal: expected parameter scale": lambda: D.LogNormal(0.0, -1.0),
    "Weibull: expected parameter concentration": lambda: D.Weibull(1.0, -1.0),
    "Pareto: expected parameter alpha": lambda: D.Pareto(1.0, -1.0),
    "Gumbel: expected parameter scale": lambda: D.Gumbel(1.0, -1.0),
    "parameter covariance_matrix .*PositiveDefinite": lambda: D.MultivariateNormal(wide([0.0, 0.0]), -norch.eye(2)),
    "parameter scale_tril .*LowerCholesky": lambda: D.MultivariateNormal(wide([0.0, 0.0]), scale_tril=norch.ones(2, 2)),
    "parameter cov_diag": lambda: D.LowRankMultivariateNormal(norch.zeros(2), norch.ones(2, 1), -norch.ones(2)),
    "Wishart: expected parameter df": lambda: D.Wishart(0.5, norch.eye(2)),
    "LKJCholesky: expected parameter concentration": lambda: D.LKJCholesky(2, -1.0),
    "Bernoulli: expected value .*Boolean": lambda: D.Bernoulli(0.5).log_prob(norch.tensor(0.5)),
    "Categorical: expected value .*IntegerInterval": lambda: D.Categorical(wide(PROBS)).log_prob(norch.tensor(3)),
    "Poisson: expected value": lambda: D.Poisson(0.5).log_prob(norch.tensor(-1.0)),
    "Exponential: expected value": lambda: D.Exponential(0.5).cdf(norch.tensor(-1.0)),
    "Dirichlet: expected value .*Simplex": lambda: D.Dirichlet(norch.ones(3)).log_prob(norch.ones(3)),
    "Normal: expected a Tensor, got float": lambda: D.Normal(0.0, 1.0).log_prob(0.5),
    r"last dims must be the event shape \(3,\), got shape \(2,\)": lambda: D.Dirichlet(norch.ones(3)).log_prob(
        norch.ones(2) / 2
    ),
    r"shape \(3,\) does not broadcast with batch_shape \+ event_shape \(2,\)": lambda: D.Normal(
        norch.zeros(2), 1.0
    ).log_prob(norch.zeros(3)),
    "Binomial.*either probs or logits": lambda: D.Binomial(3),
    "give one of covariance_matrix, precision_matrix and scale_tril, not 0": lambda: D.MultivariateNormal(wide([0.0])),
    "Wishart.* not 2": lambda: D.Wishart(3.0, norch.eye(2), norch.eye(2)),
    "dim must be at least 2": lambda: D.LKJCholesky(1),
    r"Independent\(\): the batch shape \(2,\) has no 2 dims": lambda: D.Independent(D.Normal(norch.zeros(2), 1.0), 2),
    "needs at least 1 dims": lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), D.StickBreakingTransform()),
    "transforms must be Transforms": lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), [3]),
    "expected a Categorical and a Distribution": lambda: D.MixtureSameFamily(D.Normal(0.0, 1.0), D.Normal(0.0, 1.0)),
    "2 weights .* do not fit components of batch shape .3,.": lambda: D.MixtureSameFamily(
        D.Categorical(norch.ones(2)), D.Normal(norch.zeros(3), 1.0)
    ),
    "must be tensors or numbers, got str, float": lambda: D.Normal("a", 1.0),
    "must be True or False": lambda: D.Distribution.set_default_validate_args(3),
    "dependent constraint cannot be checked": lambda: constraints.dependent.check(norch.ones(2)),
    "2 constraints, but 1 lengths": lambda: constraints.cat([constraints.real, constraints.real], 0, [2]),
    "cache_size must be 0 or 1, got 2": lambda: D.ExpTransform(cache_size=2),
    "have other numbers of elements": lambda: D.ReshapeTransform((2, 3), (4,)),
    "expected a shape that ends with": lambda: D.ReshapeTransform((2, 3), (6,)).forward_shape((3, 2)),
    "are not the n .n - 1. / 2": lambda: D.CorrCholeskyTransform().forward_shape((4,)),
    "expected square matrices": lambda: D.CorrCholeskyTransform().inverse_shape((2, 3)),
    "SoftmaxTransform: needs at least 1 dims": lambda: D.SoftmaxTransform().forward_shape(()),
    "2 transforms of 3 pieces": lambda: D.StackTransform([D.ExpTransform()] * 2)(norch.ones(3)),
    "use domain.event_dim": lambda: D.CorrCholeskyTransform().event_dim,
    "diag must be from": lambda: D.utils.tril_matrix_to_vec(norch.eye(2), 3),
}


@pytest.mark.parametrize("message", BAD)
def test_what_is_refused(message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        BAD[message]()


def test_types_that_are_refused():
    with pytest.raises(TypeError, match="classes of distributions"):
        D.register_kl("int", D.Normal)
    with pytest.raises(TypeError, match="constraint or its type"):
        D.biject_to.register(3, lambda constraint: None)
    for call, message in (
        (lambda: D.biject_to(constraints.boolean), "no transform from real numbers to Boolean"),
        (lambda: D.Multinomial(norch.tensor([1, 2]), wide(PROBS)), "one int"),
        (lambda: D.Binomial(wide([1.0, 2.0]), 0.5).entropy(), "counts must all be the same"),
        (lambda: D.Independent(D.Bernoulli(wide([0.5])), 1).enumerate_support(), "too many to list"),
        (lambda: D.AbsTransform().log_abs_det_jacobian(norch.ones(1), norch.ones(1)), "AbsTransform has no"),
        (lambda: D.Normal(0.0, 1.0).enumerate_support(), "cannot be listed"),
        (lambda: constraints.dependent.event_dim, "no event_dim"),
        (lambda: constraints.dependent.is_discrete, "no is_discrete"),
    ):
        with pytest.raises(NotImplementedError, match=message):
            call()


def test_checks_can_be_left_out():
    assert D.Normal(0.0, -1.0, validate_args=False).stddev.item() == -1
    D.Distribution.set_default_validate_args(False)
    try:
        D.Gamma(-1.0, 1.0)
        with pytest.raises(ValueError, match="concentration"):
            D.Gamma(-1.0, 1.0, validate_args=True)
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="concentration"):
        D.Gamma(-1.0, 1.0)


def test_a_captured_step_is_not_stopped_by_checks():
    values = [norch.tensor([0.5, 1.0]), norch.tensor([1.0, 2.0]), norch.tensor([0.1, 0.2])]
    for validate, stopped in ((None, False), (True, True)):

        @norch.capture
        def step(loc: Any, scale: Any, x: Any, validate: Any = validate) -> Any:
            return D.Normal(loc, scale, validate).log_prob(x).sum()

        found = [step(*values).item() for _ in range(4)]
        assert found == [D.Normal(*values[:2]).log_prob(values[2]).sum().item()] * 4
        assert ("values are read" in str(step.report())) is stopped


def test_distributions_within_vmap_and_on_meta():
    x = wide([0.1, 0.2, 0.3])
    found = norch.vmap(lambda v: D.Normal(v, 1.0).log_prob(v + 1))(x)
    assert norch.allclose(found, D.Normal(x, 1.0).log_prob(x + 1))
    p = D.Normal(norch.zeros(3, device="meta"), 1.0)
    assert p.log_prob(norch.zeros(2, 3, device="meta")).shape == (2, 3)
    assert p.sample((4,)).device.type == "meta"


def test_standard_gamma_draws_are_those_of_the_distribution():
    concentration = norch.tensor([0.5, 2.0, 30.0], requires_grad=True)
    norch.manual_seed(3)
    drawn = norch._standard_gamma(concentration)
    norch.manual_seed(3)
    assert norch.equal(drawn, norch.distributions.Gamma(concentration, norch.ones(3)).rsample())
    (slope,) = norch.autograd.grad(drawn.sum(), concentration)
    assert (slope > 0).all()
    norch.manual_seed(0)
    many = norch._standard_gamma(norch.full((20000,), 3.0, dtype=norch.float64))
    assert many.dtype is norch.float64
    assert abs(many.mean().item() - 3) < 0.06
    with pytest.raises(norch.DTypeError, match="_standard_gamma"):
        norch._standard_gamma(norch.arange(3))
