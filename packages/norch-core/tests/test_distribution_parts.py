"""What distributions are made of: transforms, constraints, expansion, tables; and programs that use them."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from copy import deepcopy
from typing import Any

import pytest
from distribution_cases import CORRELATION, COVARIANCE, PROBS, cases

import norch

D = norch.distributions
constraints = D.constraints


def wide(values: Any, grad: bool = False) -> Any:
    return norch.tensor(values, dtype=norch.float64, requires_grad=grad)


# --- Transforms -----------------------------------------------------------------------------------------------------

X = [0.3, -0.7, 1.2]
BIJECTIVE = {
    "affine": lambda: (D.AffineTransform(wide([1.0, 2.0, 3.0]), wide(-2.0)), X),
    "affine of events": lambda: (D.AffineTransform(1.0, 2.5, event_dim=1), X),
    "cat": lambda: (D.CatTransform([D.ExpTransform(), D.TanhTransform()], -1, [1, 2]), X),
    "chain": lambda: (D.ComposeTransform([D.AffineTransform(0.5, 2.0), D.TanhTransform()]), X),
    "correlations": lambda: (D.CorrCholeskyTransform(), X),
    "distribution": lambda: (D.CumulativeDistributionTransform(D.Normal(wide(0.5), 2.0)), X),
    "exp": lambda: (D.ExpTransform(), X),
    "identity": lambda: (D.identity_transform, X),
    "independent": lambda: (D.IndependentTransform(D.ExpTransform(), 1), X),
    "inverse": lambda: (D.SoftplusTransform().inv, [0.3, 0.7, 1.2]),
    "power": lambda: (D.PowerTransform(wide(2.5)), [0.3, 0.7, 1.2]),
    "falling power": lambda: (D.PowerTransform(-1.0), [0.3, 0.7, 1.2]),
    "reshape": lambda: (D.ReshapeTransform((3,), (3, 1)), X),
    "sigmoid": lambda: (D.SigmoidTransform(), X),
    "softplus": lambda: (D.SoftplusTransform(), X),
    "stack": lambda: (D.StackTransform([D.ExpTransform(), D.TanhTransform(), D.SigmoidTransform()]), X),
    "sticks": lambda: (D.StickBreakingTransform(), X),
    "tanh": lambda: (D.TanhTransform(), X),
}


@pytest.mark.parametrize("name", BIJECTIVE)
def test_jacobians_and_inverses(name):
    transform, values = BIJECTIVE[name]()
    x = wide(values)
    y = transform(x)
    assert transform.bijective
    assert norch.allclose(transform.inv(y), x)
    assert transform.inv.inv is transform
    assert transform.forward_shape(x.shape) == y.shape
    assert transform.inverse_shape(y.shape) == x.shape
    assert bool(transform.codomain.check(y).all())
    flat = {"correlations": lambda y: y[[1, 2, 2], [0, 0, 1]], "sticks": lambda y: y[:-1]}
    jacobian = norch.autograd.functional.jacobian(lambda v: flat.get(name, lambda y: y)(transform(v)).reshape(-1), x)
    expected = norch.linalg.slogdet(jacobian)[1]
    for found in (transform.log_abs_det_jacobian(x, y), -transform.inv.log_abs_det_jacobian(y, x)):
        assert found.shape == x.shape[: x.ndim - transform.domain.event_dim]
        assert norch.allclose(found.sum(), expected)
    if name not in ("reshape", "stack", "cat", "sticks", "correlations"):
        assert bool((norch.sign(jacobian.diagonal()) == wide(transform.sign)).all())


def test_transforms_that_lose_something():
    x = wide(X)
    assert norch.allclose(D.AbsTransform()(x), x.abs())
    soft = D.SoftmaxTransform()
    assert norch.allclose(soft(soft.inv(soft(x))), soft(x))
    square = wide(COVARIANCE)
    for transform in (D.LowerCholeskyTransform(), D.PositiveDefiniteTransform()):
        made = transform(square)
        assert bool(transform.codomain.check(made))
        assert norch.allclose(transform(transform.inv(made)), made)


def test_a_cache_keeps_the_last_pair():
    transform = D.TanhTransform(cache_size=1)
    x = wide([40.0], True)  # whose tanh is 1
    y = transform(x)
    assert transform.inv(y) is x
    assert transform(x) is y
    assert math.isinf(D.TanhTransform().inv(y).item())
    assert D.TanhTransform().with_cache().with_cache(0) == transform
    assert D.AffineTransform(1.0, 2.0) == D.AffineTransform(1.0, 2.0, cache_size=1) != D.AffineTransform(1.0, 3.0)
    assert D.ExpTransform().inv == D.ExpTransform().inv != D.TanhTransform().inv
    chain = D.ComposeTransform([D.AffineTransform(0.0, 2.0), D.TanhTransform()], cache_size=1)
    y = chain(x)
    assert chain.inv(y) is x
    assert len({hash(t) for t in (chain, transform)}) == 2
    again = pickle.loads(pickle.dumps(transform))
    assert norch.equal(again(x), transform(x))


def test_registered_constraints():
    x = wide([[0.1, -0.4, 2.0]] * 3)
    for constraint in (
        constraints.positive, constraints.nonnegative, constraints.unit_interval, constraints.interval(-2.0, 3.0),
        constraints.less_than(0.5), constraints.greater_than(wide([1.0, 2.0, 3.0])), constraints.simplex,
        constraints.half_open_interval(0.0, 2.0), constraints.corr_cholesky, constraints.real,
        constraints.independent(constraints.positive, 1), constraints.stack([constraints.positive] * 3, -1),
        constraints.cat([constraints.positive, constraints.unit_interval], -1, [1, 2]),
    ):  # fmt: skip
        made = D.biject_to(constraint)(x)
        assert bool(constraint.check(made).all())
        assert norch.allclose(D.biject_to(constraint).inv(made), x)
        assert bool(constraint.check(D.transform_to(constraint)(x)).all())
    for constraint in (constraints.lower_cholesky, constraints.positive_definite):
        assert bool(constraint.check(D.transform_to(constraint)(x)).all())

    class Even(constraints.Constraint):
        def check(self, value: Any) -> Any:
            return value % 2 == 0

    @D.transform_to.register(Even)
    def to_even(constraint: Any) -> Any:
        return D.AffineTransform(0.0, 2.0)

    assert D.transform_to(Even())(wide(3.0)).item() == 6
    assert repr(Even()) == "Even()"
    del D.transform_to._registry[Even]


@pytest.mark.parametrize(
    ("constraint", "value", "expected"),
    [
        (constraints.boolean, [0.0, 1.0, 0.5], [True, True, False]),
        (constraints.nonnegative_integer, [0.0, 1.5, -1.0], [True, False, False]),
        (constraints.positive_integer, [0.0, 1.0, 1.5], [False, True, False]),
        (constraints.integer_interval(0, 2), [2.0, 3.0, 0.5], [True, False, False]),
        (constraints.real, [2.0, math.inf, math.nan], [True, True, False]),
        (constraints.half_open_interval(0.0, 1.0), [0.0, 1.0], [True, False]),
        (constraints.interval(0.0, 1.0), [0.0, 1.0, 1.1], [True, True, False]),
        (constraints.one_hot, [[0.0, 1.0], [1.0, 1.0]], [True, False]),
        (constraints.simplex, [[0.5, 0.5], [0.5, 0.4], [1.5, -0.5]], [True, False, False]),
        (constraints.multinomial(3), [[1.0, 2.0], [2.0, 2.0]], [True, False]),
        (constraints.positive_definite, [COVARIANCE, CORRELATION, [[1.0, 2.0, 0.0]] * 3], [True, True, False]),
        (constraints.positive_semidefinite, [[[1.0, 1.0], [1.0, 1.0]], [[-1.0, 0.0], [0.0, 1.0]]], [True, False]),
        (constraints.lower_triangular, [[[1.0, 0.0], [1.0, -1.0]], [[1.0, 1.0], [0.0, 1.0]]], [True, False]),
        (constraints.lower_cholesky, [[[1.0, 0.0], [1.0, -1.0]], [[1.0, 0.0], [0.0, 1.0]]], [False, True]),
        (constraints.symmetric, [[[1.0, 2.0], [2.0, 1.0]], [[1.0, 2.0], [0.0, 1.0]]], [True, False]),
        (constraints.square, [[[1.0, 2.0]]], [False]),
        (constraints.independent(constraints.positive, 1), [[1.0, 2.0], [1.0, -1.0]], [True, False]),
    ],
)
def test_constraints(constraint, value, expected):
    assert constraint.check(wide(value)).tolist() == expected


# --- Distributions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", cases(norch))
def test_expand_copy_and_show(name):
    p, x = cases(norch)[name]
    shape = (2, *p.batch_shape)
    q = p.expand(shape)
    assert type(q) is type(p)
    assert (q.batch_shape, q.event_shape) == (shape, p.event_shape)
    assert norch.allclose(q.log_prob(x), p.log_prob(x).expand(shape))
    assert q.sample((3,)).shape == (3, *shape, *p.event_shape)
    assert norch.allclose(deepcopy(p).log_prob(x), p.log_prob(x))
    assert norch.allclose(pickle.loads(pickle.dumps(p)).log_prob(x), p.log_prob(x))
    assert repr(p).startswith(f"{type(p).__name__}(")
    assert (p.log_prob(x).shape, p.has_rsample) == (p.batch_shape, p.has_rsample)


def test_expand_of_a_class_that_keeps_more_than_parameters():
    class Ratio(D.Beta):
        def __init__(self, a, b):
            super().__init__(a, b)
            self.parts = D.Gamma(norch.stack([a, b], -1), norch.ones(2))

    with pytest.raises(NotImplementedError, match="needs its own expand"):
        Ratio(norch.tensor(1.0), norch.tensor(2.0)).expand((3,))

    class Named(D.Beta):
        pass

    assert type(Named(norch.tensor(1.0), norch.tensor(2.0)).expand((3,))) is Named


def test_expand_after_a_late_property_was_read():
    p = D.Bernoulli(wide([0.2, 0.7]))
    assert p.logits.shape == (2,)
    q = p.expand((3, 2))
    assert q.logits.shape == q.probs.shape == q.mode.shape == (3, 2)
    full = D.MultivariateNormal(wide([0.0, 1.0]), norch.eye(2, dtype=norch.float64))
    assert full.precision_matrix.shape == (2, 2)
    assert full.expand((3,)).precision_matrix.shape == (3, 2, 2)


def test_gradients_reach_logits_through_probs():
    logits = wide(0.3, True)
    p = D.Bernoulli(logits=logits)
    with norch.no_grad():
        p.probs
    assert norch.autograd.grad(p.probs, logits)[0].item() == pytest.approx(0.2445, abs=1e-4)


def test_distributions_of_programs():
    class Half(D.Distribution):
        arg_constraints = {"scale": constraints.positive}
        support = constraints.positive

        def __init__(self, scale: Any, validate_args: Any = None) -> None:
            (self.scale,) = D.utils.broadcast_all(scale)
            super().__init__(self.scale.shape, norch.Size(), validate_args=validate_args)

        def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
            new = self._get_checked_instance(Half, _instance)
            new.scale = self.scale.expand(batch_shape)
            super(Half, new).__init__(batch_shape, validate_args=False)
            return new

    p = Half(wide([1.0, 2.0]))
    assert p.expand((3, 2)).scale.shape == (3, 2)
    with pytest.raises(ValueError, match="Half: expected parameter scale"):
        Half(-1.0)

    class Other(Half):
        def __init__(self, scale: Any, more: Any) -> None:
            super().__init__(scale)

    with pytest.raises(NotImplementedError, match="needs its own expand"):
        Other(1.0, 2).expand((2,))
    for call in (p.rsample, p.entropy, lambda: p.mean, lambda: p.mode, lambda: p.variance, p.log_prob):
        with pytest.raises((NotImplementedError, TypeError)):
            call()

    @D.register_kl(Half, D.Normal)
    def divergence(p: Any, q: Any) -> Any:
        return p.scale * 3

    assert D.kl_divergence(p, D.Normal(0.0, 1.0)).tolist() == [3, 6]
    assert D.kl_divergence(Other(1.0, 2), D.Normal(0.0, 1.0)).item() == 3
    with pytest.raises(NotImplementedError, match="Normal and Half"):
        D.kl_divergence(D.Normal(0.0, 1.0), p)


@pytest.mark.parametrize("name", ["normal", "bernoulli", "beta", "dirichlet", "exponential", "gamma"])
def test_exponential_families(name):
    p, _ = cases(norch)[name]
    assert norch.allclose(D.ExponentialFamily.entropy(p), p.entropy())
    from norch.distributions.kl import _KL_REGISTRY

    general = _KL_REGISTRY[D.ExponentialFamily, D.ExponentialFamily]
    q = p.expand((2, *p.batch_shape))
    assert norch.allclose(general(p, q), norch.zeros(q.batch_shape, dtype=norch.float64), atol=1e-12)
    others = {
        "normal": lambda: D.Normal(wide(1.0), 2.0),
        "bernoulli": lambda: D.Bernoulli(wide(0.4)),
        "beta": lambda: D.Beta(wide(1.2), 0.7),
        "dirichlet": lambda: D.Dirichlet(wide([1.0, 2.0, 0.4])),
        "exponential": lambda: D.Exponential(wide(2.0)),
        "gamma": lambda: D.Gamma(wide(1.2), 0.7),
    }
    other = others[name]()
    assert norch.allclose(general(p, other), D.kl_divergence(p, other))
    with pytest.raises(NotImplementedError, match="norch has none of"):
        general(p, D.Poisson(1.0))


def test_divergences_of_others():
    p, q = (D.Independent(D.Normal(wide(PROBS), s), 1) for s in (1.0, 2.0))
    assert norch.allclose(D.kl_divergence(p, q), D.kl_divergence(p.base_dist, q.base_dist).sum(-1))
    with pytest.raises(NotImplementedError, match="reinterpreted_batch_ndims"):
        D.kl_divergence(p, D.Independent(q.base_dist, 2))
    a, b = (D.TransformedDistribution(D.Normal(m, 1.0), D.TanhTransform()) for m in (0.0, 1.0))
    assert D.kl_divergence(a, b).item() == pytest.approx(0.5)
    with pytest.raises(NotImplementedError, match="transforms"):
        D.kl_divergence(a, D.LogNormal(0.0, 1.0))
    masked = D.Categorical(logits=norch.tensor([0.0, 0.0, -math.inf]))
    assert masked.entropy().item() == pytest.approx(math.log(2))
    assert D.kl_divergence(masked, D.Categorical(norch.ones(3))).item() == pytest.approx(math.log(1.5))
    assert D.kl_divergence(D.Categorical(norch.ones(3)), masked).item() == math.inf
    one, two = D.OneHotCategorical(wide(PROBS)), D.OneHotCategorical(wide(PROBS[::-1]))
    assert norch.allclose(D.kl_divergence(one, two), D.kl_divergence(one._categorical, two._categorical))


def test_utils():
    utils = D.utils
    matrix = wide(COVARIANCE).tril(-1)
    assert norch.allclose(utils.vec_to_tril_matrix(utils.tril_matrix_to_vec(matrix, -1), -1), matrix)
    assert norch.allclose(utils.vec_to_tril_matrix(utils.tril_matrix_to_vec(matrix)), matrix)
    for binary in (True, False):
        probs = wide(PROBS)
        assert norch.allclose(utils.logits_to_probs(utils.probs_to_logits(probs, binary), binary), probs)
    assert utils.clamp_probs(wide([0.0, 1.0])).tolist() == [norch.finfo(norch.float64).eps, 1 - 2.0**-52]
    x, y = utils.broadcast_all(1, norch.ones(2, 1))
    assert (x.shape, x.dtype) == (y.shape, y.dtype)


# --- Programs -------------------------------------------------------------------------------------------------------


def test_a_policy_of_independent_normals():
    """As PPO has it: the ratio of probabilities and a bonus for entropy."""
    norch.manual_seed(0)
    mean, log_std = norch.zeros(5, 3, requires_grad=True), norch.zeros(3, requires_grad=True)
    p = D.Independent(D.Normal(mean, log_std.exp()), 1)
    action = p.sample()
    old = p.log_prob(action).detach()
    loss = -((p.log_prob(action) - old).exp() * norch.ones(5)).mean() - 0.01 * p.entropy().mean()
    loss.backward()
    assert p.entropy().shape == (5,)
    assert norch.allclose(mean.grad, -action.detach() / 5)
    assert norch.allclose(log_std.grad, -(action * action - 1).mean(0) - 0.01)


def test_a_squashed_policy():
    """As SAC has it: what tanh makes of normal draws, whose density needs what they were before."""
    norch.manual_seed(0)
    mean, std = norch.zeros(4, 2, requires_grad=True), norch.ones(4, 2, requires_grad=True)
    base = D.Normal(mean * 3 + 9, std)
    p = D.Independent(D.TransformedDistribution(base, D.TanhTransform(cache_size=1)), 1)
    action = p.rsample()
    log_prob = p.log_prob(action)
    assert log_prob.shape == (4,)
    assert bool(norch.isfinite(log_prob).all())
    (log_prob.mean() - action.sum()).backward()
    assert bool(norch.isfinite(mean.grad).all() & norch.isfinite(std.grad).all())
    x = wide([[0.2, -0.3]])
    exact = D.TransformedDistribution(D.Normal(wide(0.0), 1.0), D.TanhTransform())
    expected = D.Normal(wide(0.0), 1.0).log_prob(x) - (1 - x.tanh() ** 2).log()
    assert norch.allclose(exact.log_prob(x.tanh()), expected)


SERIES = """
import torch
from torch.distributions import (
    AffineTransform, Distribution, Independent, NegativeBinomial, Normal, StudentT, TransformedDistribution,
)
import torch.distributions as dist
from torch.distributions import constraints, kl_divergence
from torch.distributions.constraint_registry import transform_to
from torch.distributions.kl import register_kl
from torch.distributions.studentT import StudentT as again
from torch.distributions.transforms import Transform, TanhTransform
from torch.distributions.utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits

