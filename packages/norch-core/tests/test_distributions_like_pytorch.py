"""What distributions, transforms and divergences compute, beside PyTorch, where it is installed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from distribution_cases import CORRELATION, COVARIANCE, PROBS, cases

import norch

torch = pytest.importorskip("torch")
OURS, THEIRS = cases(norch), cases(torch)
PROPERTIES = ("mean", "mode", "variance", "stddev", "batch_shape", "event_shape", "has_enumerate_support")
ROUGH = {("von mises", 1e-4): "variance stddev", ("von mises", 1e-5): "log_prob", ("multinomial", 1e-6): "entropy",
         ("continuous bernoulli", 1e-3): "cdf icdf"}  # fmt: skip
"""PyTorch's approximations of Bessel functions and near 1/2, and a logarithm of its multinomial's in float32."""
OTHERWISE = {("kumaraswamy", "mode"), ("multinomial", "perplexity")}
"""Where PyTorch gives NaN, and what follows from the entropy. See docs/differences.md."""


OURS.pop("generalised pareto"), THEIRS.pop("generalised pareto")  # PyTorch's takes float32 alone


def attempt(owner: Any, name: str, *arguments: Any) -> Any:
    """A property, or what a method gives."""
    try:
        found = getattr(owner, name)
        return found(*arguments) if callable(found) else found
    except NotImplementedError:
        return NotImplementedError


def same(ours: Any, theirs: Any, rtol: float = 1e-9) -> None:
    assert (ours is NotImplementedError) == (theirs is NotImplementedError)
    if ours is not NotImplementedError:
        ours, theirs = (x.detach().numpy() if hasattr(x, "detach") else np.asarray(x) for x in (ours, theirs))
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol, 1e-12)


def tolerance(name: str, what: str) -> float:
    return next((rtol for (of, rtol), names in ROUGH.items() if of == name and what in names.split()), 1e-9)


@pytest.mark.parametrize("name", OURS)
def test_a_distribution(name):
    (p, x), (q, y) = OURS[name], THEIRS[name]
    for what in (*PROPERTIES, "entropy", "perplexity"):
        if (name, what) not in OTHERWISE:
            same(attempt(p, what), attempt(q, what), tolerance(name, what))
    for what in ("log_prob", "cdf"):
        same(attempt(p, what, x), attempt(q, what, y), tolerance(name, what))
    levels = np.linspace(0.1, 0.9, int(np.prod(p.batch_shape))).reshape(p.batch_shape)
    same(attempt(p, "icdf", norch.tensor(levels)), attempt(q, "icdf", torch.tensor(levels)), tolerance(name, "icdf"))
    for expand in (True, False):
        same(attempt(p, "enumerate_support", expand), attempt(q, "enumerate_support", expand))
    same(p.support.check(x), q.support.check(y))
    assert (p.support.event_dim, p.support.is_discrete) == (q.support.event_dim, q.support.is_discrete)


def test_generalised_pareto():
    def run(t: Any) -> list[Any]:
        p = t.distributions.GeneralizedPareto(
            t.tensor([0.1, 0.2, 0.3]), t.tensor([1.5, 0.4, 2.0]), t.tensor([0.3, 0.0, -0.4])
        )
        x = t.tensor([0.3, 2.0, 1.5])
        found = [p.log_prob(x), p.cdf(x), p.log_cdf(x), p.log_survival_function(x), p.icdf(t.tensor([0.1, 0.5, 0.9]))]
        return [*found, p.entropy(), p.mean, p.mode, p.variance, p.support.check(x)]

    for ours, theirs in zip(run(norch), run(torch), strict=True):
        same(ours, theirs, 1e-5)


@pytest.mark.filterwarnings("ignore:Singular sample detected")  # of PyTorch's Wishart
@pytest.mark.parametrize("name", OURS)
def test_an_expanded_one(name):
    (p, x), (q, y) = OURS[name], THEIRS[name]
    p, q = p.expand((4, *p.batch_shape)), q.expand((4, *q.batch_shape))
    same(p.log_prob(x), q.log_prob(y), tolerance(name, "log_prob"))
    same(attempt(p, "mean"), attempt(q, "mean"))
    for method in ("sample", "rsample"):
        drawn, expected = (attempt(d, method, (5,)) for d in (p, q))
        assert (drawn is NotImplementedError) == (expected is NotImplementedError)
        if drawn is not NotImplementedError:
            assert drawn.shape == tuple(expected.shape)
            assert str(drawn.dtype).partition(".")[2] == str(expected.dtype).partition(".")[2]
            p.log_prob(drawn)  # which is in the support


@pytest.mark.parametrize("name", OURS)
def test_divergences(name):
    for other in OURS:
        p, q = OURS[name][0], OURS[other][0]
        fits = not (p.batch_shape and q.batch_shape) or p.batch_shape[-1] == q.batch_shape[-1]
        # PyTorch's bounds of this pair are the wrong way round.
        if fits and (not name.startswith("continuous") or other != "uniform"):
            ours = attempt(norch.distributions, "kl_divergence", p, q)
            theirs = attempt(torch.distributions, "kl_divergence", THEIRS[name][0], THEIRS[other][0])
            same(ours, theirs)


def test_gradients_of_densities():
    def run(t: Any) -> list[Any]:
        d, found = t.distributions, []
        for make, values in (
            (d.Normal, (0.3, 1.2, 0.7)), (d.Beta, (0.7, 2.0, 0.3)), (d.Gamma, (0.7, 2.0, 0.3)),
            (d.StudentT, (3.0, 0.2, 1.5, 0.3)), (d.Weibull, (0.7, 2.0, 0.3)), (d.Gumbel, (0.7, 2.0, 0.3)),
            (d.LogNormal, (0.7, 2.0, 0.3)), (d.Laplace, (0.7, 2.0, 0.3)), (d.Kumaraswamy, (0.7, 2.0, 0.3)),
        ):  # fmt: skip
            parameters = [t.tensor(v, dtype=t.float64, requires_grad=True) for v in values]
            p = make(*parameters[:-1])
            found += t.autograd.grad(p.log_prob(parameters[-1]), parameters, retain_graph=True)
            found += t.autograd.grad(p.entropy().sum(), parameters[:-1], allow_unused=True)
        return found

    for ours, theirs in zip(run(norch), run(torch), strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            same(ours, theirs, 1e-8)  # of PyTorch's trigamma


# --- Transforms -----------------------------------------------------------------------------------------------------


def transforms(t: Any) -> dict[str, tuple[Any, Any]]:
    d = t.distributions

    def f(values: Any) -> Any:
        return t.tensor(values, dtype=t.float64)

    x, up = f(PROBS) * 3 - 1, f(PROBS)
    square = f([COVARIANCE, CORRELATION]) - 0.5
    affine = d.AffineTransform(f([1.0, 2.0, 3.0]), f(-2.0))
    cat = d.CatTransform([d.ExpTransform(), d.TanhTransform()], dim=-1, lengths=[1, 2])
    return {
        "abs": (d.AbsTransform(), x),
        "affine": (affine, x),
        "affine of events": (d.AffineTransform(1.0, 2.5, event_dim=1), x),
        "cat": (cat, x),
        "chain": (d.ComposeTransform([affine, d.ExpTransform(), d.PowerTransform(f(0.5))]), x),
        "chain of events": (d.ComposeTransform([d.ExpTransform(), d.AffineTransform(0.0, 2.0, event_dim=1)]), x),
        "correlations": (d.CorrCholeskyTransform(), x),
        "distribution": (d.CumulativeDistributionTransform(d.Normal(f(0.5), 2.0)), x),
        "exp": (d.ExpTransform(), x),
        "identity": (d.identity_transform, x),
        "independent": (d.IndependentTransform(d.ExpTransform(), 1), x),
        "inverse": (d.ExpTransform().inv, up),
        "inverse of chain": (d.ComposeTransform([affine, d.ExpTransform()]).inv, up),
        "lower": (d.LowerCholeskyTransform(), square),
        "positive definite": (d.PositiveDefiniteTransform(), square),
        "power": (d.PowerTransform(f(2.5)), up),
        "reshape": (d.ReshapeTransform((2, 3), (3, 2)), x),
        "sigmoid": (d.SigmoidTransform(), x),
        "softmax": (d.SoftmaxTransform(), x),
        "softplus": (d.SoftplusTransform(), x),
        "stack": (d.StackTransform([d.ExpTransform(), d.TanhTransform()], dim=0), x),
        "sticks": (d.StickBreakingTransform(), x),
        "tanh": (d.TanhTransform(), x),
    }


OUR_TRANSFORMS, THEIR_TRANSFORMS = transforms(norch), transforms(torch)


@pytest.mark.parametrize("name", OUR_TRANSFORMS)
def test_a_transform(name):
    (t, x), (u, y) = OUR_TRANSFORMS[name], THEIR_TRANSFORMS[name]
    ahead, expected = t(x), u(y)
    same(ahead, expected)
    same(attempt(t, "inv", ahead), attempt(u, "inv", expected))
    same(attempt(t, "log_abs_det_jacobian", x, ahead), attempt(u, "log_abs_det_jacobian", y, expected))
    same(attempt(t, "sign"), attempt(u, "sign"))
    assert t.bijective == u.bijective
    assert t.forward_shape(x.shape) == tuple(u.forward_shape(y.shape))
    assert t.inverse_shape(ahead.shape) == tuple(u.inverse_shape(expected.shape))
    for what in ("domain", "codomain"):
        assert getattr(t, what).event_dim == getattr(u, what).event_dim
    same(t.domain.check(x), u.domain.check(y))
    same(t.codomain.check(ahead), u.codomain.check(expected))


# --- Constraints ----------------------------------------------------------------------------------------------------


def constraints(t: Any) -> dict[str, Any]:
    c = t.distributions.constraints
    named = (
        "boolean corr_cholesky lower_cholesky lower_triangular nonnegative nonnegative_integer one_hot positive "
        "positive_definite positive_integer positive_semidefinite real real_vector simplex square symmetric "
        "unit_interval"
    )
    made = {
        "cat": c.cat([c.positive, c.unit_interval], -1, [1, 2]),
        "greater": c.greater_than(0.3),
        "greater or equal": c.greater_than_eq(0.5),
        "half open": c.half_open_interval(0.0, 1.0),
        "independent": c.independent(c.positive, 2),
        "integers": c.integer_interval(0, 2),
        "interval": c.interval(-0.5, 1.0),
        "less": c.less_than(0.5),
        "multinomial": c.multinomial(2),
        "stack": c.stack([c.positive, c.unit_interval, c.real], -1),
    }
    return {name: getattr(c, name) for name in named.split()} | made


@pytest.mark.parametrize("name", constraints(norch))
def test_a_constraint(name):
    ours, theirs = constraints(norch)[name], constraints(torch)[name]
    lower = np.linalg.cholesky(CORRELATION)
    values = [np.array(v) for v in (PROBS + PROBS[:1], COVARIANCE, CORRELATION, [[1.0, 0, 0], [0, 1, 0], [0, 0, 2]])]
    for value in [*values, lower, -lower, lower * np.nan, np.ones((3, 3)), np.zeros((2, 3, 3))]:
        if value.ndim == 2 or name not in ("positive_definite", "positive_semidefinite"):
            if np.isnan(value).any() and name.startswith("positive_"):
                continue  # which LAPACK refuses
            same(ours.check(norch.tensor(value)), theirs.check(torch.tensor(value)))
    assert (ours.event_dim, ours.is_discrete) == (theirs.event_dim, theirs.is_discrete)
    assert repr(ours) == repr(theirs) or name in ("cat", "stack", "independent", "real_vector", "multinomial")


@pytest.mark.parametrize(
    "name",
    ["corr_cholesky", "greater", "half open", "independent", "interval", "less", "lower_cholesky", "positive",
     "positive_definite", "real", "real_vector", "simplex", "stack", "unit_interval", "nonnegative", "cat"],
)  # fmt: skip
@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
def test_transforms_to_constraints(registry, name):
    x = np.linspace(-1, 1, 9).reshape(3, 3)
    ours, theirs = (attempt(t.distributions, registry, constraints(t)[name]) for t in (norch, torch))
    if theirs is NotImplementedError:
        assert ours is NotImplementedError
        return
    made, expected = ours(norch.tensor(x)), theirs(torch.tensor(x))
    same(made, expected)
    assert bool(constraints(norch)[name].check(made).all())


def test_names_and_signatures():
    import inspect

    for name in torch.distributions.__all__:
        ours, theirs = getattr(norch.distributions, name), getattr(torch.distributions, name)
        if inspect.isclass(theirs) or inspect.isfunction(theirs):
            names = [list(inspect.signature(x).parameters) for x in (ours, theirs)]
            assert names[0] == names[1], name
    for module in ("constraints", "transforms", "utils", "kl", "constraint_registry"):
        ours, theirs = (__import__(f"{t}.distributions.{module}", fromlist=["x"]) for t in ("norch", "torch"))
        lacking = [n for n in getattr(theirs, "__all__", ()) if not hasattr(ours, n)]
        assert not lacking, f"{module}: {lacking}"


def test_random_parameters():
    draw = np.random.default_rng(0)
    for _, (a, b, x) in itertools.product(range(20), [draw.gamma(2.0, size=(3, 5))]):
        a, b, x = (draw.permutation(v) + 0.05 for v in (a, b, x))
        for make in (
            "Gamma",
            "InverseGamma",
            "LogNormal",
            "Weibull",
            "Gumbel",
            "FisherSnedecor",
            "StudentT",
            "Laplace",
        ):
            p = getattr(norch.distributions, make)(norch.tensor(a), norch.tensor(b))
            q = getattr(torch.distributions, make)(torch.tensor(a), torch.tensor(b))
            same(p.log_prob(norch.tensor(x)), q.log_prob(torch.tensor(x)))
            if make in ("Gamma", "InverseGamma"):
                same(p.cdf(norch.tensor(x)), q.cdf(torch.tensor(x)))
