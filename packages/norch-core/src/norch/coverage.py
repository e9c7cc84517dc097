"""What a script's ops ran as: natively, decomposed into others, or on the CPU in the device's place.

    norch coverage script.py [its arguments]

or, for a part of a program,

    with norch.coverage.watch() as seen:
        model(x)
    print(seen.text())
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .dispatch import kernels
from .dispatch.plan import forget_plans
from .observing import DECOMPOSED, Observed, Observer, observed_by
from .scripts import run_script
from .spec import span

if TYPE_CHECKING:
    import argparse

    from .backend.contract import Kernel, Operand
    from .device import Device

NATIVE, FALLBACK = "native", kernels.ON_CPU


@dataclass
class Count:
    """What an op has cost in one way of running it: `bytes` read and written by its kernel (for "on the CPU": moved
    between device and host), `seconds` until the device was done. A decomposed op's time is that of its parts."""

    op: str
    device: str
    how: str
    calls: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass
class Coverage:
    """The counts, by (op, device type, how)."""

    counts: dict[tuple[str, str, str], Count] = field(default_factory=dict)

    def count(self, op: str, device: str, how: str) -> Count:
        return self.counts.setdefault((op, device, how), Count(op, device, how))

    def rows(self) -> list[Count]:
        """Those with a call: by device, what took longest first."""
        called = [c for c in self.counts.values() if c.calls]
        return sorted(called, key=lambda c: (c.device, -c.seconds, c.op))

    def json(self) -> list[dict[str, Any]]:
        return [asdict(c) for c in self.rows()]

    def text(self) -> str:
        """A table, and for each device how many calls ran in which way."""
        rows = self.rows()
        head = ("op", "device", "ran", "calls", "MB", "ms")
        cells = [
            (c.op, c.device, c.how, f"{c.calls:,}", f"{c.bytes / 1e6:,.2f}", f"{c.seconds * 1e3:,.2f}") for c in rows
        ]
        widths = [max(map(len, column)) + 2 for column in zip(head, *cells)]
        lines = []
        for line in (head, *cells):
            left = "".join(f"{c:<{w}}" for c, w in zip(line[:3], widths))
            lines.append(left + "".join(f"{c:>{w}}" for c, w in zip(line[3:], widths[3:])))
        for device in dict.fromkeys(c.device for c in rows):
            parts = []
            for how in (NATIVE, DECOMPOSED, FALLBACK):
                own = [c for c in rows if c.device == device and c.how == how]
                parts.append(f"{sum(c.calls for c in own):,} calls of {len(own)} ops {how}")
            lines.append(f"{device}: {', '.join(parts)}")
        return "\n".join(lines)


@contextmanager
def watch() -> Iterator[Coverage]:
    """Counts every op that runs meanwhile. Each waits until its device is done, so that its time is its own."""
    seen = Coverage()

    def kernel_watched(
        op: str, device: Device, operands: tuple[Operand, ...], attrs: Any, kernel: Kernel, whose: str
    ) -> Kernel:
        fell_back = whose == FALLBACK
        count = seen.count(op, device.type, FALLBACK if fell_back else NATIVE)
        times = 2 if fell_back else 1  # there and back
        nbytes = sum(span(o.shape, o.strides) * o.dtype.itemsize for o in operands if not o.is_scalar) * times
        synchronize, index = device.backend.synchronize, device.index or 0

        def watched(*args: Any) -> None:
            start = time.perf_counter()
            kernel(*args)
            synchronize(index)
            count.seconds += time.perf_counter() - start
            count.calls += 1
            count.bytes += nbytes

        return watched

    kernels.watchers = (*kernels.watchers, kernel_watched)
    forget_plans()  # plans that were made before hold kernels that nobody watches
    try:
        with observed_by(_Decompositions(seen)):
            yield seen
    finally:
        kernels.watchers = tuple([watcher for watcher in kernels.watchers if watcher is not kernel_watched])
        forget_plans()


class _Decompositions(Observer):
    def __init__(self, seen: Coverage) -> None:
        self.seen = seen

    def entered(self, what: Observed, args: tuple[Any, ...], kwargs: Any) -> Any:
        if what.kind != DECOMPOSED:
            return None
        plan = args[0]
        return self.seen.count(plan.op.name, plan.out.device.type, DECOMPOSED), time.perf_counter()

    def left(self, token: Any, result: Any, error: BaseException | None) -> None:
        if token is not None:
            count, start = token
            count.seconds += time.perf_counter() - start
            count.calls += 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts there too")
    parser.add_argument("script", help="the Python file to run")
    parser.add_argument("arguments", nargs="...", help="its arguments")


def main(options: argparse.Namespace) -> int:
    """Runs the script as Python would, prints the table to stderr, and returns the script's exit status."""
    with watch() as seen:
        try:
            return run_script(options.script, options.arguments)
        finally:
            print(seen.text(), file=sys.stderr)
            if options.json:
                options.json.write_text(json.dumps(seen.json(), indent=2) + "\n")
