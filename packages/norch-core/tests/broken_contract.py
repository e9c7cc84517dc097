"""More backends that are each wrong in one way: in gradients, composites, training, and in what the contract asks
beside right values."""

from __future__ import annotations

from typing import Any

import numpy as np
from broken_backends import FAULTS, Broken, fault, view, wrong_kernel

from norch.backend import IndexOutOfBounds

# --- Levels 5, 6, 7: gradients, composites, training ----------------------------------------------------------------


@wrong_kernel(5, "softmax_grad", "a native gradient is without its sum")
def wrong_gradient(operands: Any, attrs: Any, good: Any) -> Any:
    def kernel(out: Any, at: int, g: Any, g_at: int, y: Any, y_at: int) -> None:
        view(operands[0], out, at)[...] = view(operands[1], g, g_at) * view(operands[2], y, y_at)

    return kernel


@wrong_kernel(5, "softmax", "")  # only so that softmax records itself, and asks for softmax_grad
def softmax(operands: Any, attrs: Any, good: Any) -> Any:
    def kernel(out: Any, at: int, x: Any, x_at: int) -> None:
        values = view(operands[1], x, x_at).astype(np.float64)
        shares = np.exp(values - values.max(attrs["dim"], keepdims=True))
        view(operands[0], out, at)[...] = shares / shares.sum(attrs["dim"], keepdims=True)

    return kernel


@wrong_kernel(6, "gelu", "a native composite is an approximation that was not asked for")
def approximate(operands: Any, attrs: Any, good: Any) -> Any:
    def kernel(out: Any, at: int, x: Any, x_at: int) -> None:
        values = view(operands[1], x, x_at).astype(np.float64)
        inner = np.sqrt(2 / np.pi) * (values + 0.044715 * values**3)
        view(operands[0], out, at)[...] = 0.5 * values * (1 + np.tanh(inner))

    return kernel


@wrong_kernel(7, "matmul", "a kernel is good for fifteen calls")
def tiring(operands: Any, attrs: Any, good: Any) -> Any:
    count = 0

    def kernel(*args: Any) -> None:
        nonlocal count
        count += 1
        good(*args)
        if count > 15:
            view(operands[0], *args[:2])[...] = 0

    return kernel


# --- Level 8: the contract ------------------------------------------------------------------------------------------


@wrong_kernel(8, "atan2", "the output is added to")
def accumulating(operands: Any, attrs: Any, good: Any) -> Any:
    def kernel(*args: Any) -> None:
        out = view(operands[0], *args[:2])
        before = out.copy()
        good(*args)
        out += before

    return kernel


@wrong_kernel(8, "exp", "the element behind the last is written too")
def too_far(operands: Any, attrs: Any, good: Any) -> Any:
    def kernel(out: Any, at: int, *rest: Any) -> None:
        good(out, at, *rest)
        operand = operands[0]
        last = at + 1 + sum((n - 1) * s for n, s in zip(operand.shape, operand.strides))
        out.data[last * operand.dtype.itemsize :][: operand.dtype.itemsize] = 0

    return kernel


@wrong_kernel(8, "sort", "the input is sorted too")
def sorted_input(operands: Any, attrs: Any, good: Any) -> Any:
    def kernel(*args: Any) -> None:
        good(*args)
        view(operands[2], *args[4:])[...] = view(operands[0], *args[:2])

    return kernel


@wrong_kernel(8, "floor", "scratch memory is not cleared between calls")
def stale(operands: Any, attrs: Any, good: Any) -> Any:
    left = 0.0

    def kernel(*args: Any) -> None:
        nonlocal left
        good(*args)
        out = view(operands[0], *args[:2])
        out[...] = (out.astype(np.float64) + left).astype(out.dtype)
        left = 1.0

    return kernel


@fault(8, "contract", "a kernel waits for the device")
class Waits(Broken):
    def compile(self, op: str, operands: Any, attrs: Any) -> Any:
        good = super().compile(op, operands, attrs)
        if op != "sum":
            return good

        def kernel(*args: Any) -> None:
            good(*args)
            self.synchronize(0)

        return kernel


@fault(8, "contract", "memory without end is promised")
class Promises(Broken):
    def allocate(self, nbytes: int, index: int) -> Any:
        return super().allocate(min(nbytes, 1 << 20), index)


@fault(8, "gather", "an index out of range is clamped in silence")
class Clamps(Broken):
    def compile(self, op: str, operands: Any, attrs: Any) -> Any:
        good = super().compile(op, operands, attrs)
        if op != "gather":
            return good

        def kernel(*args: Any) -> None:
            try:
                good(*args)
            except IndexOutOfBounds:
                pass

        return kernel


@fault(8, "contract", "every op has a kernel")
class Boasts(Broken):
    def compile(self, op: str, operands: Any, attrs: Any) -> Any:
        return (lambda *args: None) if op == "no_such_op" else super().compile(op, operands, attrs)


@wrong_kernel(8, "add", "an output that is an input is cleared first")
def cleared(operands: Any, attrs: Any, good: Any) -> Any:
    def kernel(*args: Any) -> None:
        view(operands[0], *args[:2])[...] = 0
        good(*args)

    return kernel


del FAULTS[""]
