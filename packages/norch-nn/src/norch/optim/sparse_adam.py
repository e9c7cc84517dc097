"""SparseAdam."""

from __future__ import annotations

from typing import Any

import norch

from .multi_tensor import MultiTensorOptimizer

Tensors = list[norch.Tensor]


def _step_(
    params: Tensors, grads: Tensors, ms: Tensors, vs: Tensors, *,
    step: int, lr: float, beta1: float, beta2: float, eps: float, maximize: bool,
) -> None:  # fmt: skip
    rate = lr * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
    with norch.no_grad():
        for p, grad, m, v in zip(params, grads, ms, vs, strict=True):
            rows = _few_rows(grad)
            if rows is None:
                g = -grad if maximize else grad
                used = (g != 0).reshape(g.shape[0], -1).any(1).reshape(-1, *(1,) * (g.ndim - 1)) if g.ndim else g != 0
                m.copy_(norch.where(used, m + (g - m) * (1 - beta1), m))
                v.copy_(norch.where(used, v + (g * g - v) * (1 - beta2), v))
                p.sub_(norch.where(used, m / (v.sqrt() + eps) * rate, 0.0))
            elif rows.numel():
                _step_rows_(p, rows, -grad[rows] if maximize else grad[rows], m, v, rate, beta1, beta2, eps)


def _step_rows_(
    p: norch.Tensor, rows: norch.Tensor, g: norch.Tensor, m: norch.Tensor, v: norch.Tensor,
    rate: float, beta1: float, beta2: float, eps: float,
) -> None:  # fmt: skip
    m_here, v_here = m[rows], v[rows]
    m_here = m_here + (g - m_here) * (1 - beta1)
    v_here = v_here + (g * g - v_here) * (1 - beta2)
    m[rows], v[rows] = m_here, v_here
    p[rows] = p[rows] - m_here / (v_here.sqrt() + eps) * rate


def _few_rows(grad: norch.Tensor) -> norch.Tensor | None:
    """The rows that are not all 0, where they are few enough to be changed by themselves, and finding them waits for no
    device; else None."""
    if grad.ndim == 0 or grad.device.type != "cpu" or norch.compiler.is_compiling():
        return None
    rows = norch.count_nonzero(grad.reshape(grad.shape[0], -1), 1).nonzero().reshape(-1)
    return rows if 4 * rows.numel() <= grad.shape[0] else None


class SparseAdam(MultiTensorOptimizer):
    """Adam (Kingma and Ba, 2015) for tables of which a step uses few rows: the others, and what is remembered of them,
    stay as they are.

        m = beta1 * m + (1 - beta1) * g                     (zero at first)
        v = beta2 * v + (1 - beta2) * g * g                 (zero at first)
        p -= lr * sqrt(1 - beta2 ** t) / (1 - beta1 ** t) * m / (sqrt(v) + eps)

    in the rows (along dim 0) where the gradient g is not all 0, or that a sparse one has. t = 1, 2, ... counts the
    steps; `betas` is (beta1, beta2); -g for g if maximize. Raises ValueError for negative lr or eps or betas outside
    [0, 1).
    """

    elementwise = False

    _op = staticmethod(_step_)
    _states = {"exp_avg": 0, "exp_avg_sq": 0}
    _scalars = ("step", "lr", "betas", "eps", "maximize")

    lr: float | norch.Tensor = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    maximize: bool = False

    def _step_rows(self, group: dict[str, Any], param: norch.Tensor, grad: Any) -> bool:
        state = self.state.get(param) or self._begin(param, group)
        step, (beta1, beta2), once = state["step"] + 1, group["betas"], grad.coalesce()
        rate = float(group["lr"]) * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
        g = -once.values() if group["maximize"] else once.values()
        with norch.no_grad():
            moments = state["exp_avg"], state["exp_avg_sq"]
            _step_rows_(param, once.indices()[0], g, *moments, rate, beta1, beta2, group["eps"])
        state["step"] = step
        return True
