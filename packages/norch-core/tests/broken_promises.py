"""Still more backends that are each wrong in one way: in what they put off, and in errors that come late."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from broken_backends import Broken, fault, view, wrong_kernel

from norch.backend import IndexOutOfBounds
from norch.numpy_backend.backend import HostBuffer

DIVISIONS = ("floor_divide", "remainder")


class Pooled(HostBuffer):
    """Memory that goes back to a pool with its buffer."""

    def __init__(self, data: Any, owner: Deferred, index: int) -> None:
        super().__init__(data)
        self.owner, self.index = owner, index

    def __del__(self) -> None:
        self.owner.freed(self)


class Deferred(Broken):
    """Puts all work off until somebody waits, reports wrong indices then, and uses memory again: a right backend, in
    parts that the wrong ones below replace."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.pool: dict[int, list[Any]] = {}
        self.work: tuple[list[Any], list[Any]] = [], []
        self.errors: list[IndexOutOfBounds | None] = [None, None]

    def device_count(self) -> int:
        return 2

    def allocate(self, nbytes: int, index: int) -> Any:
        if nbytes > 1 << 32:
            raise MemoryError(f"it gives at most {1 << 32} bytes at once")
        with self.lock:
            free = self.pool.get(nbytes)
            return Pooled(free.pop() if free else np.empty(nbytes, np.uint8), self, index)

    def freed(self, buffer: Any) -> None:
        self.later(buffer.index, self.give_back, buffer.data)

    def give_back(self, data: Any) -> None:
        self.pool.setdefault(data.size, []).append(data)

    def later(self, index: int, function: Any, *args: Any) -> None:
        """Puts work off. It holds the memory of buffers and not the buffers, which may go."""
        self.work[index].append((function, [HostBuffer(a.data) if isinstance(a, Pooled) else a for a in args]))

    def flush(self, index: int) -> None:
        with self.lock:
            work = self.work[index]
            while work:
                function, args = work.pop(0)
                try:
                    function(*args)
                except IndexOutOfBounds as error:
                    self.met(index, error)

    def met(self, index: int, error: IndexOutOfBounds) -> None:
        self.errors[index] = self.errors[index] or error

    def check(self, index: int) -> None:
        error, self.errors[index] = self.errors[index], None
        if error is not None:
            raise error

    def copy_in(self, buffer: Any, offset: int, data: memoryview) -> None:
        self.later(buffer.index, super().copy_in, buffer, offset, memoryview(bytes(data)))

    def copy_out(self, buffer: Any, offset: int, data: memoryview) -> None:
        self.flush(buffer.index)
        super().copy_out(buffer, offset, data)
        self.check(buffer.index)

    def copy_out_later(self, buffer: Any, offset: int, data: memoryview) -> None:
        self.later(buffer.index, super().copy_out, buffer, offset, data)

    def copy(self, out: Any, out_offset: int, source: Any, source_offset: int, nbytes: int) -> None:
        if out.index != source.index:
            self.flush(source.index)
        self.later(out.index, super().copy, out, out_offset, source, source_offset, nbytes)
        if out.index != source.index:
            self.flush(out.index)

    def synchronize(self, index: int) -> None:
        self.flush(index)
        self.check(index)

    def compile(self, op: str, operands: Any, attrs: Any) -> Any:
        good = super().compile(op, operands, attrs)
        if good is None:
            return None
        if op in DIVISIONS and not (operands[0].dtype.is_floating_point or operands[2].is_scalar):
            good = self.divide(op, operands)

        def named(*args: Any) -> None:
            try:
                good(*args)
            except IndexOutOfBounds as error:
                raise IndexOutOfBounds(error.index, error.size, op) from None

        def kernel(*args: Any) -> None:
            if op in DIVISIONS and operands[2].is_scalar and args[-1] == 0:
                good(*args)  # raises
            self.later(args[0].index, named, *args)

        return kernel

    def divide(self, op: str, operands: Any) -> Any:
        def kernel(*args: Any) -> None:
            out, b = view(operands[0], *args[:2]), view(operands[2], *args[-2:])
            a = args[2] if operands[1].is_scalar else view(operands[1], *args[2:4])
            with np.errstate(all="ignore"):
                out[...] = getattr(np, op)(a, self.divisor(b))

        return kernel

    def divisor(self, b: Any) -> Any:
        return np.where(b == 0, 1, b).astype(b.dtype)


