"""The test kit that norch ships: sample records for every op, gradient checks, and backends made for testing."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "assert_close":
        from .compare import assert_close

        return assert_close
    if name == "make_tensor":
        from .making import make_tensor

        return make_tensor
    raise AttributeError(f"module 'norch.testing' has no attribute {name!r}")
