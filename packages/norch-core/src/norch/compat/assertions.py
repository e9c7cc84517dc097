"""PyTorch's checks of conditions, which raise an error of a kind unless they hold: `torch._check` and its siblings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..overriding import ask, of_foreign

Message = Callable[[], str] | None


def _check_with(error_type: type[BaseException], cond: Any, message: Message = None) -> None:
    if not cond:
        raise error_type("expected the condition to be true" if message is None else str(message()))


def _check(cond: Any, message: Message = None) -> None:
    _check_with(RuntimeError, cond, message)


def _check_index(cond: Any, message: Message = None) -> None:
    _check_with(IndexError, cond, message)


def _check_value(cond: Any, message: Message = None) -> None:
    _check_with(ValueError, cond, message)


def _check_type(cond: Any, message: Message = None) -> None:
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Message = None) -> None:
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: Any, message: Message = None, *, max: Any = None) -> None:
    _check_with(RuntimeError, i >= 0 and (max is None or i <= max), message)


def _check_tensor_all_with(error_type: type[BaseException], cond: Any, message: Message = None) -> None:
    _check_with(error_type, cond.all().item(), message)


def _check_tensor_all(cond: Any, message: Message = None) -> None:
    _check_tensor_all_with(RuntimeError, cond, message)


def _assert_async(cond: Any, message: str = "expected the condition to be true") -> None:
    _check_with(RuntimeError, cond, lambda: message)


def _assert(condition: Any, message: str) -> Any:
    if of_foreign(condition) is not None:
        return ask(_assert, (condition, message), {})
    assert condition, message
