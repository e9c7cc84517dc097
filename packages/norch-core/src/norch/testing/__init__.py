"""The test kit that norch ships: sample records for every op, gradient checks, and backends made for testing."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("assert_close", "assert_allclose"):
        from . import compare

        return getattr(compare, name)
    if name == "make_tensor":
        from .making import make_tensor

        return make_tensor
    raise AttributeError(f"module 'norch.testing' has no attribute {name!r}")
