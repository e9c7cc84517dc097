"""Running a routine of NumPy's on tensors: where that is allowed, what its errors become, and with a derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd import Function, is_grad_enabled
from ..dispatch.fallback import FallbackCount, counts, is_cpu_fallback_allowed
from ..errors import BackendError, DTypeError, MetaError, NorchError, ShapeError
from ..ops import as_tensor

if TYPE_CHECKING:
    from ..tensor import Tensor


class LinAlgError(NorchError, RuntimeError):
    """A matrix that a routine has no answer for, such as the inverse of a singular one."""


def on_host(op: str, routine: Callable[..., Any], *operands: Tensor) -> Any:
    """What `routine` makes of the operands as arrays: a tensor, or a tuple of them, on their device.

    Raises BackendError for operands that are not on the CPU, unless the fallback is allowed; LinAlgError as NumPy does.
    """
    device = operands[0].device
    if device.type == "meta":
        raise MetaError(f"linalg.{op}")
    if device.type != "cpu":
        if not is_cpu_fallback_allowed():
            raise BackendError(
                f"linalg.{op}(): computed on the CPU only, the operand is on {device}; norch.set_cpu_fallback(True) "
                "lets it be moved there and back"
            )
        count = counts.setdefault((f"linalg.{op}", device.type), FallbackCount())
        count.calls += 1
        count.bytes_moved += sum(x.nbytes for x in operands)
    try:
        with np.errstate(all="ignore"):
            found = routine(*[x.detach().cpu().numpy() for x in operands])
    except np.linalg.LinAlgError as error:
        shapes = " and ".join(str(tuple(x.shape)) for x in operands)
        raise LinAlgError(f"linalg.{op}(): {error} (shape {shapes})") from None
    arrays = found if isinstance(found, tuple) else (found,)
    results = tuple(as_tensor(np.ascontiguousarray(a).reshape(np.shape(a)), device=device) for a in arrays)
    return results if isinstance(found, tuple) else results[0]


def differentiable(
    op: str, routine: Callable[..., Any], gradient: Callable[..., Any], constants: int = 0
) -> Callable[..., Any]:
    """`on_host` as a function of tensors with a derivative: `gradient(*operands, *results, *grads)`.

    Where the backward pass is itself recorded, the results are computed again from the operands, so that they are a
    function of them. The first `constants` results have no gradient.
    """

    def forward(ctx: Any, *operands: Tensor) -> Any:
        found = on_host(op, routine, *operands)
        results = found if isinstance(found, tuple) else (found,)
        ctx.save_for_backward(*operands, *results)
        ctx.mark_non_differentiable(*results[:constants])
        ctx.operands = len(operands)
        return found

    def backward(ctx: Any, *grads: Tensor) -> Any:
        saved = ctx.saved_tensors
        operands, results = saved[: ctx.operands], saved[ctx.operands :]
        if is_grad_enabled():
            found = apply(*operands)
            results = found if isinstance(found, tuple) else (found,)
        return gradient(*operands, *results, *grads)

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward), "over_batches": True}
    apply: Callable[..., Any] = type(f"linalg_{op}", (Function,), methods).apply  # type: ignore[attr-defined]
    return apply


def check_matrices(op: str, *operands: Tensor, square: bool = True) -> None:
    """Raises ShapeError unless all are (batches of) matrices, square ones; DTypeError unless float32 or float64."""
    for x in operands:
        if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
            wanted = "square matrices" if square else "matrices"
            raise ShapeError(f"linalg.{op}(): expected {wanted}, got shape {tuple(x.shape)}")
        if not x.dtype.is_floating_point or x.dtype.itemsize < 4:
            raise DTypeError(f"linalg.{op}(): expected float32 or float64, got {x.dtype}")
