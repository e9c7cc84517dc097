"""Names for tensors of a graph: those of a module's parameters, and of the variables of whoever asks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from types import FrameType
from typing import Any

from ..autograd.graph import Leaf, Output, next_sequence_number
from ..tensor_base import TensorBase
from .naming import named_in


def of_parameters(params: Any) -> dict[int, list[str]]:
    """By id of a node its names, from a module, a mapping, or pairs as `named_parameters()` gives them."""
    if hasattr(params, "named_parameters"):
        pairs: Iterable[Any] = params.named_parameters()
    elif isinstance(params, Mapping):
        pairs = params.items()
    else:
        pairs = params if isinstance(params, Iterable) else [params]
    names: dict[int, list[str]] = {}
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], TensorBase)):
            raise TypeError(
                "graph(): params is a module, a dict of tensors by name, or pairs of names and tensors such as "
                f"model.named_parameters() gives; found {type(pair).__name__}"
            )
        _add(names, *pair)
    return names


def of_caller(frame: FrameType | None) -> dict[int, list[str]]:
    """The same by the names that the program at `frame` has for its tensors. A parameter's is the longest: that in the
    whole model, and not a loop's variable."""
    names: dict[int, list[str]] = {}
    for name, tensor in sorted(named_in(frame), key=lambda pair: -pair[0].count(".")):
        _add(names, name, tensor, again=type(tensor.node) is not Leaf and "[" not in name)
    return names


def modules_of_caller(frame: FrameType | None) -> list[tuple[str, Any]]:
    """The modules among a frame's variables, with what their parameters' names begin with; the largest first."""
    found = [
        (f"{name}.", value)
        for name, value in _variables(frame)
        if hasattr(type(value), "named_parameters") and hasattr(type(value), "named_modules")
    ]
    return sorted(found, key=lambda pair: -sum([1 for _ in pair[1].named_modules()]))


def _variables(frame: FrameType | None) -> list[tuple[str, Any]]:
    if frame is None:
        return []
    scopes = [frame.f_locals] if frame.f_locals is frame.f_globals else [frame.f_locals, frame.f_globals]
    return [(name, value) for scope in scopes for name, value in list(scope.items()) if name[:1] != "_"]


def _add(names: dict[int, list[str]], name: str, tensor: Any, again: bool = True) -> None:
    node = tensor.node
    if type(node) is Output:
        node = node.edges[0]
    if node is not None:
        known = names.setdefault(id(node), [])
        if (again or not known) and name not in known:
            known.append(name)


class Calls:
    """Which module computed what: the numbers of the clock between which each was called."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int, str]] = []
        """In the order in which the calls ended: inner ones come first."""
        self.ends: list[int] = []

    @contextmanager
    def watching(self, modules: Iterable[tuple[str, Any]]) -> Iterator[None]:
        """Notes what modules, given with what their names begin with, and those in them do meanwhile."""
        handles, open_calls, known = [], list[tuple[int, str]](), set[int]()

        def before(name: str) -> Callable[..., None]:
            return lambda module, args: open_calls.append((next_sequence_number(), name))

        def after(module: Any, args: Any, result: Any) -> None:
            start, name = open_calls.pop()
            self.spans.append((start, next_sequence_number(), name))

        for prefix, module in modules:
            for name, inner in module.named_modules():
                if prefix + name and id(inner) not in known:
                    known.add(id(inner))
                    handles.append(inner.register_forward_pre_hook(before((prefix + name).rstrip("."))))
                    handles.append(inner.register_forward_hook(after, always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def module_of(self, sequence_number: int) -> str:
        """The innermost module that was being called."""
        if len(self.ends) != len(self.spans):
            self.ends = [end for _, end, _ in self.spans]
        for start, end, name in islice(self.spans, bisect_left(self.ends, sequence_number), None):
            if start < sequence_number < end:
                return name
        return ""


def modules_of_leaves(nodes: list[Any]) -> None:
    """Gives parameters the module that their names say."""
    for node in nodes:
        if node.kind == "leaf" and node.names and "[" not in node.names[0]:
            node.module = node.names[0].rpartition(".")[0]


def guess_modules(nodes: list[Any]) -> None:
    """Gives ops the module of the parameters that they use, and those without any what is common to that of the ops
    before and behind them."""
    before = [""] * (len(nodes) + 1)
    behind = [""] * (len(nodes) + 1)
    for node in nodes:
        if node.kind == "leaf":
            continue
        operands = [nodes[number - 1] for number in node.edges]
        own = next((n.module for n in operands if n.kind == "leaf" and n.module), "")
        before[node.number] = own or max([before[n.number] for n in operands], key=lambda m: m.count("."), default="")
        node.module = own
    for node in reversed(nodes):
        if node.kind != "leaf":
            own = node.module or behind[node.number]
            for number in node.edges:
                # The oldest op behind it, which comes last here, counts.
                behind[number] = own
    for node in nodes:
        if node.kind != "leaf" and not node.module:
            node.module = _common(before[node.number], behind[node.number])


def _common(first: str, second: str) -> str:
    parts = []
    for a, b in zip(first.split("."), second.split("."), strict=False):
        if a != b:
            break
        parts.append(a)
    return ".".join(parts)
