"""Tensors inside `vmap`: to the function that is mapped each is one sample, in memory it is all of them.

A batched tensor has a spec that no plan is looked up by, so that dispatch hands each op on it to a rule (`rules.py`)
that runs it on all samples at once. Ordinary ops do not know of it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NoReturn

from ..autograd.graph import is_recording
from ..errors import AutogradError, NorchError, ShapeError
from ..ops.registry import IN_PLACE, METHODS
from ..spec import Spec
from ..tensor import Tensor
from ..tensor_base import TakenOver


class Level:
    """One `vmap` that runs: how many samples it has, what random ops do, and how many others it is within."""

    __slots__ = ("depth", "randomness", "size")

    def __init__(self, size: int, randomness: str, depth: int) -> None:
        self.size, self.randomness, self.depth = size, randomness, depth


current_levels: ContextVar[tuple[Level, ...]] = ContextVar("vmap_levels", default=())
"""The vmaps that run here, outermost first."""

find_rule: dict[str, Callable[..., Any]] = {}
"""How an op is run ("run"), or its result written ("into"): filled by `rules.py`."""


class VmapError(TakenOver, NorchError, RuntimeError):
    """What vmap cannot do, or, of a spec that a plan is looked up by, that a rule is to do it."""

    def run(self, op: Any, args: tuple[Any, ...]) -> Any:
        try:
            return find_rule["run"](op, args)
        except Exception as found:
            raise found from None

    def into(self, op: Any, out: Any, args: tuple[Any, ...]) -> None:
        find_rule["into"](op, out, args)


_IN_PLACE_HINT = (
    "vmap(): what differs from sample to sample cannot be written in place into a tensor that does not, nor be read on "
    "the host; use an op out of place, or begin with zeros_like() or new_zeros() of a tensor that is mapped over"
)


class BatchedSpec(Spec):
    """The spec of one sample. Specs made from it are of the same level, and of those that it is within."""

    __slots__ = ("level", "outer")
    level: Level
    outer: tuple[Level, ...]

    @property
    def levels(self) -> tuple[Level, ...]:
        return (*self.outer, self.level)

    def __hash__(self) -> int:
        raise VmapError(_IN_PLACE_HINT)

    def like(self, shape: Any = None, strides: Any = None, dtype: Any = None, device: Any = None) -> Spec:
        shape = self.shape if shape is None else shape
        spec = Spec(tuple(shape), strides, dtype or self.dtype, device or self.device)
        return batched_spec(self.level, spec, self.outer)


def batched_spec(level: Level, spec: Spec, outer: tuple[Level, ...]) -> BatchedSpec:
    """`spec`, that of one sample, at a level; `outer` are the other levels that it differs in."""
    out: BatchedSpec = object.__new__(BatchedSpec)
    for name in ("shape", "strides", "dtype", "device", "ndim", "numel", "nbytes", "is_contiguous", "overlaps"):
        setattr(out, name, getattr(spec, name))
    out.level, out.outer = level, outer
    return out


def _refuse(name: str) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise VmapError(
            f"vmap(): {name} reads a value on the host, which differs from sample to sample; use norch.where in place "
            "of a branch, or loop over the batch"
        )

    return call


class Batched(Tensor, plain_results=True):
    """All samples of a level in one tensor: `value`, whose dim 0 they are along."""

    __slots__ = ("level", "value")
    level: Level
    value: Tensor

    @property
    def buffer(self) -> Any:
        raise VmapError(f"{_IN_PLACE_HINT}. Nor can a function be mapped that works on memory itself")

    def _detached(self) -> Tensor:
        return batched(self.level, self.value.detach())

    @property  # type: ignore[misc]
    def data(self) -> Tensor:
        return self.detach()

    @property  # type: ignore[misc]
    def requires_grad(self) -> bool:
        return self.value.requires_grad

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        self.value.requires_grad_(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        return self.value.is_leaf

    @property
    def grad_fn(self) -> Any:
        return self.value.grad_fn

    def backward(self, *args: Any, **kwargs: Any) -> None:
        raise AutogradError("backward(): a tensor inside vmap() has none; use norch.func.grad")

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        given = [x for a in args for x in ((a.dtype, a.device) if isinstance(a, Tensor) else (a,))]
        other = kwargs.pop("other", None)
        return batched(
            self.level, self.value.to(*given, *(() if other is None else (other.dtype, other.device)), **kwargs)
        )

    def clone(self, *, memory_format: object = None) -> Tensor:
        return METHODS["clone"](self)  # type: ignore[no-any-return]

    def __setitem__(self, index: Any, value: Any) -> None:
        find_rule["setitem"](self, index, value)

    def __repr__(self) -> str:
        return f"Batched(level={self.level.depth}, value={self.value!r})"

    __str__ = __repr__

    def zero_(self) -> Tensor:
        return self.write(0)

    def write(self, source: Any, name: str = "copy_") -> Tensor:
        """Takes the values of `source`, which broadcasts to this shape."""
        if not isinstance(source, Tensor):
            self.value.fill_(source) if isinstance(source, bool | int | float) else self.value.copy_(source)
            return self
        if depth_of(source) > self.level.depth:
            raise VmapError(_IN_PLACE_HINT)
        if name != "copy_" and source.spec.shape != self.spec.shape:
            raise ShapeError(f"{name}(): a result of shape {tuple(source.shape)} for one of {tuple(self.shape)}")
        front = physical(source, self.level)
        lead = self.spec.ndim - source.spec.ndim
        self.value.copy_(front.reshape((front.shape[0], *(1,) * lead, *front.shape[1:])) if lead > 0 else front)
        return self


def _written(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Batched, *args: Any, **kwargs: Any) -> Any:
        source = self
        if is_recording() and any(isinstance(a, Tensor) and a.requires_grad for a in (self, *args)):
            source = self.clone()  # type: ignore[assignment]  # the graph may keep it
        found = function(source, *[source if a is self else a for a in args], **kwargs)
        return found if found is NotImplemented else self.write(found, name)

    return call


def _made(name: str) -> Callable[..., Any]:
    def call(self: Batched, *args: Any, **kwargs: Any) -> Any:
        one = getattr(Tensor, name)(self, *args, **kwargs)
        if isinstance(one, Batched):
            return one
        return repeated(one, self.spec.levels)  # type: ignore[attr-defined]

    return call


def _viewed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Batched, *args: Any, **kwargs: Any) -> Any:
        view = function(self, *args, **kwargs)
        self.spec, self.value = view.spec, view.value
        return self

    return call


def _taken(self: Batched, value: Any, *rest: Any, **more: Any) -> Tensor:
    return self.write(value)


for _name, _function in IN_PLACE.items():
    setattr(Batched, _name, _written(_name, _function))
for _name in ("copy_", "fill_"):
    setattr(Batched, _name, _taken)
for _name in ("clamp_", "clip_"):
    setattr(Batched, _name, _written(_name, METHODS["clamp"]))
for _name in ("squeeze_", "unsqueeze_", "transpose_", "swapaxes_", "swapdims_", "t_", "as_strided_"):
    setattr(Batched, _name, _viewed(_name, METHODS[_name[:-1]]))
for _name in ("new_zeros", "new_ones", "new_empty", "new_full"):
    setattr(Batched, _name, _made(_name))
for _name in ("item", "tolist", "numpy", "__bool__", "__float__", "__int__", "__index__", "__array__", "__contains__"):
    setattr(Batched, _name, _refuse(_name))


def batched(level: Level, value: Tensor) -> Tensor:
    """`value` with its dim 0 as the samples of a level."""
    out: Batched = object.__new__(Batched)
    spec = value.spec
    one = Spec(tuple(spec.shape[1:]), tuple(spec.strides[1:]), spec.dtype, spec.device)
    out.spec = batched_spec(level, one, spec.levels if isinstance(spec, BatchedSpec) else ())
    out.offset, out.node, out.base, out._grad = value.offset, None, None, None
    out.level, out.value = level, value
    return out


def depth_of(value: Any) -> int:
    """The depth of the innermost vmap that a value differs in; -1 for an ordinary tensor."""
    return value.level.depth if isinstance(value, Batched) else -1


def repeated(one: Tensor, levels: tuple[Level, ...]) -> Tensor:
    """Copies of a tensor for the samples of all these levels."""
    return lift(one.expand(*[level.size for level in levels], *one.spec.shape).clone(), levels)


def physical(x: Tensor, level: Level) -> Tensor:
    """`x` with its samples of a level along a dim 0, repeated where it does not differ there."""
    if not isinstance(x, Batched) or x.level.depth < level.depth:
        return x.expand(level.size, *x.spec.shape)
    if x.level is level:
        return x.value
    return batched(x.level, physical(x.value, level).transpose(0, 1))


def lower(x: Tensor, levels: tuple[Level, ...]) -> Tensor:
    """`x` with the samples of all these levels along dims in front."""
    for level in reversed(levels):
        x = physical(x, level)
    return x


def lift(x: Tensor, levels: tuple[Level, ...]) -> Tensor:
    """The reverse of `lower`."""
    for level in levels:
        x = _beneath(x, level)
    return x


def _beneath(x: Tensor, level: Level) -> Tensor:
    """`x` with its dim 0 as the samples of a level; levels that it has already are further in."""
    if isinstance(x, Batched) and x.level.depth > level.depth:
        return batched(x.level, _beneath(x.value.transpose(0, 1), level))
    return batched(level, x)
