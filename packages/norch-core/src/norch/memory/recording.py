"""Who held what over time: each block of memory from when it was made to when it was given back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..autograd import passes
from ..autograd.graph import Leaf, Node
from . import holders
from .holders import GRADIENTS, OWNERS, SAVED, Held, describe, find, saved_by
from .observing import Allocation, observing
from .texts import size_text

if TYPE_CHECKING:
    from ..tensor import Tensor


class Block:
    """A block of memory of `nbytes` on `device`, and from when to when it was there, in seconds since the recording
    began: `made` and `freed`, which is None for one that still is.

    op: what made it, called at `line`, such as "train.py:12"; each is "" where that is not known. shape, dtype and name
    are those of a tensor on it.
    """

    __slots__ = ("device", "dtype", "freed", "line", "made", "name", "nbytes", "op", "rank", "shape")

    def __init__(self, nbytes: int, device: str, made: float, op: str = "", line: str = "") -> None:
        self.nbytes, self.device, self.made, self.op, self.line = nbytes, device, made, op, line
        self.freed: float | None = None
        self.name = self.dtype = ""
        self.shape: tuple[int, ...] | None = None
        self.rank = len(OWNERS) - 1

    @property
    def owner(self) -> str:
        """The first of OWNERS that ever held it."""
        return OWNERS[self.rank]

    @property
    def title(self) -> str:
        """What it holds, and where that was made."""
        what = "" if self.shape is None else f"{self.dtype}{list(self.shape)}"
        made = ", ".join(filter(None, (self.op, self.line)))
        return "  ".join(filter(None, (what, self.name, made))) or "unknown"

    def to_dict(self) -> dict[str, Any]:
        """All of it by name, for JSON."""
        names = ("owner", "nbytes", "device", "shape", "dtype", "name", "op", "line", "made", "freed")
        return {name: getattr(self, name) for name in names}


class Recording:
    """What `record` has noted: `blocks`, in the order in which they were made, and `seconds`, how long it took.

    Those that there were before have `made` 0. Of a recording that goes on, what it has noted so far.
    """

    def __init__(self) -> None:
        self.start = perf_counter()
        self.blocks: list[Block] = []
        self.ended: float | None = None
        self._live: dict[int, tuple[Block, Any]] = {}
        self._names: dict[int, str] = {}
        self._began = False

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far."""
        return perf_counter() - self.start if self.ended is None else self.ended

    def _add(self, block: Block, buffer: Any) -> None:
        self.blocks.append(block)
        key, start, live = id(buffer), self.start, self._live

        def gone(_: Any) -> None:
            block.freed = perf_counter() - start
            if key in live and live[key][0] is block:
                del live[key]

        try:
            live[key] = block, ref(buffer, gone)
        except TypeError:  # a backend whose buffers cannot be referred to: when it is given back is not seen
            live.pop(key, None)

    def _told(self, made: Allocation) -> None:
        line = "" if made.line is None else str(made.line)
        block = Block(made.nbytes, made.device, perf_counter() - self.start, made.op, line)
        if made.spec is not None:
            block.shape, block.dtype = tuple(made.spec.shape), made.spec.dtype.name
        self._add(block, made.buffer)

    def _look(self) -> None:
        """Finds the owners of what there is."""
        found, names = find()
        self._names.update(names)
        fresh: list[tuple[Held, Block]] = []
        for held in found.values():
            entry = self._live.get(id(held.memory))
            if entry is None and self._began:
                continue  # made by what is not observed
            block = Block(held.nbytes, str(held.spec.device), 0.0) if entry is None else entry[0]
            if entry is None:
                self._add(block, held.memory)
            fresh.append((held, block))
        for (held, block), holding in zip(fresh, describe([h for h, _ in fresh], names), strict=True):
            block.rank = min(block.rank, held.rank)
            block.shape, block.dtype, block.name = holding.shape, holding.dtype, holding.name or block.name
            block.op, block.line = block.op or holding.op, block.line or holding.line

    def _claim(self, buffer: Any, owner: str, name: str = "") -> None:
        entry, rank = self._live.get(id(buffer)), OWNERS.index(owner)
        if entry is not None and rank < entry[0].rank:
            entry[0].rank, entry[0].name = rank, name

    def _watch_backward(self, starts: list[tuple[Node, Tensor]]) -> Callable[[], None]:
        """Notes what the graph keeps before it is freed; the gradients once they are there."""
        leaves: list[Leaf] = []
        seen = {node for node, _ in starts}
        stack = list(seen)
        while stack:
            node = stack.pop()
            if type(node) is Leaf:
                leaves.append(node)
            for buffer, _, _ in saved_by(node):
                self._claim(buffer, SAVED)
            for edge in node.edges:
                if edge is not None and edge not in seen:
                    seen.add(edge)
                    stack.append(edge)

        def after() -> None:
            for leaf in leaves:
                owner = leaf.tensor()
                if owner is not None and owner._grad is not None:
                    of = self._names.get(id(owner.buffer))
                    self._claim(owner._grad.buffer, GRADIENTS, f"gradient of {of}" if of else "gradient")

        return after

    def made(self, buffer: Any) -> tuple[str, str]:
        """The op and the line that made a buffer that is there now, "" where they are not known."""
        entry = self._live.get(id(buffer))
        return ("", "") if entry is None else (entry[0].op, entry[0].line)

    # --- What it tells ----------------------------------------------------------------------------------------------

    def devices(self) -> list[str]:
        """Those with blocks, the one that held the most first."""
        most = {name: self.peak(name)[0] for name in {block.device for block in self.blocks}}
        return sorted(most, key=lambda name: -most[name])

    def of(self, device: str | None) -> list[Block]:
        """The blocks of a device, by default of the first of `devices()`."""
        if device is None:
            device = next(iter(self.devices()), None)
        return [block for block in self.blocks if block.device == device]

    def timeline(self, device: str | None = None) -> list[tuple[float, tuple[int, ...]]]:
        """At each time when anything changed, the bytes of each of OWNERS."""
        events = []
        for block in self.of(device):
            events.append((block.made, block.nbytes, block.rank))
            if block.freed is not None:
                events.append((block.freed, -block.nbytes, block.rank))
        events.sort(key=lambda e: e[0])
        held, found = [0] * len(OWNERS), []
        for at, (time, nbytes, rank) in enumerate(events):
            held[rank] += nbytes
            if at + 1 == len(events) or events[at + 1][0] != time:
                found.append((time, tuple(held)))
        return found

    def peak(self, device: str | None = None) -> tuple[int, float]:
        """The most bytes at a time, and when that was."""
        time, held = max(self.timeline(device), key=lambda point: sum(point[1]), default=(0.0, ()))
        return sum(held), time

    def at(self, time: float, device: str | None = None) -> list[Block]:
        """The blocks that there were at a time, the largest first."""
        found = [b for b in self.of(device) if b.made <= time and (b.freed is None or b.freed > time)]
        return sorted(found, key=lambda b: (-b.nbytes, b.rank, b.made, b.name))

    def __str__(self) -> str:
        from .drawing import recording_text

        return recording_text(self)

    def __repr__(self) -> str:
        return f"<Recording of {len(self.blocks):,} blocks, {size_text(self.peak()[0])} at most>"

    def svg(self, device: str | None = None, by: str = "time") -> str:
        """The picture as text, for a file of its own. by: "events" gives each block made or given back the same width,
        so that a short step is seen beside a long wait. Raises ValueError for another word."""
        from .drawing import recording_drawing

        return recording_drawing(self, device, by).svg(standalone=True)

    def html(self, device: str | None = None) -> str:
        """A page of its own: the picture, and what there was at the time that the mouse points at."""
        from .page import recording_page

        return recording_page(self, device)

    def to_dict(self) -> dict[str, Any]:
        """`seconds` and `blocks`, for JSON."""
        return {"seconds": self.seconds, "blocks": [block.to_dict() for block in self.blocks]}

    def save(self, path: Any, by: str = "time") -> None:
        """Writes a file at `path`: a .svg, .html, .json or .txt one, by the name's end. Raises ValueError for another
        one. by: see `svg`."""
        save(self, path, by=by)

    def _repr_html_(self) -> str:
        from .drawing import recording_drawing

        return recording_drawing(self, None).svg()


