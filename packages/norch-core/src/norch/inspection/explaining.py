"""`norch.explain`."""

from __future__ import annotations

from ..dispatch.arguments import describe
from ..errors import DTypeError
from ..spec import Spec
from ..tensor import Tensor
from ..tensor_base import TensorBase
from .explanation import Explanation, explained
from .naming import caller


def explain(thing: Tensor) -> Explanation:
    """How a tensor lies in memory: its storage with the elements that it shows, shape, strides and offset, the other
    living tensors on the storage, which dims merge, and which calls would copy.

    `print` shows the text, a notebook the picture, and `save("picture.svg")` writes that. Values are read of the few
    elements that are shown. Raises DTypeError for anything else, and for tensors that have no storage of their own:
    sparse ones, and those inside vmap.
    """
    if not isinstance(thing, TensorBase):
        raise DTypeError(f"explain(): expected a Tensor, got {describe(thing)}")
    if type(thing.spec) is not Spec:
        raise DTypeError(f"explain(): a {type(thing).__name__} has no strides; explain what it consists of")
    return explained(thing, caller())
