"""Distributions: densities and entropies against formulas (and PyTorch, where it is installed), draws by statistics."""

from __future__ import annotations

import math

import numpy as np
import pytest

import norch

D = norch.distributions
LOC, SCALE = [0.5, -1.0], [2.0, 0.25]
P = [[0.2, 0.3, 0.5], [0.7, 0.2, 0.1]]


def wide(values):
    return norch.tensor(values, dtype=norch.float64)


def test_normal():
    p = D.Normal(wide(LOC), wide(SCALE))
    x = wide([1.0, -0.5])
    expected = [-((v - m) ** 2) / (2 * s * s) - math.log(s * math.sqrt(2 * math.pi)) for v, m, s in zip(x, LOC, SCALE)]
    np.testing.assert_allclose(p.log_prob(x).numpy(), np.array(expected, float), 1e-12)
    np.testing.assert_allclose(p.entropy().numpy(), [0.5 * math.log(2 * math.pi * math.e * s * s) for s in SCALE])
    assert norch.allclose(p.icdf(p.cdf(x)), x)
    norch.manual_seed(0)
    drawn = p.sample((20000,))
    assert drawn.shape == (20000, 2)
    assert norch.allclose(drawn.mean(0), p.mean, atol=0.05)
    assert norch.allclose(drawn.std(0), p.stddev, atol=0.05)


def test_gradients_pass_through_rsample_only():
    loc, scale = wide(0.0).requires_grad_(), wide(1.0).requires_grad_()
    p = D.Normal(loc, scale)
    p.rsample((5,)).sum().backward()
    assert loc.grad.item() == 5
    assert not p.sample().requires_grad
    with pytest.raises(NotImplementedError, match=r"Bernoulli.rsample"):
        D.Bernoulli(0.5).rsample()


def test_uniform_and_bernoulli():
    norch.manual_seed(1)
    p = D.Uniform(wide(1.0), 3.0)
    assert p.sample((5000,)).mean().item() == pytest.approx(2.0, abs=0.05)
    assert D.Uniform(wide(1.0), 3.0, False).log_prob(wide([2.0, 4.0])).tolist() == [-math.log(2), -math.inf]
    with pytest.raises(ValueError, match=r"Uniform: expected value .* Interval\(lower_bound=1.0, upper_bound=3.0\)"):
        p.log_prob(wide([2.0, 4.0]))
    q = D.Bernoulli(logits=wide([0.0, math.log(3)]))
    assert norch.allclose(q.sample((5000,)).mean(0), wide([0.5, 0.75]), atol=0.03)
    assert norch.allclose(q.log_prob(norch.tensor([1, 0])), wide([0.5, 0.25]).log())
    assert norch.allclose(q.variance, wide([0.25, 0.1875]))


def test_categorical():
    norch.manual_seed(2)
    p = D.Categorical(wide(P))
    drawn = p.sample((4000,))
    assert (drawn.shape, drawn.dtype) == ((4000, 2), norch.int64)
    assert norch.allclose(drawn[:, 1].bincount() / 4000, wide(P[1]), atol=0.03, rtol=0.1)
    assert norch.allclose(p.log_prob(norch.tensor([2, 0])), wide([0.5, 0.7]).log())
    assert p.log_prob(drawn).shape == (4000, 2)
    assert p.mode.tolist() == [2, 0]
    assert D.Categorical(logits=norch.zeros(3)).sample().shape == ()
    with pytest.raises(ValueError, match="either"):
        D.Categorical()


def test_divergences():
    p, q = D.Normal(wide(0.0), 1.0), D.Normal(wide(1.0), 2.0)
    assert D.kl_divergence(p, q).item() == pytest.approx(math.log(2) + 2 / 8 - 0.5)
    assert D.kl_divergence(p, D.Uniform(0.0, 1.0)).item() == math.inf
    with pytest.raises(NotImplementedError, match="Normal and Categorical"):
        D.kl_divergence(p, D.Categorical(wide(P)))


def test_like_pytorch():
    torch = pytest.importorskip("torch")

    def run(t):
        d, tensor = t.distributions, lambda v: t.tensor(v, dtype=t.float64)
        p, q = d.Normal(tensor(LOC), tensor(SCALE)), d.Normal(tensor(SCALE), 1.5)
        c, e = d.Categorical(tensor(P)), d.Categorical(logits=tensor(P))
        b, f = d.Bernoulli(tensor(P)), d.Bernoulli(logits=tensor(P))
        found = [p.log_prob(tensor(0.5)), p.entropy(), d.kl_divergence(p, q), c.entropy(), e.entropy(), b.entropy()]
        found += [c.log_prob(t.tensor([1, 2])), d.kl_divergence(c, e), f.log_prob(tensor(1.0)), d.kl_divergence(b, f)]
        u = d.Uniform(tensor([0.0, 1.0]), 4.0)
        found += [u.log_prob(tensor([1.0, 2.0])), u.entropy(), u.mean, u.variance, b.logits, c.logits, e.probs]
        return [x.numpy() for x in found]

    for i, (got, expected) in enumerate(zip(run(norch), run(torch), strict=True)):
        np.testing.assert_allclose(got, expected, 1e-9, 1e-12, err_msg=f"result {i}")


def test_the_gradient_of_a_binomial_where_both_outcomes_are_as_likely():
    logits = norch.tensor([0.0, -100.0, 100.0], requires_grad=True)
    logs = D.Binomial(2.0, logits=logits).log_prob(norch.zeros(3))
    logs.sum().backward()
    assert logits.grad.tolist() == pytest.approx([-1, 0, -2])
    assert logs.tolist() == pytest.approx([-2 * math.log(2), 0, -200])


def test_no_finite_divergence_from_what_never_happens():
    p, q = norch.tensor([0.0, 1.0, 0.5, 0.5, 0.0, 1.0]), norch.tensor([1.0, 0.0, 0.0, 1.0, 0.0, 1.0])
    found = D.kl_divergence(D.Bernoulli(p), D.Bernoulli(q))
    assert found.tolist()[:4] == [math.inf] * 4
    assert found.tolist()[4:] == pytest.approx([0, 0], abs=1e-5)


def test_transforms_of_tensors_are_equal_to_themselves():
    one, other = D.AffineTransform(norch.ones(5), 2.0), D.AffineTransform(norch.zeros(5), 2.0)
    assert one == one
    assert one == D.AffineTransform(norch.ones(5), 2.0)
    assert one != other
    power = D.PowerTransform(norch.tensor([1.0, 2.0]))
    assert power == power
    assert D.Gamma(1, 1).log_prob(1).item() == pytest.approx(-1)


def test_the_degrees_of_freedom_may_be_integers() -> None:
    made = norch.distributions.Wishart(norch.tensor([3, 5]), norch.eye(2))
    assert made.sample().shape == (2, 2, 2)
    assert made.mean.tolist() == [[[3.0, 0.0], [0.0, 3.0]], [[5.0, 0.0], [0.0, 5.0]]]


def test_samples_by_bartletts_decomposition() -> None:
    draws = norch.distributions.Wishart(norch.tensor(5.0), norch.eye(2))._bartlett_sampling(norch.Size((400,)))
    assert draws.shape == (400, 2, 2)
    assert (norch.linalg.eigvalsh(draws) > 0).all()
    np.testing.assert_allclose(draws.mean(0).numpy(), 5 * np.eye(2), atol=1)
