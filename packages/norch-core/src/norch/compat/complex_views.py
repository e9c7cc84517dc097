"""Views of complex numbers: methods of a `ComplexPair` that are those of its pair, with dims counted from the start.
They copy nothing, and what is written into what they give is written into the numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable


def _at(z: Any, dim: Any, more: int = 0) -> Any:
    """A dim, or several, counted from the start. Raises ShapeError out of range."""
    if isinstance(dim, tuple | list):
        return tuple([_at(z, d, more) for d in dim])
    count = z.ndim + more
    if not -max(count, 1) <= dim < max(count, 1):
        raise ShapeError(f"dim {dim} is out of range for {count} dims")
    return dim % count if count else 0


def _dim(z: Any, dim: int) -> Any:
    """A dim that is there, counted from the start. Raises ShapeError for a number without dims."""
    if not z.ndim:
        raise ShapeError("expected complex numbers of at least one dim, got a 0-d one")
    return _at(z, dim)


def _several(dims: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dims[0]) if len(dims) == 1 and not isinstance(dims[0], int) else dims


def _squeeze(z: Any, dim: Any = None) -> Any:
    dims = tuple(range(z.ndim)) if dim is None else _at(z, dim)
    return z.pair.squeeze(dims)


def _flatten(z: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    return z.pair.flatten(_at(z, start_dim), _at(z, end_dim)) if z.ndim else z.pair.reshape(1, 2)


def _expand(z: Any, *size: Any, implicit: bool = False) -> Any:
    return z.pair.expand(*_several(size), 2)


def _permute(z: Any, *dims: Any) -> Any:
    return z.pair.permute(*_at(z, _several(dims)), z.ndim)


def _diagonal(z: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return z.pair.diagonal(offset, _at(z, dim1), _at(z, dim2)).transpose(-2, -1)


def _transpose(z: Any, dim0: int, dim1: int) -> Any:
    return z.pair.transpose(_at(z, dim0), _at(z, dim1))


VIEWS: dict[str, Callable[..., Any]] = {
    "select": lambda z, dim, index: z.pair.select(_dim(z, dim), index),
    "narrow": lambda z, dim, start, length: z.pair.narrow(_dim(z, dim), start, length),
    "unsqueeze": lambda z, dim: z.pair.unsqueeze(_at(z, dim, 1)),
    "unbind": lambda z, dim=0: z.pair.unbind(_dim(z, dim)),
    "split": lambda z, split_size, dim=0: z.pair.split(split_size, _dim(z, dim)),
    "chunk": lambda z, chunks, dim=0: z.pair.chunk(chunks, _dim(z, dim)),
    "tensor_split": lambda z, indices_or_sections, dim=0: z.pair.tensor_split(indices_or_sections, _dim(z, dim)),
    "movedim": lambda z, source, destination: z.pair.movedim(_at(z, source), _at(z, destination)),
    "unfold": lambda z, dimension, size, step: z.pair.unfold(_dim(z, dimension), size, step).transpose(-2, -1),
    "transpose": _transpose, "swapaxes": lambda z, axis0, axis1: _transpose(z, axis0, axis1),
    "t": lambda z: z.pair if z.ndim < 2 else z.pair.transpose(0, 1),
    "flatten": _flatten, "ravel": lambda z: z.pair.reshape(-1, 2),
    "unflatten": lambda z, dim, sizes: z.pair.unflatten(_dim(z, dim), sizes),
    "squeeze": _squeeze, "expand": _expand, "broadcast_to": _expand, "permute": _permute, "diagonal": _diagonal,
}  # fmt: skip


MOVES_IN_PLACE = frozenset({"squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_", "unsqueeze_"})
"""Methods that change the shape of the numbers themselves."""


def move_in_place(name: str, z: Any, *dims: Any) -> Any:
    """What the method of that name gives: the numbers, moved."""
    at: tuple[Any, ...]
    if name == "squeeze_":
        at = (_at(z, dims[0]) if dims else tuple(range(z.ndim)),)
    elif name == "t_":
        at = (0, min(z.ndim - 1, 1)) if z.ndim else ()
    else:
        at = tuple([_at(z, d, int(name == "unsqueeze_")) for d in dims])
    getattr(z.pair, {"t_": "transpose_"}.get(name, name))(*at)
    return z


def view_of(name: str, z: Any, *args: Any, **kwargs: Any) -> Any:
    """What the method of that name gives, complex numbers again."""
    found = VIEWS[name](z, *args, **kwargs)
    return tuple(map(type(z), found)) if isinstance(found, tuple | list) else type(z)(found)
