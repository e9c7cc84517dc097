"""Distributions with a value that each can draw, of norch or of PyTorch: `cases(norch)` and `cases(torch)`."""

from __future__ import annotations

from typing import Any

PROBS = [[0.2, 0.3, 0.5], [0.7, 0.2, 0.1]]
COVARIANCE = [[2.0, 0.5, 0.1], [0.5, 1.0, -0.2], [0.1, -0.2, 0.7]]
CORRELATION = [[1.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 1.0]]
ONE_HOT = [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]


def continuous(t: Any) -> dict[str, tuple[Any, Any]]:
    """Of one number."""
    d = t.distributions

    def f(values: Any) -> Any:
        return t.tensor(values, dtype=t.float64)

    a, b, loc, scale = f([0.7, 2.5]), f([1.5, 0.4]), f([0.5, -1.0]), f([2.0, 0.25])
    mixture = d.Categorical(f([0.3, 0.7]))
    return {
        "beta": (d.Beta(a, b), f([0.3, 0.8])),
        "beta of modes": (d.Beta(f([3.0, 0.5, 0.3]), f([2.0, 0.5, 0.6])), f([0.3, 0.8, 0.1])),
        "cauchy": (d.Cauchy(loc, scale), f([0.3, 4.0])),
        "chi2": (d.Chi2(f([3.0, 1.0])), f([0.3, 4.0])),
        "continuous bernoulli": (d.ContinuousBernoulli(f([0.2, 0.5, 0.9, 0.4995])), f([0.2, 0.7, 1.0, 0.3])),
        "continuous bernoulli of logits": (d.ContinuousBernoulli(logits=f([0.2, -3.0])), f([0.2, 0.7])),
        "exponential": (d.Exponential(a), f([0.3, 2.0])),
        "fisher": (d.FisherSnedecor(f([3.0, 5.0]), f([6.0, 4.5])), f([0.3, 2.0])),
        "gamma": (d.Gamma(a, b), f([0.3, 2.0])),
        "generalised pareto": (
            d.GeneralizedPareto(f([0.1, 0.2, 0.3]), f([1.5, 0.4, 2.0]), f([0.3, 0.0, -0.4])),
            f([0.3, 2.0, 1.5]),
        ),
        "gumbel": (d.Gumbel(loc, scale), f([0.3, 2.0])),
        "half cauchy": (d.HalfCauchy(scale), f([0.3, 2.0])),
        "half normal": (d.HalfNormal(scale), f([0.3, 2.0])),
        "inverse gamma": (d.InverseGamma(f([0.7, 2.5, 3.0]), f([1.5, 0.4, 1.0])), f([0.3, 2.0, 1.0])),
        "kumaraswamy": (d.Kumaraswamy(f([0.7, 2.5]), f([1.5, 4.0])), f([0.3, 0.6])),
        "laplace": (d.Laplace(loc, scale), f([0.3, 2.0])),
        "log normal": (d.LogNormal(loc, scale), f([0.3, 2.0])),
        "mixture": (d.MixtureSameFamily(mixture, d.Normal(loc, scale)), f(0.3)),
        "normal": (d.Normal(loc, scale), f([0.3, 2.0])),
        "pareto": (d.Pareto(f([1.0, 0.5]), f([3.0, 1.5])), f([1.5, 0.7])),
        "relaxed bernoulli": (d.RelaxedBernoulli(f(0.7), f([0.3, 0.8])), f([0.3, 0.9])),
        "logit of relaxed": (d.relaxed_bernoulli.LogitRelaxedBernoulli(f(0.7), f([0.3, 0.8])), f([0.3, -0.9])),
        "student": (d.StudentT(f([0.8, 1.5, 4.0]), f(0.3), f(2.0)), f([0.3, 2.0, -4.0])),
        "tanh": (d.TransformedDistribution(d.Normal(loc, scale), d.TanhTransform()), f([0.3, -0.5])),
        "falling": (
            d.TransformedDistribution(d.Laplace(loc, scale), [d.ExpTransform(), d.AffineTransform(f(1.0), f(-2.0))]),
            f([0.3, -0.5]),
        ),
        "uniform": (d.Uniform(f([0.0, 1.0]), f([3.0, 1.5])), f([0.3, 1.2])),
        "von mises": (d.VonMises(loc, f([0.5, 40.0])), f([0.3, -1.2])),
        "weibull": (d.Weibull(scale, f([1.7, 2.5])), f([0.3, 1.2])),
    }


