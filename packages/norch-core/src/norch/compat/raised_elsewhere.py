"""Exceptions from one thread or process to another, as PyTorch's own loaders hand them on."""

from __future__ import annotations

import sys
import traceback
from typing import Any, NoReturn


class ExceptionWrapper:
    """What was raised, `exc_info` or what is being handled, to be raised again elsewhere with its traceback as text."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        kind, error, frames = exc_info or sys.exc_info()
        self.exc_type: Any = kind
        self.exc_msg = "".join(traceback.format_exception(kind, error, frames))
        self.where = where

    def reraise(self) -> NoReturn:
        """Raises an exception of the same class, RuntimeError where that takes no single message."""
        text = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        try:
            error = self.exc_type(text)
        except Exception:
            raise RuntimeError(text) from None
        raise error
