"""What programs do with the tensors that ops keep for the backward pass: `saved_tensors_hooks` and its kin.

Nodes that are made while hooks are set, in any thread, are of a class of their own, which packs what it is given. All
other nodes, and the call paths that make them, are as they are without this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ..errors import AutogradError
from ..tensor_base import TensorBase, make_tensor
from . import lines
from .graph import Node, Output, is_recording, set_recording

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .passes import BackwardPass

Hooks = tuple[Callable[[Any], Any], Callable[[Any], Any]]

_hooks: ContextVar[Hooks | None] = ContextVar("saved_tensors_hooks", default=None)
_disabled: ContextVar[str | None] = ContextVar("saved_tensors_hooks_disabled", default=None)


class Packed:
    """A tensor that is saved as what a hook made of it.

    node: that of the tensor which unpacking gives.
    """

    __slots__ = ("_unpack", "_what", "node")

    def __init__(self, tensor: Any, hooks: Hooks, node: Node | None) -> None:
        pack, self._unpack = hooks
        self.node = node
        before, recording = tensor.buffer.modified, is_recording()
        set_recording(False)
        try:
            self._what = pack(tensor)
        finally:
            set_recording(recording)
        if tensor.buffer.modified is not before:
            raise AutogradError(
                f"saved_tensors_hooks(): pack has changed the tensor of shape {tuple(tensor.shape)} in place"
            )

    def unpack(self, node: Node | None = None) -> Tensor:
        found = self._unpack(self._what)
        if not isinstance(found, TensorBase):
            raise TypeError(f"saved_tensors_hooks(): unpack must return a tensor, got {type(found).__name__}")
        return make_tensor(found.spec, found.buffer, found.offset, node or self.node)


def pack_all(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a Function's context keeps of the tensors that it saves."""
    hooks = _hooks.get()
    if hooks is None:
        return tensors
    return tuple(Packed(t, hooks, t.node) if isinstance(t, TensorBase) else t for t in tensors)


class _Inputs:
    """The inputs of a node while its rules run: each is unpacked when it is first asked for."""

    __slots__ = ("_unpacked", "_values")

    def __init__(self, values: tuple[Any, ...], unpacked: dict[int, Any]) -> None:
        self._values, self._unpacked = values, unpacked

    def __getitem__(self, at: int) -> Any:
        value = self._values[at]
        if type(value) is not Packed:
            return value
        if at not in self._unpacked:
            self._unpacked[at] = value.unpack()
        return self._unpacked[at]


_inputs, _outputs = Node.__dict__["saved_inputs"], Node.__dict__["saved_outputs"]


class PackingNode(Node):
    """A node that packs what it saves. Only while its rules run are its inputs seen as tensors.

    unpacked: what has been unpacked for the rules that run now, by position; None where none do.
    """

    packs = True
    packed: dict[int, Packed]
    unpacked: dict[int, Any] | None

    @property
    def saved_inputs(self) -> Any:
        values = _inputs.__get__(self)
        return values if values is None or self.unpacked is None else _Inputs(values, self.unpacked)

    @saved_inputs.setter
    def saved_inputs(self, values: tuple[Any, ...] | None) -> None:
        self.unpacked = None
        hooks = _hooks.get()
        if hooks is not None and values is not None:
            edges = dict(zip(self.plan.op.tensors, self.edges, strict=False))
            values = tuple(
                [Packed(v, hooks, edges.get(i)) if isinstance(v, TensorBase) else v for i, v in enumerate(values)]
            )
        _inputs.__set__(self, values)

    @property
    def saved_outputs(self) -> Any:
        return _outputs.__get__(self)

    @saved_outputs.setter
    def saved_outputs(self, saved: Any) -> None:
        self.packed = {}
        hooks = _hooks.get()
        if hooks is not None and saved is not None:
            kept = list(saved)
            for i, entry in enumerate(saved):
                if entry is not None and entry[0] is not None:
                    self.packed[i] = Packed(make_tensor(self.plan.outputs[i], *entry), hooks, None)
                    kept[i] = None, entry[1]
            saved = tuple(kept)
        _outputs.__set__(self, saved)

    def run_backward(self, backward: BackwardPass, grad: Any) -> None:
        self.unpacked = {}
        try:
            super().run_backward(backward, grad)
        finally:
            self.unpacked = None

    def free(self, line: Any = None) -> None:
        values, outputs = _inputs.__get__(self), self.saved_outputs
        if outputs is None and not any(isinstance(v, TensorBase | Packed) for v in values or ()):
            return
        self.packed = {}
        _inputs.__set__(self, None)
        _outputs.__set__(self, None if line is None else ((None, line),))

    def saved_result(self, at: int | None = None) -> Any:
        if at is None and len(self.plan.outputs) == 1:
            at = 0
        if at is None or at not in self.packed:
            return super().saved_result(at)
        if self.unpacked is None:
            return self.packed[at].unpack(self if len(self.plan.outputs) == 1 else Output(self, at))
        if ~at not in self.unpacked:
            self.unpacked[~at] = self.packed[at].unpack(self if len(self.plan.outputs) == 1 else Output(self, at))
        return self.unpacked[~at]

    def check_unchanged(self, value: Tensor, what: str) -> None:
        """Nothing: what unpacking gives may be new, and written a moment ago."""


class saved_tensors_hooks:
    """A context manager: each tensor that an op, or a Function, saves for its gradient is kept as pack_hook(tensor).

    Where the gradient needs it, `unpack_hook` is called with that and returns a tensor like the one that was saved. Of
    nested contexts the innermost counts. pack_hook runs unrecorded, and must not change the tensor, else AutogradError
    is raised. Whether a saved tensor has been changed in place since is not checked, as in PyTorch: a pack_hook that
    returns the tensor itself has to see to it.

    Raises RuntimeError on entry where `disable_saved_tensors_hooks` is on. In the backward pass, TypeError where
    unpack_hook returns no tensor.
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook
        self._before: list[Hooks | None] = []

    def __enter__(self) -> None:
        message = _disabled.get()
        if message is not None:
            raise RuntimeError(message)
        self._before.append(_hooks.get())
        _hooks.set((self.pack_hook, self.unpack_hook))
        lines.pack(PackingNode, 1)

    def __exit__(self, *exception: object) -> None:
        lines.pack(PackingNode, -1)
        _hooks.set(self._before.pop())


class save_on_cpu(saved_tensors_hooks):
    """A context manager: tensors that ops save for their gradients are kept in the CPU's memory, and copied back to
    their device where the gradient needs them. It trades time for memory of the device.

    pin_memory: the copies of tensors of other devices lie in page-locked memory, from which copies are faster.
    device_type: whose memory is pinned, as in PyTorch; norch pins for the one that there is.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> tuple[Any, Tensor]:
            copy = tensor.detach().cpu()
            return tensor.device, copy.pin_memory() if pin_memory and tensor.device.type != "cpu" else copy

        def unpack(packed: tuple[Any, Tensor]) -> Tensor:
            device, copy = packed
            return copy.to(device, non_blocking=pin_memory)

        super().__init__(pack, unpack)


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """A context manager in which `saved_tensors_hooks` raises RuntimeError with `error_message`, and so does entering
    it where hooks are set."""
    if _hooks.get() is not None:
        raise RuntimeError(error_message)
    before = _disabled.set(error_message)
    try:
        yield
    finally:
        _disabled.reset(before)
