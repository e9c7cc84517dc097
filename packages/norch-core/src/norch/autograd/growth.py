"""Graphs that outlive the steps of an optimiser, as those of `total += loss` do: noticed, and told once.

Every graph of a loss ends at the leaves of its parameters. So the count of references to a leaf, which is free, tells
how many uses of the parameter are part of living graphs: in a sound program the same number, or a changing one, at each
step. Only where it has kept growing are living nodes looked at.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from math import inf
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from ..living import kinds_of, living
from .graph import Leaf, Node, next_sequence_number
from .lines import lend, take_back

if TYPE_CHECKING:
    from ..source_lines import Line
    from ..tensor import Tensor

PATIENCE = 10
"""After how many steps, at each of which more of the graph was alive than ever, nodes are looked at."""

_told: set[Line | None] = set()


class Growth:
    """What is known of a leaf. times: the steps at which there were more references to it than before, since there last
    were fewer. patience: how many such steps to wait for."""

    __slots__ = ("patience", "times")

    def __init__(self) -> None:
        self.times: list[int] = []
        self.patience: float = PATIENCE

    def grown(self, leaf: Leaf) -> None:
        if self.patience == inf:  # it has been told
            return
        self.times.append(next_sequence_number())
        if len(self.times) == self.patience // 2:
            lend()  # so that the warning can name a line
        if len(self.times) < self.patience:
            return
        self.patience = inf if _look(leaf, self.times) else 2 * self.patience
        self.shrunk()

    def shrunk(self) -> None:
        self.times.clear()
        take_back()


def note_step(params: Sequence[Tensor]) -> None:
    """Of an optimiser that is about to change `params`, of any shapes: warns, once, where the graphs of more and more
    steps before are still alive."""
    if not params:
        return
    leaf: Any = params[0].node
    if type(leaf) is not Leaf:  # frozen, as first layers often are
        leaf = params[-1].node
        if type(leaf) is not Leaf:
            return
    uses = getrefcount(leaf)
    if uses != leaf.uses:
        if leaf.growth is None:
            leaf.growth = Growth()
        elif uses > leaf.uses:
            leaf.growth.grown(leaf)
        else:
            leaf.growth.shrunk()
        leaf.uses = uses


def _look(leaf: Leaf, times: list[int]) -> bool:
    """Whether nodes from before most of these times are alive and depend on `leaf`. Warns of them."""
    nodes = [n for n in living(kinds_of(Node) - {Leaf}) if hasattr(n, "edges")]
    ages = {bisect(times, n.sequence_number) for n in nodes if leaf in n.edges}
    if len(ages) < 0.8 * len(times):
        return False
    line, text = _blamed([n for n in nodes if n.sequence_number > times[0]], times)
    if line not in _told:
        _told.add(line)
        _warn(len(times), text, line)
    return True


def _blamed(nodes: list[Any], times: list[int]) -> tuple[Line | None, str]:
    """The line that keeps graphs alive, and what is said of it."""
    joining = []
    inner = set()
    for node in nodes:
        age = bisect(times, node.sequence_number)
        for edge in node.edges:
            inner.add(edge)
            if edge is not None and type(edge) is not Leaf and bisect(times, edge.sequence_number) < age:
                joining.append(node)
    if len(joining) >= len(times) // 2:
        line, name = _usual(joining)
        return line, f"results of {name} are summed up with their graphs. Sum up"
    line, name = _usual([n for n in nodes if n not in inner and bisect(times, n.sequence_number) < len(times)])
    return line, f"results of {name} are kept, as in a list, with their graphs. Keep"


def _usual(nodes: list[Any]) -> tuple[Line | None, str]:
    """The line and the name that most of the nodes have."""
    found = Counter((n.line, n.title()) for n in nodes)
    known = Counter({key: n for key, n in found.items() if key[0] is not None})
    (line, name), _ = (known or found).most_common(1)[0]
    return line, name


def _warn(steps: int, what: str, line: Line | None) -> None:
    import warnings

    where = "" if line is None else f" ({line})"
    text = (
        f"the graphs of {steps} steps of the optimiser are still alive, and each step adds one, which takes memory and "
        f"time{where}: {what} `.item()`, a number, or `.detach()`, a tensor without a graph"
    )
    if line is None:
        warnings.warn(text, stacklevel=2)
    else:
        warnings.warn_explicit(text, UserWarning, line.filename, line.lineno)
