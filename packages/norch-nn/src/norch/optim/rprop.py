"""Resilient backpropagation."""

from __future__ import annotations

from dataclasses import KW_ONLY

import norch

from .multi_tensor import MultiTensorOptimizer


class Rprop(MultiTensorOptimizer):
    """Rprop (Riedmiller and Braun, "A direct adaptive method for faster backpropagation learning", 1993).

        s = clamp(s * f, *step_sizes)                       (lr at first)
        q = 0 where g * q < 0, else g                       (zero at first)
        p -= sign(q) * s

    Each element has a step size s of its own: with `etas` (etaminus, etaplus), f is etaplus where g * q > 0, etaminus
    where g * q < 0, else 1 (-g for g if maximize). `foreach` and `capturable` choose among PyTorch's implementations,
    and are ignored. Raises ValueError for negative lr and unless 0 < etaminus < 1 < etaplus.
    """

    _op = staticmethod(norch.rprop_step_)
    _states = {"prev": 0, "step_size": "lr"}
    _scalars = ("etas", "step_sizes", "maximize")
    _recorded_options = ()
    _key = None

    lr: float | norch.Tensor = 1e-2
    etas: tuple[float, float] = (0.5, 1.2)
    step_sizes: tuple[float, float] = (1e-6, 50)
    _: KW_ONLY
    capturable: bool = False
    foreach: bool | None = None
    maximize: bool = False
    differentiable: bool = False
