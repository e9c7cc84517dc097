"""Memory as text and pictures: areas by owner over time, and when each of the largest blocks was there."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise
from math import floor, log, log10
from typing import TYPE_CHECKING

from ..inspection.svg import COLORS, Drawing, escape, text_width
from .holders import OWNERS
from .texts import LARGEST, owner_lines, size_text

if TYPE_CHECKING:
    from .recording import Block, Recording
    from .snapshots import Snapshot

COLOR_OF = dict(zip(OWNERS, ("blue", "orange", "purple", "green", "grey"), strict=True))

WIDTH, HEIGHT = 760, 260
"""Of the chart, in pixels."""

ROW = 20
"""Of a block below it."""


def recording_text(recording: Recording) -> str:
    """The peak by owner, the largest blocks of it, and the course of time in one line."""
    lines = []
    for device in recording.devices():
        nbytes, time = recording.peak(device)
        there = recording.at(time, device)
        owners = dict.fromkeys(OWNERS, (0, 0))
        for block in there:
            held, count = owners[block.owner]
            owners[block.owner] = held + block.nbytes, count + 1
        lines.append(
            f"{device}: at most {size_text(nbytes)}, after {time_text(time)} of {time_text(recording.seconds)}"
        )
        lines += ["  " + _course([sum(held) for held in sampled(recording, device, 60)]), *owner_lines(owners)]
        lines.append("The largest then:")
        for block in there[:LARGEST]:
            lines.append(f"  {size_text(block.nbytes):>10}  {block.owner:<18}  {block.title}")
    return "\n".join(lines) or "nothing was allocated"


def _course(values: list[int]) -> str:
    most = max(values, default=0) or 1
    return "".join(["▁▂▃▄▅▆▇█"[min(7 * value // most, 7)] for value in values])


def time_text(seconds: float) -> str:
    """Seconds as "1.50 s", "20.0 ms" or "300 us"."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


class Axis:
    """Where a time lies, from 0 to 1: by the clock, or by how many blocks had been made and given back by then."""

    def __init__(self, recording: Recording, device: str | None, by: str) -> None:
        if by not in ("time", "events"):
            raise ValueError(f"by must be 'time' or 'events', got {by!r}")
        self.by, self.length = by, recording.seconds or 1.0
        self.times = [time for time, _ in recording.timeline(device)]
        if by == "events":
            self.length = len(self.times)

    def at(self, time: float) -> float:
        return time / self.length if self.by == "time" else bisect_left(self.times, time) / max(self.length, 1)

    def title(self, place: float) -> str:
        """Of a place, given in seconds or events."""
        return time_text(place) if self.by == "time" else f"{place:,.0f}"


def sampled(recording: Recording, device: str | None, count: int, axis: Axis | None = None) -> list[tuple[int, ...]]:
    """What was held at `count` places at equal distances: of what there was in between, when there was the most."""
    timeline, axis = recording.timeline(device), axis or Axis(recording, device, "time")
    found: list[tuple[int, ...]] = []
    at, held = 0, (0,) * len(OWNERS)
    for i in range(count):
        most = held
        while at < len(timeline) and (axis.at(timeline[at][0]) * count < i + 1 or i + 1 == count):
            held = timeline[at][1]
            at += 1
            if sum(held) > sum(most):
                most = held
        found.append(most)
    return found


