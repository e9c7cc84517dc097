"""Whether autocast is on, in which dtype: of each thread; and the casts of weights that it keeps."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ClassVar

from ..autograd.graph import Leaf, is_recording
from ..dtype import DType, bfloat16, float16, float32

if TYPE_CHECKING:
    from ..tensor import Tensor


class State(threading.local):
    """Of this thread. The class attributes are what a thread begins with; the dicts are replaced, never changed."""

    enabled: ClassVar[dict[str, bool]] = {}
    """By device type."""
    dtypes: ClassVar[dict[str, DType]] = {}
    """By device type, where it is not the default."""
    active: Any = None
    """The dtypes of the device types for which it is enabled; None where there is none, and inside of a listed op."""
    counted = False
    """Whether this thread is one of those for which ops are hooked."""
    cache_enabled = True
    nesting = 0
    cache: Any = None


state = State()


def default_dtype(device_type: str) -> DType:
    """PyTorch's: bfloat16 on the CPU, float16 on all other devices, those of plug-ins too."""
    return bfloat16 if device_type == "cpu" else float16


def dtype_of(device_type: str) -> DType:
    return state.dtypes.get(device_type) or default_dtype(device_type)


def refresh() -> None:
    """Makes `active` of `enabled` and `dtypes`."""
    state.active = {kind: dtype_of(kind) for kind, on in state.enabled.items() if on} or None


def clear_cache() -> None:
    """Forgets the casts of leaves that this thread's regions keep."""
    state.cache = None


def cast(x: Tensor, dtype: DType) -> Tensor:
    """`x` in another dtype; of a float32 leaf that requires grad it is kept until the outermost region ends."""
    node = x.node
    if type(node) is not Leaf or not state.cache_enabled or x.spec.dtype is not float32 or x.base is not None:
        return x.to(dtype)
    if state.cache is None:
        state.cache = {}
    # Without recording a cast has no gradient, and must not be found by what records.
    key = id(x), dtype, is_recording()
    buffer, spec = x.buffer, x.spec
    known = state.cache.get(key)
    if known is not None and known[0] is x and known[1] is buffer and known[2] is buffer.modified and known[3] is spec:
        return known[4]  # type: ignore[no-any-return]
    made = x.to(dtype)
    state.cache[key] = x, buffer, buffer.modified, spec, made
    return made
