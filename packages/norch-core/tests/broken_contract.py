"""More backends that are each wrong in one way: in gradients, composites, training, and in what the contract asks
beside right values."""

from __future__ import annotations

from typing import Any

import numpy as np
from broken_backends import FAULTS, Broken, fault, view, wrong_kernel

from norch.backend import Fed, IndexOutOfBounds, Operand, Place, parse_steps
from norch.dtype import as_dtype, float32, float64
from norch.spec import contiguous_strides

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


# --- Level 9: captured steps ------------------------------------------------------------------------------------------


class Programs(Broken):
    """Runs recorded calls in a loop of its own: a right `program`, in parts that the wrong ones below replace."""

    def program(self, calls: Any, scratch: int, bound: Any, index: int) -> Any:
        def run(buffers: Any, numbers: Any) -> None:
            memory = [self.scratch(scratch, index), *buffers[1:]]
            for at, (kernel, arguments) in enumerate(self.order(calls)):
                given = [
                    memory[a] if type(a) is Place else self.number(a, numbers) if type(a) is Fed else a
                    for a in arguments
                ]
                try:
                    kernel(*given)
                except Exception as error:
                    error.call = at
                    raise

        return run

    def scratch(self, nbytes: int, index: int) -> Any:
        return self.allocate(nbytes, index)

    def order(self, calls: Any) -> Any:
        return calls

    def number(self, at: Any, numbers: Any) -> Any:
        return numbers[at]


@fault(9, "capture", "calls of a program run out of order")
class Reorders(Programs):
    def order(self, calls: Any) -> Any:
        return [*calls[1::2], *calls[::2]] if len(calls) > 3 else calls


@fault(9, "capture", "a program keeps the numbers of its first run")
class KeepsNumbers(Programs):
    def program(self, calls: Any, scratch: int, bound: Any, index: int) -> Any:
        run, first = super().program(calls, scratch, bound, index), []

        def kept(buffers: Any, numbers: Any) -> None:
            first[:] = first or list(numbers)
            run(buffers, first)

        return kept


@fault(9, "capture", "a program keeps the buffers of its first run")
class KeepsBuffers(Programs):
    def program(self, calls: Any, scratch: int, bound: Any, index: int) -> Any:
        run, first = super().program(calls, scratch, bound, index), []

        def kept(buffers: Any, numbers: Any) -> None:
            first[:] = first or list(buffers)
            run(first, numbers)

        return kept


@fault(9, "capture", "a program has less scratch memory than it was told")
class Scrimps(Programs):
    def scratch(self, nbytes: int, index: int) -> Any:
        found = super().scratch(nbytes, index)
        found.data[nbytes // 2 :] = 0
        return found

    def program(self, calls: Any, scratch: int, bound: Any, index: int) -> Any:
        halved = [
            (kernel, tuple(0 if i and type(arguments[i - 1]) is Place and not arguments[i - 1] else a
                           for i, a in enumerate(arguments)))
            for kernel, arguments in calls
        ]  # fmt: skip
        return super().program(halved, scratch, bound, index)


@fault(9, "capture", "an exception in a program is lost")
class Swallows(Programs):
    def program(self, calls: Any, scratch: int, bound: Any, index: int) -> Any:
        run = super().program(calls, scratch, bound, index)

        def quiet(buffers: Any, numbers: Any) -> None:
            try:
                run(buffers, numbers)
            except IndexOutOfBounds:
                pass

        return quiet


del FAULTS[""]


class Fuses(Broken):
    """Runs fused programs step by step, by its kernels of the steps."""

    def compile(self, op: str, operands: Any, attrs: Any) -> Any:
        if op != "fused":
            return super().compile(op, operands, attrs)
        steps, kernels, outputs = parse_steps(attrs["steps"]), [], []
        for step in steps:
            outputs.append(Operand(as_dtype(step.dtype), operands[0].shape, contiguous_strides(operands[0].shape)))
            given = [(operands if r[0] == "o" else outputs)[int(r[1:])] for r in step.reads]
            kernels.append(super().compile(step.op, (outputs[-1], *given), step.attrs))
            if kernels[-1] is None:
                return None

        def kernel(*args: Any) -> None:
            left, made = iter(args), []
            located = [[next(left)] if operand.is_scalar else [next(left), next(left)] for operand in operands]
            for k, step in enumerate(steps):
                made.append([self.allocate(view_bytes(outputs[k]), 0), 0])
                kernels[k](*made[-1], *[a for r in step.reads for a in (located if r[0] == "o" else made)[int(r[1:])]])
                self.done(k, attrs["results"], operands, outputs, located, made)
            for i, result in enumerate(attrs["results"]):
                view(operands[i], *located[i])[...] = view(outputs[result], *made[result])

        return kernel

    def done(self, k: int, results: Any, operands: Any, outputs: Any, located: Any, made: Any) -> None:
        """Step k is done."""


def view_bytes(operand: Any) -> int:
    return max(1, int(np.prod(operand.shape))) * int(operand.dtype.itemsize)


@fault(8, "fused", "a step of a fused program leaves its result unrounded")
class KeepsMore(Fuses):
    def compile(self, op: str, operands: Any, attrs: Any) -> Any:
        if op == "fused" and operands[0].dtype is float32 and "mul" in attrs["steps"]:
            wide = [o._replace(dtype=float64) if o.dtype is float32 else o for o in operands]
            attrs = {**attrs, "steps": attrs["steps"].replace("float32", "float64")}
            good = super().compile(op, tuple(wide), attrs)
            if good is None or any(o.dtype is not float32 for o in operands):
                return super().compile(op, operands, attrs)

            def kernel(*args: Any) -> None:
                left, given, narrow = list(args), [], []
                for i, (operand, o) in enumerate(zip(operands, wide, strict=True)):
                    if operand.is_scalar:
                        given.append(left.pop(0))
                        continue
                    buffer, offset = left.pop(0), left.pop(0)
                    copy = self.allocate(2 * buffer.nbytes, 0)
                    view(o, copy, offset)[...] = view(operand, buffer, offset)
                    given += [copy, offset]
                    if i < len(attrs["results"]):
                        narrow.append((view(operand, buffer, offset), view(o, copy, offset)))
                good(*given)
                for out, found in narrow:
                    out[...] = found

            return kernel
        return super().compile(op, operands, attrs)


@fault(8, "fused", "a fused program reads what it has written")
class WritesAtOnce(Fuses):
    def done(self, k: int, results: Any, operands: Any, outputs: Any, located: Any, made: Any) -> None:
        for i, result in enumerate(results):
            if result == k:
                view(operands[i], *located[i])[...] = view(outputs[k], *made[k])
