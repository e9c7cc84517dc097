"""Settings of the process: precision of float32 matrix products, switches, CPU threads; who is told of a change."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from .device import CPU

PRECISIONS = ("highest", "high", "medium")
_precision = "highest"
_threads: int | None = None  # what set_num_threads was given: kernels are cut into work for so many
_switches: dict[str, object] = {}
_asked: set[str] = set()  # the switches on which kernels may depend
_callbacks: list[tuple[Callable[[], None], Callable[[Hashable, Hashable], None] | None]] = []


def on_change(callback: Callable[[], None], switched: Callable[[Hashable, Hashable], None] | None = None) -> None:
    """Has `callback` called whenever compiled kernels may no longer hold: after a change of the default dtype, of the
    precision of matrix products, of the number of threads, of a switch, or of the backends that are registered.

    switched: called instead, if given, after a change of the precision, the threads or a switch, with what stands for
    all of them before and after it: kernels that were compiled under such a state hold whenever it is there again.
    """
    _callbacks.append((callback, switched))


def changed() -> None:
    """Calls what `on_change` was given."""
    for callback, _ in _callbacks:
        callback()


def _state() -> Hashable:
    return _precision, _threads, frozenset(_switches.items())


_delayed: list[Hashable] | None = None
"""Within `at_once`, the states before its changes."""


@contextmanager
def at_once() -> Iterator[None]:
    """Within it, changes of the precision and of switches are one, which is told of at its end."""
    global _delayed
    if _delayed is not None:
        yield
        return
    _delayed = []
    try:
        yield
    finally:
        states, _delayed = _delayed, None
        if states and states[0] != _state():
            _switched(states[0])


def _switched(before: Hashable) -> None:
    if _delayed is not None:
        _delayed.append(before)
        return
    after = _state()
    for callback, switched in _callbacks:
        if switched is None:
            callback()
        else:
            switched(before, after)


def set_float32_matmul_precision(precision: str) -> None:
    """Lets float32 matrix products (and convolutions) be less precise, where a device is then faster.

    precision "highest", the default: float32. "high" and "medium": factors may be rounded to tf32, which has float32's
    range and 10 bits of mantissa, and are summed in float32; convolutions and recurrent layers do as products, unless
    `norch.backends.cudnn` says otherwise. Processors with tile registers (AMX) take a factor as the sum of two bfloat16
    numbers at "high" (errors below 2^-15 of the products' magnitudes), as one at "medium". Other devices take no
    notice. Raises ValueError for another name. Kernels are compiled for each precision that is set.
    """
    global _precision
    if precision not in PRECISIONS:
        raise ValueError(f"set_float32_matmul_precision(): expected one of {', '.join(PRECISIONS)}, got {precision!r}")
    if precision != _precision:
        before, _precision = _state(), precision
        _switched(before)


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` was given last. A backend asks this in `compile`."""
    return _precision


def set_switch(name: str, value: object) -> None:
    """Keeps a switch that some backend knows, such as "cudnn.enabled", or forgets it where `value` is None. Kernels are
    compiled for each value of one that a backend has asked for."""
    if _switches.get(name) == value:
        return
    before = _state()
    if value is None:
        del _switches[name]
    else:
        _switches[name] = value
    if name in _asked:
        _switched(before)


def get_switch(name: str, default: object = None) -> object:
    """What `set_switch` was given last for `name`, or `default`. A backend asks this in `compile`."""
    _asked.add(name)
    return _switches.get(name, default)


def show_switch(name: str, default: object = None) -> object:
    """`get_switch` for those who compile nothing by it."""
    return _switches.get(name, default)


def allows_tf32(kind: str) -> bool:
    """kind: whether factors of float32 "matmul", "conv" or "rnn" may be rounded to tf32. A backend asks this in
    `compile`.
    """
    chosen = None if kind == "matmul" else get_switch(f"{kind}.tf32")
    return _precision != "highest" if chosen is None else bool(chosen)


def set_num_threads(count: int) -> None:
    """Lets ops on the CPU use up to `count` threads; small ones use one all the same.

    Without it they use as many as the environment variable NORCH_NUM_THREADS says, or OMP_NUM_THREADS, or as there are
    processor cores for this process, within what a container allows. The NumPy reference backend takes no notice.
    Kernels are compiled for each number that is set. Raises ValueError unless 1 <= count <= 1024.
    """
    global _threads
    value = operator.index(count)
    if not 1 <= value <= 1024:
        raise ValueError(f"set_num_threads(): the number of threads must be from 1 to 1024, got {count}")
    if value in (_threads, CPU.backend.num_threads()):
        return
    before, _threads = _state(), value
    CPU.backend.set_num_threads(value)
    _switched(before)


def get_num_threads() -> int:
    """How many threads ops on the CPU may use."""
    return CPU.backend.num_threads()


_interop = 1


def set_num_interop_threads(count: int) -> None:
    """`count` is kept, without effect: norch runs one op after another in the thread that calls it. ValueError unless
    positive.
    """
    global _interop
    _interop = operator.index(count)
    if _interop < 1:
        raise ValueError(f"set_num_interop_threads(): expected a positive number, got {count}")


def get_num_interop_threads() -> int:
    """What `set_num_interop_threads` was given last; 1 at first."""
    return _interop
