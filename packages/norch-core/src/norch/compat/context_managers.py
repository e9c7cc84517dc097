"""PyTorch's `torch.utils._contextlib`: bases of context managers that decorate functions, too."""

from __future__ import annotations

from typing import Any

from ..autograd.mode import DecoratorContextManager

_DecoratorContextManager = DecoratorContextManager


class _NoParamDecoratorContextManager(DecoratorContextManager):
    """One without arguments, which decorates without parentheses as well: `@mode` and `@mode()`."""

    def __new__(cls, orig_func: Any = None) -> Any:
        return object.__new__(cls) if orig_func is None else cls()(orig_func)
