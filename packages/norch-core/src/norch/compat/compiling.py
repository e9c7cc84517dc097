"""`norch.compile`: the function itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Returns `model`, a function or module, as it is: norch has no compiler, and nothing runs faster for this.

    For scripts written for PyTorch, whose `torch.compile` changes speed and not results. With no `model`, a decorator.
    """
    return (lambda function: function) if model is None else model
