"""Memory that processes share: `share_memory_`, and how such tensors are sent to processes."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from ..device import CPU
from ..errors import DeviceError
from ..ops.registry import method
from ..spec import Spec
from ..tensor_base import TensorBase, make_tensor
from .interop import attributes

if TYPE_CHECKING:
    from multiprocessing.heap import Arena

    from ..dtype import DType
    from . import Tensor

_arenas: WeakKeyDictionary[Any, Arena] = WeakKeyDictionary()
"""By buffer: the memory that it is on."""

_buffers: WeakKeyDictionary[Arena, ref[Any]] = WeakKeyDictionary()


@method()
def share_memory_(self: Tensor) -> Tensor:
    """Moves the memory of the tensor, of any shape, and of its views to where processes share it. Returns the tensor.

    `multiprocessing` then sends it to processes without a copy, and forked ones have it anyway: what one writes, all
    read. Nothing keeps them from writing at once. Raises DeviceError for tensors that are not on the CPU,
    NotImplementedError where the backend takes no memory of others.
    """
    if self.spec.device is not CPU:
        raise DeviceError(f"share_memory_(): only CPU tensors can be shared, this one is on {self.spec.device}")
    _send(TensorBase)
    if self.is_shared():
        return self
    from multiprocessing.heap import Arena

    old = self.buffer
    arena = Arena(max(old.nbytes, 1))
    memory = memoryview(arena.buffer)[: old.nbytes]
    if old.nbytes:
        CPU.backend.copy_out(old, 0, memory)
    new = _on(arena, old.nbytes)
    new.modified = old.modified
    # The slot of the tensor, `old` and the call itself hold the buffer; all else are views and what the graph keeps.
    holders = gc.get_referrers(old) if sys.getrefcount(old) > 3 else ()
    for holder in (self, *[x for x in holders if isinstance(x, TensorBase)]):
        holder.buffer = new
    return self


@method()
def is_shared(self: Tensor) -> bool:
    """Whether the tensor is in memory that processes share, by `share_memory_`."""
    return self.left_to is None and self.buffer in _arenas


def _on(arena: Arena, nbytes: int) -> Any:
    """The buffer on the memory of an arena, one for all tensors on it."""
    known = _buffers.get(arena)
    buffer = None if known is None else known()
    if buffer is None:
        buffer = CPU.backend.from_host(memoryview(arena.buffer)[:nbytes])
        if buffer is None:
            raise NotImplementedError("share_memory_(): this device's backend takes no memory of others")
        _arenas[buffer] = arena
        _buffers[arena] = ref(buffer)
    return buffer


def _send(kind: type) -> None:
    """Has `multiprocessing` send tensors of this class and below that are in shared memory as that memory."""
    from multiprocessing.reduction import ForkingPickler

    ForkingPickler.register(kind, _reduce)
    below: type
    for below in kind.__subclasses__():
        _send(below)


_with_processes = False


def share_with_processes() -> None:
    """Has processes that are spawned share the memory of the tensors among their arguments, as PyTorch's do. It counts
    for the classes of tensors that there are.
    """
    import multiprocessing.heap  # noqa: F401  # whose arenas a pickler sends that is made from now on

    global _with_processes
    _with_processes = True
    _send(TensorBase)


def _is_for_process(tensor: Tensor) -> bool:
    from multiprocessing.context import get_spawning_popen

    return get_spawning_popen() is not None and type(tensor.spec) is Spec and tensor.spec.device is CPU


def _reduce(tensor: Tensor) -> Any:
    if _with_processes and tensor.is_leaf and _is_for_process(tensor):
        with suppress(NotImplementedError):
            tensor.share_memory_()
    arena = _arenas.get(tensor.buffer) if tensor.is_leaf and tensor.left_to is None else None
    if arena is None:
        return tensor.__reduce_ex__(4)
    spec = tensor.spec
    form = tuple(spec.shape), spec.strides, spec.dtype, tensor.offset
    return (
        _rebuild,
        (type(tensor), arena, tensor.buffer.nbytes, *form, tensor.requires_grad),
        attributes(tensor) or None,
    )


def _rebuild(
    kind: type[Tensor],
    arena: Arena,
    nbytes: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: DType,
    offset: int,
    requires_grad: bool,
) -> Tensor:
    _send(TensorBase)
    out = make_tensor(Spec(shape, strides, dtype, CPU), _on(arena, nbytes), offset, kind=kind)
    return out.requires_grad_() if requires_grad else out
