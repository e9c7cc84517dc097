"""`torch.autograd.forward_ad`: tensors with tangents, `make_dual`, whose ops give results with tangents.

Ops record the graph that they always do, and `unpack_dual` computes the tangent by two backward passes, the second
through the first, as `jvp` does. So results require grad as long as they depend on a dual tensor.
"""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any, NamedTuple

from ..autograd.engine import grad
from ..autograd.graph import Leaf, is_recording, resolve, set_recording
from ..errors import AutogradError, DTypeError, ShapeError
from ..ops.creation import fill_spec
from ..tensor import Tensor
from .batched import current_levels, lift, lower
from .transforms import _leaf, _note_leaves


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` gives. tangent: None for a tensor that depends on no dual one."""

    primal: Any
    tangent: Any


class _Level:
    """The dual tensors of a `dual_level`: by node each, as it is in memory, and its tangent."""

    def __init__(self) -> None:
        self.was_recording = is_recording()
        self.duals: dict[Any, tuple[Tensor, Tensor, Tensor]] = {}


_level: _Level | None = None


def current_level() -> int:
    """0 within a `dual_level`, and -1 outside, as PyTorch counts them."""
    return -1 if _level is None else 0


def enter_dual_level() -> int:
    """Begins what `dual_level` is about, and returns 0. Raises AutogradError within another."""
    global _level
    if _level is not None:
        raise AutogradError("Nested forward mode AD is not supported: dual_level() within another")
    _level = _Level()
    set_recording(True)
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Ends it: no tensor has a tangent from then on. Raises AutogradError where none has begun. level: 0 or None."""
    global _level
    if _level is None:
        raise AutogradError("exit_dual_level(): there is no dual level; enter_dual_level() begins one")
    set_recording(_level.was_recording)
    _level = None


class dual_level(ContextDecorator):
    """Within this context tensors may have tangents; there is one at a time. Ops record, also where it stands within
    `no_grad`; within a `no_grad` that stands inside of it results have no tangents."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exception: object) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A tensor of the same values that has a tangent, of its shape and dtype: by how much it changes.

    level: 0 or None. Raises AutogradError outside of a `dual_level`, and within `no_grad` inside of one; DTypeError for
    tensors that are not floating, ShapeError for a tangent of another shape.
    """
    if _level is None:
        raise AutogradError("make_dual(): there is no level, which enter_dual_level() or dual_level() begins")
    if not is_recording():
        raise AutogradError("make_dual(): under no_grad() ops do not record, and their results have no tangents")
    for x in (tensor, tangent):
        if not x.spec.dtype.is_floating_point:
            raise DTypeError(f"make_dual(): primal and tangent are floating, got {x.spec.dtype}")
    if tensor.spec.shape != tangent.spec.shape:
        raise ShapeError(
            f"make_dual(): a tangent of shape {tuple(tangent.shape)} for a tensor of shape {tuple(tensor.shape)}"
        )
    levels = current_levels.get()
    low, _ = _leaf("make_dual", tensor, levels, True)
    _note_leaves([low])
    _level.duals[resolve(low)] = low, tangent, lower(tangent, levels)
    return lift(low, levels)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The tensor without its tangent, and the tangent: None where it depends on no dual tensor, or outside of a level.

    Where a tensor that is differentiated by is part of it, both can be differentiated. level: 0 or None.
    """
    levels = current_levels.get()
    node = None if _level is None else resolve(low := lower(tensor, levels))
    if _level is None or node is None:
        return UnpackedDualTensor(tensor, None)
    found, tracked = _roots(node, _level)
    if not found:
        return UnpackedDualTensor(tensor, None)
    primal = tensor if tracked else tensor.detach()
    if node in _level.duals:
        return UnpackedDualTensor(primal, _level.duals[node][1])
    was_recording = is_recording()
    set_recording(True)
    try:
        seed = fill_spec(low.spec.like(low.spec.shape), 0).requires_grad_()
        _note_leaves([seed])
        rows: Any = grad([low], [dual for dual, _, _ in found], [seed], create_graph=True, allow_unused=True)
        pairs = [(row, own) for row, (_, _, own) in zip(rows, found, strict=True) if row is not None]
        pairs = [(row, own) for row, own in pairs if row.requires_grad]
        change: Any = None
        if pairs:
            tracked = tracked or any(own.requires_grad for _, own in pairs)
            outs, seeds = zip(*pairs, strict=True)
            (change,) = grad(list(outs), [seed], list(seeds), create_graph=tracked, allow_unused=True)
    finally:
        set_recording(was_recording)
    return UnpackedDualTensor(primal, lift(seed.detach() if change is None else change, levels))


def _roots(node: Any, level: _Level) -> tuple[list[tuple[Tensor, Tensor, Tensor]], bool]:
    """The dual tensors that the graph of a node begins with, and whether it has other leaves too."""
    found, tracked = [], False
    stack, seen = [node], {node}
    while stack:
        at = stack.pop()
        if at in level.duals:
            found.append(level.duals[at])
        elif type(at) is Leaf:
            tracked = True
        for edge in at.edges:
            if edge is not None and edge not in seen:
                seen.add(edge)
                stack.append(edge)
    return found, tracked
