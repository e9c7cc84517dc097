"""A hook on the gradients of several tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from .engine import callbacks_of_pass

if TYPE_CHECKING:
    from ..tensor import Tensor


class MultiGradHandle:
    """What `register_multi_grad_hook` returns: `remove()` takes the hook away, as does leaving a `with` block."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self._handles = handles

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


class _Gathered:
    """The gradients of one backward pass that are known so far."""

    def __init__(self, count: int, hook: Callable[[Any], Any], once: bool) -> None:
        self._hook, self._once, self._count = hook, once, count
        self._grads: dict[int, Tensor] = {}
        self._done = False
        self._callbacks: list[Callable[[], Any]] | None = None

    def take(self, at: int, grad: Tensor) -> None:
        callbacks = callbacks_of_pass()
        if callbacks is not self._callbacks:  # of a pass that raised something may be left
            self._grads, self._done, self._callbacks = {}, False, callbacks
            callbacks.append(self._end)
        self._grads[at] = grad
        if self._once and len(self._grads) == 1:
            self._done = True
            self._hook(grad)
        elif not self._once and len(self._grads) == self._count:
            self._call()

    def _call(self) -> None:
        self._done = True
        self._hook([self._grads.get(i) for i in range(self._count)])

    def _end(self) -> None:
        if self._grads and not self._done:
            self._call()
        self._grads, self._done, self._callbacks = {}, False, None


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[[Any], Any], *, mode: str = "all"
) -> MultiGradHandle:
    """Calls `fn(grads)` in each backward pass once the gradients of all the tensors are known, a list with None for
    those that have none, or with mode="any" `fn(grad)` with the first. Where some get none it is called when the pass
    ends. What it returns is not used. Raises ValueError for another mode, AutogradError for a tensor that requires no
    grad.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"register_multi_grad_hook(): mode is 'all' or 'any', got {mode!r}")
    gathered = _Gathered(len(tensors), fn, mode == "any")

    def hook(at: int) -> Callable[[Tensor], None]:
        return lambda grad: gathered.take(at, grad)

    return MultiGradHandle([tensor.register_hook(hook(i)) for i, tensor in enumerate(tensors)])
