"""How many threads ops on the CPU use."""

from __future__ import annotations

import operator

from .device import CPU


def set_num_threads(count: int) -> None:
    """Lets ops on the CPU use up to `count` threads; small ones use one all the same.

    Without it they use as many as the environment variable NORCH_NUM_THREADS says, or as there are processors for this
    process. The NumPy reference backend takes no notice. Raises ValueError unless 1 <= count <= 1024.
    """
    value = operator.index(count)
    if not 1 <= value <= 1024:
        raise ValueError(f"set_num_threads(): the number of threads must be from 1 to 1024, got {count}")
    CPU.backend.set_num_threads(value)


def get_num_threads() -> int:
    """How many threads ops on the CPU may use."""
    return CPU.backend.num_threads()


_interop = 1


def set_num_interop_threads(count: int) -> None:
    """Kept, without effect: norch runs one op after another in the thread that calls it. ValueError unless positive."""
    global _interop
    _interop = operator.index(count)
    if _interop < 1:
        raise ValueError(f"set_num_interop_threads(): expected a positive number, got {count}")


def get_num_interop_threads() -> int:
    """What `set_num_interop_threads` was given last; 1 at first."""
    return _interop
