"""`norch.explain` of a tensor: its storage, how it reads it, who else does, and what would copy."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ..spec import Shape, Spec, reshape_strides
from .naming import names_in, others_on
from .reasons import no_view
from .storage import Layout, Pair, layout_of, pairs, row_major
from .strips import explanation_drawing
from .svg import Drawing, Drawn
from .text import explanation_text

if TYPE_CHECKING:
    from types import FrameType

    from ..tensor import Tensor


@dataclass(frozen=True)
class Sharing:
    """Another tensor on the same storage. relation: "base", "view of it" or "view of the same"."""

    name: str
    shape: Shape
    strides: Shape
    offset: int
    dtype: str
    relation: str


@dataclass(frozen=True)
class Call:
    """What a call would do to the tensor: copies, or not, and why. error: it would raise ShapeError."""

    call: str
    copies: bool
    why: str
    error: bool = False


@dataclass(frozen=True, repr=False)
class Explanation(Drawn):
    """What `norch.explain` says of a tensor. `str()` is the text, notebooks show the picture, `save` writes it.

    name: what the program calls the tensor, where that could be found. sharing: other living tensors on its storage.
    calls: what would copy. dims: which neighbouring dims merge.
    """

    name: str
    layout: Layout
    nbytes: int
    sharing: tuple[Sharing, ...]
    dims: tuple[Pair, ...]
    calls: tuple[Call, ...]

    def __str__(self) -> str:
        return explanation_text(self)

    def drawing(self) -> Drawing:
        return explanation_drawing(self)


def explained(tensor: Tensor, frame: FrameType | None, name: str) -> Explanation:
    """The explanation of a tensor of that name, or of what a program that is at `frame` calls it."""
    names, layout = names_in(frame), layout_of(tensor)
    sharing = []
    for other in others_on(tensor):
        relation = "base" if other is tensor.base else "view of it" if other.base is tensor else "view of the same"
        if type(other.spec) is Spec:
            spec = other.spec
            sharing.append(
                Sharing(
                    names.get(id(other), ""), tuple(spec.shape), spec.strides, other.offset, spec.dtype.name, relation
                )
            )
    # Tensors that nothing names and that show what others show, such as those of a graph, come last.
    sharing.sort(key=lambda s: (s.relation != "base", not s.name))
    spec = tensor.spec
    return Explanation(
        name or names.get(id(tensor), ""),
        layout,
        int(tensor.buffer.nbytes),
        tuple(sharing),
        tuple(pairs(spec)),
        calls(layout),
    )


def calls(layout: Layout) -> tuple[Call, ...]:
    """What the calls that may copy would do."""
    spec = layout.spec
    size = f"{prod(spec.shape) * spec.dtype.itemsize:,} bytes"
    if spec.is_contiguous:
        found = [Call("contiguous()", False, "the tensor itself: its elements lie in row-major order without gaps")]
    else:
        why = f"{size}: the strides of a contiguous {tuple(spec.shape)} are {row_major(spec)}, not {spec.strides}"
        found = [Call("contiguous()", True, why)]
    flat = reshape_strides(spec.shape, spec.strides, (spec.numel,))
    if flat is not None:
        stride = "" if spec.numel < 2 else f", stride {flat[0]}"
        return (*found, Call("reshape(-1), flatten(), view(-1)", False, f"a view{stride}: all dims merge"))
    why = no_view(layout, (spec.numel,))
    found += [
        Call("add_(1)", False, "several indices share an element; clone() it first", error=True)
    ] * layout.is_overlapping
    return (
        *found,
        Call("reshape(-1), flatten()", True, f"{size}: {why}"),
        Call("view(-1)", False, "it never copies", error=True),
    )
