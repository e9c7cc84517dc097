"""Counting floating point operations while a program runs."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import Any

from ..observing import observed_by
from .flops import FlopCounter


class FlopCounterMode:
    """Counts in a `with` the operations of this thread's products: two for each multiplication with its addition.

        with FlopCounterMode(display=False) as counter:
            model(x).sum().backward()
        counter.get_total_flops()

    Products are those of matrices, convolutions, attention and recurrent layers, backward passes too; nothing else is
    counted. display: whether a table is printed at the end. `norch.summary` counts by layer. `mods` and `depth` are
    taken for PyTorch's sake.
    """

    def __init__(self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: Any = None) -> None:
        if custom_mapping:
            raise NotImplementedError("FlopCounterMode(): norch takes no custom_mapping; ops that are products count")
        self.display = display
        self._flops: Counter[str] = Counter()
        self._open = ExitStack()

    def __enter__(self) -> FlopCounterMode:
        self._flops.clear()
        self._open.enter_context(observed_by(FlopCounter(self._count)))
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()
        if self.display:
            print(self.get_table())

    def _count(self, flops: int, op: str) -> None:
        self._flops[op] += flops

    def get_total_flops(self) -> int:
        """Of all ops."""
        return sum(self._flops.values())

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        """By the names of ops, under "Global"."""
        return {"Global": dict(self._flops)}

    def get_table(self, depth: int | None = None) -> str:
        """The ops with their operations, the most first, and the sum."""
        rows = [*self._flops.most_common(), ("all", self.get_total_flops())]
        wide = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:{wide}}  {flops:>20,}" for name, flops in rows)
