"""In-place ops that write some elements alone: `scatter_`, `index_add_`, `put_` and their kind."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..autograd.graph import is_recording, mark_modified, resolve
from ..dispatch.plan import SCALARS
from ..ops.indexing import expand_index, infer_scattered, names_nothing, require_slices, scatter_into
from ..ops.shape.views import expand
from ..spec import Spec, wrap_dim
from ..tensor_base import TensorBase
from .rebasing import any_tracked, check_writable, rebase

if TYPE_CHECKING:
    from . import Tensor

_check_scattered = lru_cache(maxsize=1024)(infer_scattered)
SCATTERING = {
    "scatter_": ("dim", "index", "src"), "scatter_add_": ("dim", "index", "src"),
    "index_add_": ("dim", "index", "source"), "index_copy_": ("dim", "index", "source"),
    "index_fill_": ("dim", "index", "value"),
}  # fmt: skip
"""By name of such a method, the names of its arguments."""
_BY_ROW = frozenset({"index_add_", "index_copy_", "index_fill_"})


def _in_order(title: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by position instead of by name, and what is added times its `alpha`."""
    rest = SCATTERING[title][len(args) :]
    if not all(name in kwargs for name in rest):
        return args, kwargs
    args = (*args, *[kwargs[name] for name in rest])
    kwargs = {name: value for name, value in kwargs.items() if name not in rest}
    if title == "index_add_" and type(kwargs.get("alpha")) in SCALARS and isinstance(args[-1], TensorBase):
        alpha = kwargs.pop("alpha")
        args = args if alpha == 1 else (*args[:-1], args[-1] * alpha)
    return args, kwargs


def scattering(general: Callable[..., Tensor], title: str) -> Callable[..., Tensor]:
    """`general`, but where the graph takes no part only what is scattered is written."""

    def call(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if kwargs:
            args, kwargs = _in_order(title, args, kwargs)
        if len(args) == 3 and not kwargs and type(args[0]) is int and isinstance(args[1], TensorBase):
            dim, index, source = args
            if names_nothing(self, index) or (title == "index_fill_" and type(source) not in SCALARS):
                return general(self, dim, index, source)
            if type(source) in SCALARS and title in ("scatter_", "index_fill_"):
                shape: Any = tuple(index.spec.shape)
                if title == "index_fill_":
                    shape = _with_size(self, dim, index.spec.numel)
                source = expand(self.new_full((1,) * self.spec.ndim, source), shape)
            if isinstance(source, TensorBase) and _scattered(self, dim, index, source, title):  # type: ignore[arg-type]
                return self
        return general(self, *args, **kwargs)

    return call


def putting(general: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`general`, but of memory in one piece, of which the graph knows nothing, only what is put is written."""

    def call(self: Tensor, index: Any, source: Any, accumulate: bool = False) -> Tensor:
        given = index, source
        if all(isinstance(x, TensorBase) for x in given) and self.left_to is None and self.spec.is_contiguous:
            if not any_tracked(self, given, {}):
                flat: Any = self.view(-1)
                (flat.scatter_add_ if accumulate else flat.scatter_)(0, index.reshape(-1), source.reshape(-1))
                mark_modified(self, "put_")
                return self
        return general(self, index, source, accumulate)

    return call


def _with_size(tensor: Tensor, dim: int, size: int) -> tuple[int, ...]:
    """The tensor's shape with `size` in the place of one dim's."""
    at = wrap_dim(dim, tensor.spec.ndim, "index_fill") if tensor.spec.ndim else -1
    return tuple([size if d == at else n for d, n in enumerate(tensor.spec.shape)])


def _scattered(tensor: Tensor, dim: Any, index: Tensor, source: Tensor, title: str) -> bool:
    """Scatters into the tensor's memory; False where that cannot be."""
    spec, device = tensor.spec, tensor.spec.device
    if not spec.ndim or not source.spec.ndim or not type(spec) is type(index.spec) is type(source.spec) is Spec:
        return False
    if index.spec.device is not device or source.spec.device is not device:
        return False
    if check_writable(tensor, title) or (source.node is not None and is_recording() and resolve(source) is not None):
        return False
    if device.is_meta or index.buffer is tensor.buffer or source.buffer is tensor.buffer:
        return False
    at = wrap_dim(dim, spec.ndim, title[:-1])
    if title in _BY_ROW:
        if title != "index_fill_":
            require_slices(title[:-1], spec, at, index.spec, source.spec)
        index = expand_index(index, tuple(source.spec.shape), at, title[:-1])
    _check_scattered(spec, at, index.spec, source.spec)
    scatter_into(tensor, at, index, source, title in ("scatter_add_", "index_add_"))
    mark_modified(tensor, title)
    if is_recording():
        rebase(tensor, None)
    return True
