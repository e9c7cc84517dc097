"""Anomaly mode: a backward pass that stops at the first op whose gradient is NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import switches
from ..errors import AutogradError
from . import graph

if TYPE_CHECKING:
    from ..tensor import Tensor


def _check(node: graph.Node, position: int, value: Tensor) -> None:
    if value.spec.dtype.is_floating_point and bool((value.detach() != value.detach()).any().item()):
        name = node.name().removesuffix("_backward")
        raise AutogradError(
            f"backward(): {name} gave NaN as the gradient of its operand {position}, of shape {tuple(value.shape)}; "
            "look at the values that the op was called with"
        )


def _set(check: Any) -> None:
    switches.switched(graph, "anomaly_check", graph.anomaly_check, check)
    graph.anomaly_check = check


def is_anomaly_enabled() -> bool:
    """Whether backward passes look for NaN."""
    return graph.anomaly_check is not None


class set_detect_anomaly:
    """Makes backward passes raise AutogradError at the first op whose gradient is NaN, naming it: at once, and as a
    context manager until its end. Every op then waits for the device: for debugging.

    Unlike PyTorch's, it does not keep where in the program the op was called. With `check_nan=False` nothing is left to
    do.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = graph.anomaly_check
        _set(_check if mode and check_nan else None)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        _set(self._before)


class detect_anomaly(set_detect_anomaly):
    """`set_detect_anomaly(True)` as a context manager."""

    def __init__(self, check_nan: bool = True) -> None:
        self._wanted: Any = _check if check_nan else None

    def __enter__(self) -> None:
        self._before = graph.anomaly_check
        _set(self._wanted)