class AffineTransformed(TransformedDistribution):
    def __init__(self, base_distribution: Distribution, loc=None, scale=None, event_dim=0):
        self.scale = 1.0 if scale is None else scale
        self.loc = 0.0 if loc is None else loc
        super().__init__(base_distribution, [AffineTransform(loc=self.loc, scale=self.scale, event_dim=event_dim)])

    @property
    def mean(self):
        return self.base_dist.mean * self.scale + self.loc

    @property
    def variance(self):
        return self.base_dist.variance * self.scale**2

torch.manual_seed(0)
df, loc, scale = 2 + torch.rand(3, 4), torch.randn(3, 4), torch.rand(3, 4) + 0.1
p = AffineTransformed(StudentT(df, loc, scale), loc=torch.ones(3, 1), scale=torch.full((3, 1), 2.0))
assert p.sample((5,)).shape == (5, 3, 4) and p.log_prob(torch.zeros(3, 4)).shape == (3, 4)
assert p.mean.shape == p.variance.shape == (3, 4)
whole = AffineTransformed(Independent(Normal(loc, scale), 1), torch.ones(3, 1), torch.full((3, 1), 2.0), event_dim=1)
assert whole.log_prob(torch.zeros(3, 4)).shape == (3,)
counts = NegativeBinomial(total_count=scale, logits=loc + scale.log())
assert counts.log_prob(counts.sample()).shape == (3, 4)
assert again is dist.StudentT is StudentT
print("done")
"""


def test_imports_of_programs_and_a_time_series(tmp_path):
    script = tmp_path / "series.py"
    script.write_text(SERIES)
    found = subprocess.run(
        [sys.executable, "-m", "norch", "run", "--as-torch", str(script)], capture_output=True, text=True
    )
    assert (found.stdout.strip(), found.returncode) == ("done", 0), found.stderr


def test_a_name_that_is_missing_is_reported():
    from norch.submodules import missing_names

    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        D.Nothing
    assert missing_names.pop("norch.distributions.Nothing", "") is None


def test_distributions_are_loaded_late():
    code = "import sys, norch; print([m for m in sys.modules if m.startswith('norch.distributions')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_a_transform_sets_its_domain_when_it_is_made():
    class Scaled(D.Transform):
        bijective = True

        def __init__(self, factor):
            super().__init__()
            self.factor = factor
            self.domain = self.codomain = D.constraints.real

        def _call(self, x):
            return x * self.factor

        def _inverse(self, y):
            return y / self.factor

    scaled = Scaled(3.0)
    assert scaled.inv(scaled(norch.tensor(2.0))).item() == 2
    assert scaled.inv.domain is D.constraints.real
    assert D.Transform().bijective is False


def test_the_dirichlet_of_a_beta_sets_its_concentrations():
    beta = norch.distributions.Beta(norch.tensor([1.0, 2.0]), norch.tensor([3.0, 4.0]))
    assert beta._dirichlet.concentration.tolist() == [[1.0, 3.0], [2.0, 4.0]]
    beta._dirichlet.concentration = norch.tensor([[5.0, 6.0], [7.0, 8.0]])
    assert beta.concentration1.tolist() == [5.0, 7.0]
    assert beta.concentration0.tolist() == [6.0, 8.0]
    assert beta._dirichlet.mean[0, 0].item() == beta.mean[0].item()


def test_an_event_may_be_of_several_shapes():
    made = norch.distributions.Distribution((2,), ((3,), (4, 5)), validate_args=False)
    assert made.batch_shape == norch.Size((2,))
    assert made.event_shape == ((3,), (4, 5))