def save(shown: Any, path: Any, **look: str) -> None:
    """Writes what has `svg`, `html` and `to_dict` to a file of the kind that its name says."""
    path = Path(path)
    writers: dict[str, Callable[[], str]] = {
        ".svg": lambda: shown.svg(**look), ".html": lambda: shown.html(), ".txt": lambda: f"{shown}\n",
        ".json": lambda: json.dumps(shown.to_dict()),
    }  # fmt: skip
    write = writers.get(path.suffix)
    if write is None:
        raise ValueError(f"save(): expected a name that ends with .svg, .html, .json or .txt, got {str(path)!r}")
    path.write_text(write(), encoding="utf-8")


active: Recording | None = None


@contextmanager
def record() -> Iterator[Recording]:
    """Notes, within it, each block of memory that is made and given back: when, for which op, at which line.

        with norch.memory.record() as recording:
            step()
        print(recording)
        recording.save("memory.html")

    An allocation takes a few microseconds more meanwhile, and plans of ops are made again before and after. Not seen:
    what kernels take for themselves while they run, and what captured steps keep for theirs.
    Raises RuntimeError for a second one within the first.
    """
    global active
    recording = Recording()
    recording._look()
    recording._began = True
    with observing(recording._told):
        active, passes.watcher, holders.seen = recording, recording._watch_backward, recording.made
        try:
            yield recording
        finally:
            active = passes.watcher = holders.seen = None
            recording._look()
            recording.ended = perf_counter() - recording.start
            recording._live.clear()
