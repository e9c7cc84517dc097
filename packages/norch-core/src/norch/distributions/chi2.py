"""The chi-squared distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import constraints
from .gamma import Gamma

if TYPE_CHECKING:
    from ..tensor import Tensor


class Chi2(Gamma):
    """The chi-squared distribution of `df` degrees of freedom: Gamma(df / 2, 1 / 2)."""

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom, of shape `batch_shape`."""
        return self.concentration * 2
