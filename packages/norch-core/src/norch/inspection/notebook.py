"""What a notebook shows of a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..spec import Spec
from .explanation import Explanation
from .storage import layout_of
from .strips import explanation_drawing
from .svg import escape

if TYPE_CHECKING:
    from ..tensor import Tensor


def tensor_html(tensor: Tensor) -> str | None:
    """What a notebook shows of a tensor: its text, and how it lies in memory."""
    if type(tensor.spec) is not Spec:  # sparse, or inside vmap
        return None
    found = Explanation("", layout_of(tensor), 0, (), (), ())
    return f"<pre>{escape(repr(tensor))}</pre>\n{explanation_drawing(found, more=False).svg()}"
