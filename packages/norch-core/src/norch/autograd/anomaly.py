"""Anomaly mode: a backward pass that stops at the first op whose gradient is NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import switches
from ..errors import AutogradError
from ..source_lines import here, table
from . import graph
from .lines import record_lines

if TYPE_CHECKING:
    from ..tensor import Tensor


def _check(node: graph.Node, position: int, value: Tensor) -> None:
    if value.spec.dtype.is_floating_point and bool((value.detach() != value.detach()).any().item()):
        name = node.title()
        raise AutogradError(
            f"backward(): {name} gave NaN as the gradient of its operand {position}, of shape {tuple(value.shape)}; "
            "look at the values that the op was called with, or let norch.detect_nan() find what made them"
            + table((f"{name} called", node.line), ("backward called", here()))
        )


_lines: record_lines | None = None


def set_check(check: Any) -> Any:
    """Has `check(node, operand, gradient)` called with each gradient that a node gives, and nodes know their lines;
    returns what was called before. None ends it. Captured steps run as they are meanwhile."""
    global _lines
    before = graph.anomaly_check
    switches.switched(graph, "anomaly_check", before, check)
    graph.anomaly_check = check
    if check is not None and _lines is None:
        _lines = record_lines(True)
    elif check is None and _lines is not None:
        lines, _lines = _lines, None
        lines.__exit__()
    return before


def is_anomaly_enabled() -> bool:
    """Whether backward passes look for NaN."""
    return graph.anomaly_check is not None


class set_detect_anomaly:
    """Makes backward passes raise AutogradError at the first op whose gradient is NaN, naming it and the line that
    called it: at once, where `mode`, and as a context manager until its end. Each node then waits for the device: for
    debugging.

    With `check_nan=False` nothing is left to do. `norch.detect_nan()` looks at the forward pass too, and at infinities.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = set_check(_check if mode and check_nan else None)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        set_check(self._before)


class detect_anomaly(set_detect_anomaly):
    """`set_detect_anomaly(True)` as a context manager."""

    def __init__(self, check_nan: bool = True) -> None:
        self._wanted: Any = _check if check_nan else None

    def __enter__(self) -> None:
        self._before = set_check(self._wanted)
