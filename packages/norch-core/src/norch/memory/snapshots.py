"""Who holds what now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..device import Device
from . import recording
from .holders import describe, find, largest_first, totals
from .texts import largest_lines, owner_lines, size_text


class Snapshot:
    """Whose the memory of the tensors was at that moment: `holdings`, the largest first, and their sums by `owners`
    (bytes and blocks). It holds no tensors."""

    def __init__(self, device: Device | None = None) -> None:
        found, names = find(device)
        self.owners = totals(found.values())
        self.holdings = largest_first(describe(found.values(), names))

    @property
    def nbytes(self) -> int:
        """Of all."""
        return sum(nbytes for nbytes, _ in self.owners.values())

    def __str__(self) -> str:
        lines = [f"Tensors hold {size_text(self.nbytes)}:", *owner_lines(self.owners)]
        return "\n".join([*lines, "The largest:", *largest_lines(self.holdings, self.nbytes)])

    def __repr__(self) -> str:
        return f"<Snapshot of {len(self.holdings):,} blocks, {size_text(self.nbytes)}>"

    def svg(self) -> str:
        """The picture as text, for a file of its own: a bar for each owner, cut into its blocks."""
        from .drawing import snapshot_drawing

        return snapshot_drawing(self).svg(standalone=True)

    def html(self) -> str:
        """A page of its own: the picture, and a table of the largest blocks."""
        from .page import snapshot_page

        return snapshot_page(self)

    def to_dict(self) -> dict[str, Any]:
        """`owners` and `holdings`, for JSON."""
        owners = {name: {"nbytes": nbytes, "count": count} for name, (nbytes, count) in self.owners.items()}
        return {"owners": owners, "holdings": [holding._asdict() for holding in self.holdings]}

    def save(self, path: Any) -> None:
        """Writes a file at `path`: .svg, .html, .json or .txt, by the name's end. Raises ValueError for another one."""
        recording.save(self, path)

    def _repr_html_(self) -> str:
        from .drawing import snapshot_drawing

        return snapshot_drawing(self).svg()


def snapshot(
    step: Callable[[], Any] | None = None, *, device: Device | str | None = None
) -> Snapshot | recording.Recording:
    """Who holds the memory of tensors: now, or, of a `step` to be called, over time.

    Without `step`: a Snapshot of parameters, gradients, optimisers' states, what graphs keep and all else, on `device`
    or on all; within `record()` the recording so far. With it: `step()` is called, and a Recording of that returned.
    Nothing needs to have been switched on.
    """
    if step is not None:
        with recording.record() as found:
            step()
        return found
    if recording.active is not None:
        return recording.active
    return Snapshot(None if device is None else Device(device))
