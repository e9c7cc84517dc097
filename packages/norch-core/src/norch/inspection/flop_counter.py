"""Counting floating point operations while a program runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from ..observing import observed_by
from .flops import FlopCounter


class FlopCounterMode:
    """Counts in a `with` the operations of this thread's products: two for each multiplication with its addition.

        with FlopCounterMode(display=False) as counter:
            model(x).sum().backward()
        counter.get_total_flops()

    Products are those of matrices, convolutions, attention and recurrent layers, backward passes too; nothing else is
    counted. display: whether a table is printed at the end. `mods` and `depth` are taken for PyTorch's sake.

    `flop_counts` has the operations by op, of all under "Global", and of each module of norch-nn that was at work,
    forward and backward, under its path from the outermost one: "Net", "Net.layers.0".
    """

    def __init__(self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: Any = None) -> None:
        if custom_mapping:
            raise NotImplementedError("FlopCounterMode(): norch takes no custom_mapping; ops that are products count")
        self.display = display
        self.flop_counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._tracker: Any = None
        self._open = ExitStack()

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        try:
            self._tracker = import_module("norch.utils.module_tracker").ModuleTracker()
        except ImportError:  # without norch-nn there are no modules
            self._tracker = None
        else:
            self._open.enter_context(self._tracker)
        self._open.enter_context(observed_by(FlopCounter(self._count)))
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()
        if self.display:
            print(self.get_table())

    def _count(self, flops: int, op: str) -> None:
        for name in ("Global",) if self._tracker is None else self._tracker.parents:
            self.flop_counts[name][op] += flops

    def get_total_flops(self) -> int:
        """Of all ops."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        """What `flop_counts` has: by module, and "Global", the operations of each op."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """The ops with their operations, the most first, and the sum."""
        rows = [*self.flop_counts["Global"].most_common(), ("all", self.get_total_flops())]
        wide = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:{wide}}  {flops:>20,}" for name, flops in rows)
