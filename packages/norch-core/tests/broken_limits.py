"""Still more backends that are each wrong in one way: in threads, at limits, in dtypes."""

from __future__ import annotations

import struct
import threading
from typing import Any

import numpy as np
from broken_backends import Broken, fault, view, wrong_kernel
from broken_promises import Deferred

# --- Threads ----------------------------------------------------------------------------------------------------------


class Meeting:
    """Where threads that come at once wait for each other, so that what they share is written by all of them."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2)

    def wait(self) -> None:
        if threading.current_thread() is threading.main_thread():
            return
        try:
            self.barrier.wait(0.05)
        except threading.BrokenBarrierError:
            self.barrier.reset()


@fault(8, "contract", "a kernel's arguments are set in one place for all threads")
class SharesArguments(Broken):
    def compile(self, op: str, operands: Any, attrs: Any) -> Any:
        good, meeting, given = super().compile(op, operands, attrs), Meeting(), [()]
        if op != "mul":
            return good

        def kernel(*args: Any) -> None:
            given[0] = args
            meeting.wait()
            good(*given[0])

        return kernel


@fault(8, "contract", "a compiler is shared by all threads")
class SharesCompiler(Broken):
    def __init__(self) -> None:
        self.meeting = Meeting()

    def compile(self, op: str, operands: Any, attrs: Any) -> Any:
        if op != "mul":
            return super().compile(op, operands, attrs)
        self.operands = operands
        self.meeting.wait()
        return super().compile(op, self.operands, attrs)


@fault(8, "contract", "memory is freed under a lock that allocate holds")
class LocksOut(Deferred):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()  # not reentrant
        self.patience = 3.0

    def freed(self, buffer: Any) -> None:
        if self.lock.acquire(timeout=self.patience):
            self.lock.release()
        else:
            self.patience = 0.0  # a real one waits for ever
        super().freed(buffer)


# --- Limits -----------------------------------------------------------------------------------------------------------


@fault(8, "floor_divide", "a division by 0 spoils the others")
class Spoils(Deferred):
    def divisor(self, b: Any) -> Any:
        return np.ones_like(b) if (b == 0).any() else b


@wrong_kernel(8, "sum", "rows behind the 65,535th are not summed")
def grid(operands: Any, attrs: Any, good: Any) -> Any:
    def kernel(*args: Any) -> None:
        good(*args)
        view(operands[0], *args[:2])[65_535:] = 0

    return kernel if operands[0].shape else good


@fault(8, "contract", "elements behind the 2**24th are left out")
class StopsEarly(Broken):
    def compile(self, op: str, operands: Any, attrs: Any) -> Any:
        cut = [o._replace(shape=(min(o.shape[0], 2**24),)) if len(o.shape) == 1 else o for o in operands]
        return super().compile(op, tuple(cut) if op == "add" else operands, attrs)


@fault(8, "contract", "too many elements are a number that does not fit")
class Overflows(Broken):
    def compile(self, op: str, operands: Any, attrs: Any) -> Any:
        for operand in operands:
            struct.pack(f"<{len(operand.shape)}I", *operand.shape)
        return super().compile(op, operands, attrs)


@fault(8, "contract", "a copy of no bytes is refused")
class NeedsBytes(Broken):
    def copy_in(self, buffer: Any, offset: int, data: memoryview) -> None:
        if offset >= buffer.nbytes:
            raise ValueError("the offset lies behind the buffer")
        super().copy_in(buffer, offset, data)


@fault(8, "contract", "a number that does not fit into float32 is an error")
class PacksNumbers(Broken):
    def compile(self, op: str, operands: Any, attrs: Any) -> Any:
        good = super().compile(op, operands, attrs)

        def kernel(*args: Any) -> None:
            if op == "fill" and operands[0].dtype.name == "float32":
                struct.pack("<f", args[2])
            good(*args)

        return good and kernel


@wrong_kernel(8, "sum", "sums depend on where they lie in memory")
def aligned(operands: Any, attrs: Any, good: Any) -> Any:
    def kernel(out: Any, at: int, x: Any, x_at: int) -> None:
        good(out, at, x, x_at)
        if x_at % 4:
            values = view(operands[0], out, at)
            values[...] = np.nextafter(values, np.float32(np.inf))

    return kernel


@fault(8, "contract", "a kernel belongs to the device that it saw first")
class Faithful(Deferred):
    def compile(self, op: str, operands: Any, attrs: Any) -> Any:
        good, first = super().compile(op, operands, attrs), []

        def kernel(*args: Any) -> None:
            first[:] = first or [args[0].index]
            if args[0].index == first[0]:
                good(*args)

        return good and kernel


@wrong_kernel(4, "add", "dims behind the eighth are left out")
def few_dims(operands: Any, attrs: Any, good: Any) -> Any:
    def kernel(*args: Any) -> None:
        good(*args)
        out = view(operands[0], *args[:2])
        if out.ndim > 8:
            out[..., 1] = 0

    return kernel


# --- Missing dtypes ---------------------------------------------------------------------------------------------------


class Lacks(Broken):
    """Does not have some dtypes, and says so: a right backend."""

    missing_dtypes = {"float64": "its chip has 32 bits", "int64": "its chip has 32 bits", "bfloat16": "it is too new"}

    def compile(self, op: str, operands: Any, attrs: Any) -> Any:
        if any(o.dtype.name in self.missing_dtypes and not o.is_scalar for o in operands):
            return self.refuse(op, operands)
        return super().compile(op, operands, attrs)

    def refuse(self, op: str, operands: Any) -> Any:
        return None


@fault(3, "exp", "a missing dtype has kernels all the same")
class Pretends(Lacks):
    def refuse(self, op: str, operands: Any) -> Any:
        return lambda *args: None


@fault(3, "exp", "a missing dtype makes compile raise")
class Raises(Lacks):
    def refuse(self, op: str, operands: Any) -> Any:
        raise TypeError(f"{op}: what is a {operands[0].dtype}?")


@fault(3, "exp", "a dtype is missing and not named")
class Silent(Lacks):
    missing_dtypes = {}

    def compile(self, op: str, operands: Any, attrs: Any) -> Any:
        is_missing = any(o.dtype.name in Lacks.missing_dtypes for o in operands)
        return None if is_missing else super().compile(op, operands, attrs)
