"""Whose the memory of the tensors is that there are now.

Nothing is noted beforehand: tensors, graphs and optimisers are found through the garbage collector's lists, and what is
given back holds none of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..autograd.graph import Leaf, Node
from ..living import kinds_of, living
from ..spec import Spec
from ..switches import Replayed
from ..tensor_base import TensorBase

if TYPE_CHECKING:
    from ..device import Device

OWNERS = PARAMETERS, GRADIENTS, OPTIMISER, SAVED, OTHER = (
    "parameters", "gradients", "optimiser state", "saved for backward", "other",
)  # fmt: skip
"""Of several that hold the same memory the first counts. Other: inputs, results, buffers of modules, all the rest."""


seen: Callable[[Any], tuple[str, str]] | None = None
"""While norch.memory records: the op and the line that made a buffer, "" where they are not known."""


class Holding(NamedTuple):
    """A block of memory: its `owner`, one of OWNERS, its `nbytes`, `shape`, `dtype` and `device` of the tensor there.

    owner: one of OWNERS. nbytes, shape: of the tensor that it is. name: such as "layers.0.weight", or "exp_avg of
    layers.0.weight"; "" where there is none. op: what made it, where the graph tells. line: such as "train.py:12",
    where lines were recorded.
    """

    owner: str
    nbytes: int
    shape: tuple[int, ...]
    dtype: str
    device: str
    name: str = ""
    op: str = ""
    line: str = ""

    def __str__(self) -> str:
        what = f"{self.dtype}{list(self.shape)}"
        made = f"{self.op}, {self.line}" if self.op and self.line else self.op or self.line
        return "  ".join(filter(None, (what, self.name, made)))


class Held:
    """The same while it is being found out: `spec` and `node` of a tensor on it, `of` the parameter that a gradient or
    a state is of (its buffer's id), `key` what that state is called."""

    __slots__ = ("key", "memory", "nbytes", "node", "of", "rank", "spec")

    def __init__(self, buffer: Any, spec: Spec, node: Any, rank: int = len(OWNERS) - 1) -> None:
        self.memory, self.spec, self.node, self.rank = buffer, spec, node, rank
        self.nbytes: int = buffer.nbytes
        self.of: int | None = None
        self.key = ""

    def claim(self, rank: int, of: Any = None, key: str = "") -> None:
        if rank < self.rank:
            self.rank, self.key = rank, key
            self.of = None if of is None else id(of.buffer)


def find(device: Device | None = None) -> tuple[dict[int, Held], dict[int, str]]:
    """What there is on a device (None: on every device that holds bytes), and what modules call it, both by the id of
    its buffer."""
    found: dict[int, Held] = {}
    module = getattr(sys.modules.get("norch.nn"), "Module", None)
    things = living(kinds_of(TensorBase, Node, Replayed, *((module,) if module else ())))
    tensors = [t for t in things if isinstance(t, TensorBase) and hasattr(t, "_grad")]  # else it is being made
    for tensor in tensors:
        spec = tensor.spec
        if type(spec) is not Spec or tensor.buffer is None or not _counts(spec, device):
            continue  # captured steps have tensors whose memory is that of the program
        held = found.get(id(tensor.buffer))
        if held is None:
            held = found[id(tensor.buffer)] = Held(tensor.buffer, spec, tensor.node)
        elif spec.nbytes > held.spec.nbytes or (tensor.base is None and spec.nbytes == held.spec.nbytes):
            held.spec, held.node = spec, tensor.node or held.node
        if type(tensor.node) is Leaf or _is_parameter(type(tensor)):
            held.claim(0)
    for tensor in tensors:
        if tensor._grad is not None:
            _claim(found, tensor._grad, 1, tensor)
    for thing in things:
        if isinstance(thing, Replayed):
            for param, key, value in _state_of(thing):
                _claim(found, value, 2, param, key)
        elif isinstance(thing, Node):
            for buffer, saved, node in saved_by(thing):
                held = found.get(id(buffer))
                if held is not None:
                    held.claim(3)
                elif saved is not None and _counts(saved, device):
                    found[id(buffer)] = Held(buffer, saved, node, 3)
    return found, {} if module is None else _names([thing for thing in things if isinstance(thing, module)])


def describe(found: Iterable[Held], names: Mapping[int, str]) -> list[Holding]:
    """Plain data of what `find` found, in its order."""
    holdings = []
    for held in found:
        spec, name = held.spec, names.get(id(held.memory) if held.of is None else held.of, "")
        if held.of is not None:
            of = f" of {name}" if name else ""
            name = f"gradient{of}" if held.rank == 1 else f"{held.key or 'state'}{of}"
        op, line = made_by(held.node)
        if seen is not None:
            known = seen(held.memory)
            op, line = known[0] or op, known[1] or line
        shape, dtype = tuple(spec.shape), spec.dtype.name
        holdings.append(Holding(OWNERS[held.rank], held.nbytes, shape, dtype, str(spec.device), name, op, line))
    return holdings


def largest_first(holdings: list[Holding]) -> list[Holding]:
    """Those of one size in the order of their owners and names."""
    return sorted(holdings, key=lambda h: (-h.nbytes, OWNERS.index(h.owner), h.name, h.shape))


def made_by(node: Any) -> tuple[str, str]:
    """The op that a node stands for, and its line; "" where the node tells neither."""
    if not isinstance(node, Node) or not getattr(node, "edges", ()):  # a leaf, or the mark of a constant's view
        return "", ""
    try:
        op = node.title()
    except AttributeError:
        return "", ""
    line = getattr(node, "line", None)
    return op, "" if line is None else str(line)


def totals(found: Iterable[Held]) -> dict[str, tuple[int, int]]:
    """By owner, in the order of OWNERS: bytes and blocks."""
    nbytes, counts = [0] * len(OWNERS), [0] * len(OWNERS)
    for held in found:
        nbytes[held.rank] += held.nbytes
        counts[held.rank] += 1
    return dict(zip(OWNERS, zip(nbytes, counts, strict=True), strict=True))


def saved_by(node: Node) -> Iterator[tuple[Any, Spec | None, Node]]:
    """The buffers that a node keeps for its backward pass, with a spec and the node that made it, where known."""
    context = getattr(node, "context", None)  # of a user's own Function
    for value in (*(getattr(node, "saved_inputs", None) or ()), *getattr(context, "_saved", ())):
        if isinstance(value, TensorBase):
            yield value.buffer, value.spec, value.node
    outputs = getattr(node, "saved_outputs", None)
    if outputs is not None:
        for kept, spec in zip(outputs, node.plan.outputs, strict=False):
            if kept is not None and kept[0] is not None:  # neither that of a view, nor one that was freed
                yield kept[0], spec, node


def _counts(spec: Spec, device: Device | None) -> bool:
    return not spec.device.is_meta if device is None else spec.device is device


def _claim(found: dict[int, Held], value: Any, rank: int, of: Any, key: str = "") -> None:
    held = found.get(id(value.buffer))
    if held is not None:
        held.claim(rank, of, key)


def _is_parameter(kind: type) -> bool:
    """norch.nn.Parameter, of which nothing is known here but its name: frozen ones are parameters too."""
    return any(base.__name__ == "Parameter" for base in kind.__mro__)


def _state_of(optimiser: Any) -> Iterator[tuple[Any, str, Any]]:
    """The tensors in an optimiser's `state`: the parameter, what it is called there, the tensor."""
    state = vars(optimiser).get("state")
    if not isinstance(state, Mapping):
        return
    for param, values in state.items():
        stack: list[tuple[str, Any]] = [("", values)]
        while stack:
            key, value = stack.pop()
            if isinstance(value, TensorBase):
                yield param if isinstance(param, TensorBase) else None, key, value
            elif isinstance(value, Mapping):
                stack += [(str(k), v) for k, v in value.items()]
            elif isinstance(value, list | tuple):
                stack += [(key, v) for v in value]


def _names(modules: list[Any]) -> dict[int, str]:
    """By the id of its buffer, what a parameter or a buffer of a module is called in the outermost one."""
    inside: set[int] = set()
    for module in modules:
        inside.update(map(id, module.children()))
    names: dict[int, str] = {}
    for module in modules:
        if id(module) not in inside:
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                names.setdefault(id(tensor.buffer), name)
    return names