# --- What may be put off, and for how long ----------------------------------------------------------------------------


@fault(8, "contract", "copy_in overtakes kernels that were put off")
class Overtakes(Deferred):
    def copy_in(self, buffer: Any, offset: int, data: memoryview) -> None:
        Broken.copy_in(self, buffer, offset, data)


@fault(8, "contract", "copy overtakes kernels that were put off")
class CopiesAtOnce(Deferred):
    def copy(self, *args: Any) -> None:
        Broken.copy(self, *args)


@fault(8, "contract", "copy_in reads its data later")
class ReadsLater(Deferred):
    def copy_in(self, buffer: Any, offset: int, data: memoryview) -> None:
        self.later(buffer.index, super(Deferred, self).copy_in, buffer, offset, data)


@fault(8, "contract", "copy_out_later gives what the buffer holds in the end")
class CopiesLast(Deferred):
    def copy_out_later(self, buffer: Any, offset: int, data: memoryview) -> None:
        super().copy_out_later(buffer, offset, data)
        self.last = self.work[buffer.index].pop()

    def synchronize(self, index: int) -> None:
        super().synchronize(index)
        function, args = self.__dict__.pop("last", (len, [""]))
        function(*args)


@fault(8, "contract", "synchronize does not wait")
class Hurries(Deferred):
    def synchronize(self, index: int) -> None:
        self.check(index)


@fault(8, "contract", "memory is gone before its work is done")
class FreesAtOnce(Deferred):
    def freed(self, buffer: Any) -> None:
        buffer.data.fill(255)


@fault(8, "contract", "the last call of a kernel keeps its buffers")
class Remembers(Broken):
    def compile(self, op: str, operands: Any, attrs: Any) -> Any:
        good = super().compile(op, operands, attrs)

        def kernel(*args: Any) -> None:
            self.last = args
            good(*args)

        return good and kernel


@fault(8, "contract", "a view by the host is of memory that is used again")
class ViewsPool(Deferred):
    def host_view(self, buffer: Any) -> Any:
        self.flush(buffer.index)
        return buffer.data.data


@fault(8, "contract", "a view by the host does not wait")
class ViewsAtOnce(Deferred):
    def allocate(self, nbytes: int, index: int) -> Any:
        left = np.full((nbytes + 3) // 4, 2, np.float32)  # the result, as an earlier case may have left it there
        return Pooled(left.view(np.uint8)[:nbytes], self, index)

    def freed(self, buffer: Any) -> None:
        pass

    def host_view(self, buffer: Any) -> Any:
        return buffer.data.data


# --- Errors that come late --------------------------------------------------------------------------------------------


@fault(8, "gather", "an index out of range is raised by the next kernel")
class Blames(Deferred):
    def later(self, index: int, function: Any, *args: Any) -> None:
        self.flush(index)
        super().later(index, function, *args)
        if function != self.give_back:
            self.check(index)


@fault(8, "scatter", "of two wrong indices the last is reported")
class Forgets(Deferred):
    def met(self, index: int, error: IndexOutOfBounds) -> None:
        self.errors[index] = error


@fault(8, "gather", "an index out of range is reported again and again")
class Insists(Deferred):
    def check(self, index: int) -> None:
        if self.errors[index] is not None:
            raise self.errors[index]


@fault(8, "gather", "the work behind a wrong index is not done")
class GivesUp(Deferred):
    def met(self, index: int, error: IndexOutOfBounds) -> None:
        super().met(index, error)
        self.work[index].clear()


@fault(8, "contract", "a wrong index is reported by another device")
class Confuses(Deferred):
    def met(self, index: int, error: IndexOutOfBounds) -> None:
        super().met(0, error)
        super().met(1, error)


@wrong_kernel(8, "scatter", "a wrong index is written to the last place")
def clamping(operands: Any, attrs: Any, good: Any) -> Any:
    def kernel(*args: Any) -> None:
        try:
            good(*args)
        except IndexOutOfBounds:
            view(operands[0], *args[:2])[-1] = view(operands[2], *args[4:])[1]
            raise

    return kernel
