"""Routines on tensors: NumPy's, where that is allowed; what their errors become; and how they get a derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd import Function, is_grad_enabled, no_grad
from ..dispatch.failure import provider
from ..dispatch.fallback import FallbackCount, counts, is_cpu_fallback_allowed
from ..errors import BackendError, DTypeError, MetaError, NorchError, ShapeError
from ..ops import as_tensor

if TYPE_CHECKING:
    from ..tensor import Tensor


class LinAlgError(NorchError, RuntimeError):
    """A matrix that a routine has no answer for, such as the inverse of a singular one."""


def on_host(op: str, routine: Callable[..., Any], *operands: Tensor) -> Any:
    """What `routine` makes of the operands as arrays: a tensor, or a tuple of them, on their device.

    Raises BackendError for operands that are not on the CPU, unless the fallback is allowed or they have no elements;
    LinAlgError as NumPy does.
    """
    device = operands[0].device
    if device.is_meta:
        raise MetaError(f"linalg.{op}")
    if device.type != "cpu" and any(x.numel() for x in operands):
        if not is_cpu_fallback_allowed():
            advice = device.backend.advice(f"linalg_{op}")
            raise BackendError(
                f"linalg.{op}(): {provider(device)} does not compute it, the operand is on {device}; "
                + (f"{advice}, or " if advice else "")
                + "norch.set_cpu_fallback(True) lets it be moved to the CPU and back"
            )
        count = counts.setdefault((f"linalg.{op}", device.type), FallbackCount())
        count.calls += 1
        count.bytes_moved += sum(x.nbytes for x in operands)
    try:
        with np.errstate(all="ignore"):
            found = routine(*[x.detach().cpu().numpy() for x in operands])
    except np.linalg.LinAlgError as error:
        shapes = " and ".join(str(tuple(x.shape)) for x in operands)
        raise LinAlgError(f"linalg.{op}(): {_FAILURES.get(op, error)} (shape {shapes})") from None
    arrays = found if isinstance(found, tuple) else (found,)
    results = tuple(as_tensor(np.ascontiguousarray(a).reshape(np.shape(a)), device=device) for a in arrays)
    return results if isinstance(found, tuple) else results[0]


def of_all_samples(x: Any) -> Any:
    """Where `vmap` runs, the values of all samples; another tensor is itself."""
    while hasattr(x, "level"):
        x = x.value
    return x


_FAILURES = {
    "cholesky": "the matrix is not positive-definite",
    "eigh": "Eigenvalues did not converge",
    "eigvalsh": "Eigenvalues did not converge",
    "inv": "the matrix is singular",
    "lu_factor": "the matrix is singular",
    "solve": "the matrix is singular",
    "svd": "SVD did not converge",
    "svdvals": "SVD did not converge",
}


def check_info(op: str, info: Tensor | None, a: Tensor, results: Any) -> Any:
    """`results`, unless a backend's `info` says that a matrix of `a` has no answer: then raises LinAlgError.

    Reads `info`, once, which waits for the device.
    """
    info = of_all_samples(info)
    if info is None or info.is_meta or (info.spec.numel == 1 and not info.item()):
        return results
    codes = info.cpu().numpy()
    if codes.any():
        first = tuple(np.argwhere(codes)[0].tolist())
        which = f"element {', '.join(map(str, first))} of " if first else ""
        raise LinAlgError(f"linalg.{op}(): {_FAILURES[op]} ({which}shape {tuple(a.shape)})")
    return results


def differentiable(
    op: str, routine: Callable[..., Any], gradient: Callable[..., Any], constants: int = 0, takes_none: bool = False
) -> Callable[..., Any]:
    """`routine`, a function of tensors, with a derivative: `gradient(*operands, *results, *grads)`.

    Where the backward pass is itself recorded, the results are computed again from the operands, so that they are a
    function of them. The first `constants` results have no gradient. takes_none: what nothing depends on has the
    gradient None, not zeros.
    """

    def forward(ctx: Any, *operands: Tensor) -> Any:
        found = routine(*operands)
        results = found if isinstance(found, tuple) else (found,)
        ctx.save_for_backward(*operands, *results)
        ctx.mark_non_differentiable(*results[:constants])
        ctx.set_materialize_grads(not takes_none)
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

    def call(*operands: Tensor) -> Any:
        for x in operands:
            if x.apply_function is not None or (x.requires_grad and is_grad_enabled()):
                return apply(*operands)
        with no_grad():
            return routine(*operands)

    return call


def check_matrices(op: str, *operands: Tensor, square: bool = True) -> None:
    """Raises ShapeError unless all are (batches of) matrices, square ones; DTypeError unless float32 or float64."""
    for x in operands:
        if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
            wanted = "square matrices" if square else "matrices"
            raise ShapeError(f"linalg.{op}(): expected {wanted}, got shape {tuple(x.shape)}")
        if not x.dtype.is_floating_point or x.dtype.itemsize < 4:
            raise DTypeError(f"linalg.{op}(): expected float32 or float64, got {x.dtype}")
