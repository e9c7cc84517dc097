"""`norch.sparse.check_sparse_tensor_invariants`."""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any


class check_sparse_tensor_invariants(ContextDecorator):
    """PyTorch's switch of whether the indices of new sparse tensors are checked: for a block, or for a function that it
    decorates. norch checks them always; the switch says what it was set to.

    enable: what it is set to in the block.
    """

    _enabled = False

    def __init__(self, enable: bool = True) -> None:
        self._wanted, self._before = enable, []  # type: tuple[bool, list[bool]]

    @staticmethod
    def is_enabled() -> bool:
        """What it is set to."""
        return check_sparse_tensor_invariants._enabled

    @staticmethod
    def enable() -> None:
        """Sets it from now on."""
        check_sparse_tensor_invariants._enabled = True

    @staticmethod
    def disable() -> None:
        """Sets it back: indices are checked nonetheless."""
        check_sparse_tensor_invariants._enabled = False

    def __enter__(self) -> None:
        self._before.append(self.is_enabled())
        check_sparse_tensor_invariants._enabled = self._wanted

    def __exit__(self, *error: Any) -> None:
        check_sparse_tensor_invariants._enabled = self._before.pop()
