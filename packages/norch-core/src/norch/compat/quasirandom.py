"""Sobol sequences, as `torch.quasirandom` has them: points that fill a cube evenly. SciPy computes them."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..dtype import get_default_dtype
from ..ops.from_data import tensor

if TYPE_CHECKING:
    from ..tensor import Tensor


class SobolEngine:
    """The Sobol sequence (1967) of `dimension` numbers from 0 to 1, with the direction numbers of Joe and Kuo (2008).

    scramble: whether it is scrambled at random, after Owen (1998), by `seed`. Raises ValueError for a dimension below 1
    or above 21201, ImportError where SciPy is not installed.
    """

    MAXBIT, MAXDIM = 30, 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(f"SobolEngine(): dimension must be from 1 to {self.MAXDIM}, got {dimension}")
        try:
            sobol: Any = import_module("scipy.stats.qmc").Sobol
        except ImportError:
            raise ImportError("SobolEngine() needs SciPy: pip install scipy") from None
        self.dimension, self.scramble, self.seed, self.num_generated = dimension, scramble, seed, 0
        try:
            self._sequence = sobol(dimension, scramble=scramble, rng=seed)
        except TypeError:  # SciPy before 1.15
            self._sequence = sobol(dimension, scramble=scramble, seed=seed)

    def __repr__(self) -> str:
        more = f", seed={self.seed}" if self.seed is not None else ""
        return f"SobolEngine(dimension={self.dimension}, scramble={self.scramble}{more})"

    def draw(self, n: int = 1, out: Any = None, dtype: Any = None) -> Tensor:
        """The next `n` points, (n, dimension), of `dtype` or the default dtype; into `out` where it is given."""
        self.num_generated += n
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of counts that are no powers of 2
            drawn = self._sequence.random(n)
        points = tensor(drawn, dtype=dtype or get_default_dtype())
        return points if out is None else out.copy_(points)

    def draw_base2(self, m: int, out: Any = None, dtype: Any = None) -> Tensor:
        """The next 2 ** `m` points, as `draw`: with those before a power of 2. Raises ValueError where they are not."""
        total = self.num_generated + 2**m
        if total & (total - 1):
            raise ValueError(f"draw_base2(): {self.num_generated} points and 2 ** {m} more are no power of 2")
        return self.draw(2**m, out, dtype)

    def fast_forward(self, n: int) -> SobolEngine:
        """Leaves `n` points out."""
        self.num_generated += n
        self._sequence.fast_forward(n)
        return self

    def reset(self) -> SobolEngine:
        """Begins again."""
        self.num_generated = 0
        self._sequence.reset()
        return self
