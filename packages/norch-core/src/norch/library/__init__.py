"""Python functions as named ops, as `torch.library` has them: `custom_op` or `Library` makes one, its name finds it.

    @norch.library.custom_op("mine::scaled", mutates_args=())
    def scaled(x: Tensor, factor: float) -> Tensor:
        return x * factor

    norch.ops.mine.scaled(x, 2.0)

A backend's own ops come with its plug-in; these are for functions of Python that should be one node of the graph.
`register_...(op, ...)` are the methods of `CustomOp`, of an op or its name.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..dtype import DType
from ..submodules import late_submodules
from .libraries import Library, define, impl
from .libraries import _scoped_library as _scoped_library
from .namespaces import composite_op, custom_op, find, triton_op
from .op import CustomOp
from .schema import infer_schema

__all__ = [
    "CustomOp",
    "Library",
    "composite_op",
    "custom_op",
    "define",
    "impl",
    "infer_schema",
    "opcheck",
    "register_autocast",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_vmap",
    "triton_op",
]


def register_autograd(
    op: str | CustomOp, backward: Callable[..., Any], /, *, setup_context: Any = None, lib: Library | None = None
) -> None:
    """`CustomOp.register_autograd` of an op or its name. lib: taken for PyTorch's sake.

    Raises RuntimeError for a name that none has.
    """
    find(op).register_autograd(backward, setup_context=setup_context)


def register_kernel(op: str | CustomOp, device_types: Any, func: Any = None, /, *, lib: Library | None = None) -> Any:
    """`CustomOp.register_kernel` of an op or its name, for `device_types`. lib: taken for PyTorch's sake.

    Raises RuntimeError for a name that none has.
    """
    return find(op).register_kernel(device_types, func)


def register_fake(
    op: str | CustomOp, func: Any = None, /, *, lib: Library | None = None, allow_override: bool = False
) -> Any:
    """`CustomOp.register_fake` of an op or its name. lib, allow_override: taken for PyTorch's sake.

    Raises RuntimeError for a name that none has.
    """
    return find(op).register_fake(func)


impl_abstract = register_fake  # PyTorch's old name


def register_vmap(op: str | CustomOp, func: Any = None, /, *, lib: Library | None = None) -> Any:
    """`CustomOp.register_vmap` of an op or its name. lib: taken for PyTorch's sake.

    Raises RuntimeError for a name that none has.
    """
    return find(op).register_vmap(func)


def register_autocast(
    op: str | CustomOp, device_type: str, cast_inputs: DType, /, *, lib: Library | None = None
) -> None:
    """`CustomOp.register_autocast` of an op or its name. lib: taken for PyTorch's sake.

    Raises RuntimeError for a name that none has.
    """
    find(op).register_autocast(device_type, cast_inputs)


def wrap_triton(triton_kernel: Any, /) -> Any:
    """The kernel itself, which PyTorch looks into where it compiles a `triton_op`."""
    return triton_kernel


_submodule = late_submodules(__name__)


def __getattr__(name: str) -> Any:
    return import_module(f"{__name__}.checking").opcheck if name == "opcheck" else _submodule(name)
