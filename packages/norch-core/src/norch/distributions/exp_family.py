"""`ExponentialFamily`, whose entropy and divergences follow from its normaliser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..autograd.engine import grad
from ..autograd.mode import enable_grad
from .distribution import Distribution
from .utils import sum_rightmost

if TYPE_CHECKING:
    from ..tensor import Tensor


class ExponentialFamily(Distribution):
    """Distributions of density h(x) exp(<t(x), natural parameters> - log_normalizer(natural parameters)).

    Whoever writes another gives `_natural_params`, `_log_normalizer` and `_mean_carrier_measure`, the expectation of
    log h(x); the entropy is computed of their derivatives (Nielsen and Nock, 2010).
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError(f"{type(self).__name__} has no _natural_params")

    def _log_normalizer(self, *natural_params: Any) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no _log_normalizer")

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no _mean_carrier_measure")

    def _expected(self) -> tuple[Tensor, list[Any], Any]:
        """The normaliser, the natural parameters, and its derivatives by them: the expectations of t(x)."""
        with enable_grad():
            parameters = [p if p.requires_grad else p.detach().requires_grad_() for p in self._natural_params]
            normaliser = self._log_normalizer(*parameters)
            return normaliser, parameters, grad(normaliser.sum(), parameters, create_graph=True)

    def entropy(self) -> Tensor:
        carrier = self._mean_carrier_measure
        normaliser, parameters, expected = self._expected()
        result: Tensor = normaliser - carrier
        for p, g in zip(parameters, expected, strict=True):
            result = result - sum_rightmost(p * g, len(self._event_shape))
        return result
