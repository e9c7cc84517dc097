"""What an OutOfMemoryError says of who holds the memory."""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING

from .holders import describe, find, largest_first, totals
from .texts import LARGEST, largest_lines, owner_lines, size_text

if TYPE_CHECKING:
    from ..device import Device


def report(device: Device) -> str:
    """Lines that rank the tensors on a device by their owners; "" where there are none, or no memory to find them."""
    try:
        return _report(device)
    except Exception:  # a MemoryError; a module that fails to name its parameters
        return ""


def _report(device: Device) -> str:
    found, names = find(device)
    owners = totals(found.values())
    held = sum(nbytes for nbytes, _ in owners.values())
    if not held:
        return ""
    largest = largest_first(describe(nlargest(4 * LARGEST, found.values(), key=lambda h: h.nbytes), names))
    lines = [f"\nOn {device} tensors hold {size_text(held)}{_of_allocator(device)}:", *owner_lines(owners)]
    lines += ["The largest:", *largest_lines(largest, held)]
    if not any(holding.line for holding in largest):
        lines.append("Within norch.memory.record() this names the lines that made them.")
    return "\n".join(lines)


def _of_allocator(device: Device) -> str:
    """What the device's allocator says besides: kernels' own memory, rounding, captured steps."""
    stats = getattr(getattr(device.backend, "module", None), "memory_stats", None)
    if stats is None:
        return ""
    found = stats() if device.type == "cpu" else stats(device)
    kept = found.get("cached_bytes", found.get("reserved_bytes", 0) - found["allocated_bytes"])
    return f" (the allocator: {size_text(found['allocated_bytes'])} in use, {size_text(max(kept, 0))} kept for reuse)"