def discrete(t: Any) -> dict[str, tuple[Any, Any]]:
    """Of one count or index."""
    d = t.distributions

    def f(values: Any) -> Any:
        return t.tensor(values, dtype=t.float64)

    return {
        "bernoulli": (d.Bernoulli(f([0.2, 0.5, 0.9])), f([0.0, 1.0, 1.0])),
        "bernoulli of logits": (d.Bernoulli(logits=f([0.2, -1.5])), f([0.0, 1.0])),
        "binomial": (d.Binomial(7, f([0.3, 0.8])), f([2.0, 7.0])),
        "binomial of logits": (d.Binomial(7, logits=f([0.3, -0.8])), f([0.0, 3.0])),
        "categorical": (d.Categorical(f(PROBS)), t.tensor([2, 0])),
        "categorical of logits": (d.Categorical(logits=f(PROBS)), t.tensor([2, 0])),
        "geometric": (d.Geometric(f([0.3, 0.8])), f([0.0, 4.0])),
        "geometric of logits": (d.Geometric(logits=f([0.3, -0.8])), f([0.0, 4.0])),
        "negative binomial": (d.NegativeBinomial(f([3.0, 2.5]), f([0.3, 0.8])), f([0.0, 4.0])),
        "negative binomial of logits": (d.NegativeBinomial(f([3.0, 2.5]), logits=f([0.3, -0.8])), f([0.0, 4.0])),
        "poisson": (d.Poisson(f([3.0, 0.5])), f([1.0, 0.0])),
    }


def vectors(t: Any) -> dict[str, tuple[Any, Any]]:
    """Of vectors and matrices."""
    d = t.distributions

    def f(values: Any) -> Any:
        return t.tensor(values, dtype=t.float64)

    loc, cov, factor = f([0.1, 0.2, 0.3]), f(COVARIANCE), f([[1.0, 0.5], [0.2, -0.4], [0.0, 1.0]])
    pairs = d.Independent(d.Normal(f([[1.0, 2.0], [3.0, 4.0]]), 1.0), 1)
    normals = d.Independent(d.Normal(f([0.0, 1.0]), 1.0), 1)
    return {
        "dirichlet": (d.Dirichlet(f([[1.5, 0.3, 4.0], [0.5, 0.4, 0.3]])), f(PROBS)),
        "independent": (d.Independent(d.Normal(f(PROBS), 1.5), 1), f(PROBS)),
        "lkj": (d.LKJCholesky(3, f([0.5, 2.0])), t.linalg.cholesky(f(CORRELATION))),
        "logistic normal": (d.LogisticNormal(f([0.1, 0.2]), f([0.5, 1.0])), f([0.2, 0.3, 0.5])),
        "low rank": (d.LowRankMultivariateNormal(loc, factor, f([0.5, 1.0, 2.0])), f(PROBS[0])),
        "multivariate": (d.MultivariateNormal(loc, cov), f(PROBS[0])),
        "multivariate by precision": (
            d.MultivariateNormal(f([[0.1, 0.2, 0.3], [1.0, 2.0, 3.0]]), precision_matrix=cov),
            f(PROBS),
        ),
        "multivariate by factor": (d.MultivariateNormal(loc, scale_tril=t.linalg.cholesky(cov)), f(PROBS[0])),
        "mixture of pairs": (d.MixtureSameFamily(d.Categorical(f([0.3, 0.7])), pairs), f([0.3, 2.0])),
        "multinomial": (d.Multinomial(5, f(PROBS)), f([[1.0, 2.0, 2.0], [5.0, 0.0, 0.0]])),
        "one hot": (d.OneHotCategorical(f(PROBS)), f(ONE_HOT)),
        "straight through": (d.OneHotCategoricalStraightThrough(logits=f(PROBS)), f(ONE_HOT)),
        "relaxed one hot": (d.RelaxedOneHotCategorical(f(0.7), f(PROBS)), f(PROBS)),
        "log of relaxed": (d.relaxed_categorical.ExpRelaxedCategorical(f(0.7), f(PROBS)), f(PROBS).log()),
        "sticks": (d.TransformedDistribution(normals, d.StickBreakingTransform()), f([0.2, 0.3, 0.5])),
        "wishart": (d.Wishart(f([4.5, 3.0]), cov), f([[2.0, 0.3, 0.1], [0.3, 1.5, -0.2], [0.1, -0.2, 1.0]])),
    }


def cases(t: Any) -> dict[str, tuple[Any, Any]]:
    return continuous(t) | discrete(t) | vectors(t)