def recording_drawing(recording: Recording, device: str | None = None, by: str = "time") -> Drawing:
    """A stacked area for each owner, the lowest the first of OWNERS; below it the largest blocks at the peak."""
    devices = recording.devices()
    device = device or (devices[0] if devices else "")
    most, when = recording.peak(device)
    axis = Axis(recording, device, by)
    drawing = Drawing(f"Memory on {device} by owner over time, at most {size_text(most)}")
    after = f", after {time_text(when)}" if by == "time" else ""
    drawing.text(0, -34, f"{device}: at most {size_text(most)}{after}", bold=True)
    _legend(drawing, [name for rank, name in enumerate(OWNERS) if any(b.rank == rank for b in recording.of(device))])
    scale = HEIGHT / (most or 1)
    _axes(drawing, most, axis, scale)
    points = sampled(recording, device, WIDTH // 2, axis)
    below = [0.0] * len(points)
    for rank, owner in enumerate(OWNERS):
        above = [low + held[rank] * scale for low, held in zip(below, points, strict=True)]
        if any(held[rank] for held in points):
            _area(drawing, below, above, owner)
        below = above
    x = axis.at(when) * WIDTH
    drawing.line([(x, 0), (x, HEIGHT)], "red", dashed=True, tip=f"the peak, {size_text(most)}")
    y = HEIGHT + 44.0
    drawing.text(0, y, "The largest then, and when they were there", muted=True)
    for block in recording.at(when, device)[:LARGEST]:
        y += ROW
        _block(drawing, block, y, axis)
    return drawing


def _legend(drawing: Drawing, owners: list[str]) -> None:
    x = 0.0
    for owner in owners:
        drawing.rect(x, -22, 12, 12, COLOR_OF[owner])
        drawing.text(x + 17, -12, owner, size=12)
        x += 34 + text_width(owner, 12)


def _axes(drawing: Drawing, most: int, axis: Axis, scale: float) -> None:
    unit = 1024 ** max(int(log(most or 1, 1024)), 0)
    for nbytes in _ticks(most / unit):
        y = HEIGHT - nbytes * unit * scale
        drawing.line([(0, y), (WIDTH, y)], dashed=bool(nbytes))
        drawing.text(-8, y + 4, size_text(nbytes * unit), anchor="end", size=11, muted=True)
    for place in _ticks(axis.length):
        x = place / (axis.length or 1) * WIDTH
        drawing.text(x, HEIGHT + 16, axis.title(place), anchor="middle", size=11, muted=True)


def _ticks(end: float) -> list[float]:
    """From 0 to `end` in three to seven steps of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** floor(log10(max(end, 1e-9) / 3))
    step = next(power * n for n in (1, 2, 5, 10) if end / (power * n) < 7)
    return [step * i for i in range(int(end / step) + 1)]


def _area(drawing: Drawing, below: list[float], above: list[float], owner: str) -> None:
    d = "M" + "L".join([f"{x:.4g} {y:.4g}" for x, y in (*_steps(above), *reversed(_steps(below)))]) + "Z"
    color = COLORS[COLOR_OF[owner]]
    drawing.add(
        f'<path d="{d}" fill="{color}" fill-opacity=".55"><title>{escape(owner)}</title></path>', 0, 0, WIDTH, HEIGHT
    )


def _steps(values: list[float]) -> list[tuple[float, float]]:
    """The corners of a line that keeps to each value for its part of the width."""
    width = WIDTH / len(values)
    changes = [i for i, value in enumerate(values) if not i or value != values[i - 1]] + [len(values)]
    return [(x * width, HEIGHT - values[start]) for start, end in pairwise(changes) for x in (start, end)]


def _block(drawing: Drawing, block: Block, y: float, axis: Axis) -> None:
    """A row: the time that a block was there as a bar, over it what it is."""
    left = axis.at(block.made) * WIDTH
    right = WIDTH if block.freed is None else axis.at(block.freed) * WIDTH
    drawing.rect(
        left, y - 14, max(right - left, 2), ROW - 4, COLOR_OF[block.owner], tip=f"{block.owner}: {block.title}"
    )
    drawing.text(4, y - 2, f"{size_text(block.nbytes)}  {block.title}", size=11)


def snapshot_drawing(snapshot: Snapshot) -> Drawing:
    """A bar for each owner, as long as what it holds, with a box for each of its largest blocks."""
    drawing = Drawing(f"Who holds {size_text(snapshot.nbytes)}")
    drawing.text(0, -12, f"Tensors hold {size_text(snapshot.nbytes)}", bold=True)
    longest = max((nbytes for nbytes, _ in snapshot.owners.values()), default=0) or 1
    y = 0
    for owner, (nbytes, count) in snapshot.owners.items():
        if not count:
            continue
        drawing.text(0, y + 18, owner)
        drawing.text(250, y + 18, size_text(nbytes), anchor="end")
        x = 262.0
        for size, title in _shown([(h.nbytes, str(h)) for h in snapshot.holdings if h.owner == owner], longest):
            width = size / longest * (WIDTH - 262)
            drawing.rect(x, y + 4, width, 20, COLOR_OF[owner], radius=0, tip=f"{size_text(size)}  {title}")
            x += width
        y += 30
    return drawing


def _shown(blocks: Iterable[tuple[int, str]], longest: int) -> list[tuple[int, str]]:
    """Those of a pixel or more; the others as one."""
    found, rest, count = [], 0, 0
    for nbytes, title in blocks:
        if nbytes * WIDTH >= 2 * longest:
            found.append((nbytes, title))
        else:
            rest, count = rest + nbytes, count + 1
    return [*found, (rest, f"{count:,} smaller ones")] if count else found
