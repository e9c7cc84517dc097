"""What an OutOfMemoryError says of who holds the memory."""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING

from .holders import Holding, describe, find, totals

if TYPE_CHECKING:
    from ..device import Device

LARGEST = 10
"""How many blocks are named."""


def report(device: Device) -> str:
    """Lines that rank the tensors on a device by their owners; "" where there are none, or no memory to find them."""
    try:
        return _report(device)
    except (
        Exception
    ):  # a MemoryError, a module whose parameters cannot be asked for: no reason to hide the error itself
        return ""


def _report(device: Device) -> str:
    found, names = find(device)
    owners = totals(found.values())
    held = sum(nbytes for nbytes, _ in owners.values())
    if not held:
        return ""
    largest = describe(nlargest(4 * LARGEST, found.values(), key=lambda h: h.nbytes), names)
    lines = [f"\nOn {device} tensors hold {size_text(held)}{_of_allocator(device)}:", *owner_lines(owners)]
    return "\n".join([*lines, "The largest:", *largest_lines(largest, held)])


def owner_lines(owners: dict[str, tuple[int, int]]) -> list[str]:
    """A line for each owner that has anything: bytes and how many blocks."""
    rows = sorted([(nbytes, count, owner) for owner, (nbytes, count) in owners.items() if count], reverse=True)
    return [
        f"  {owner:<18}  {size_text(nbytes):>10}  {count:,} tensor{'s'[: count != 1]}" for nbytes, count, owner in rows
    ]


def largest_lines(holdings: list[Holding], held: int) -> list[str]:
    """A line for each of the first, but for what is less than a hundredth of all; those that differ in nothing share
    one."""
    groups: dict[Holding, int] = {}
    for holding in holdings:
        if holding in groups or (len(groups) < LARGEST and holding.nbytes * 100 >= held):
            groups[holding] = groups.get(holding, 0) + 1
    return [
        f"  {size_text(holding.nbytes):>10}  {holding.owner:<18}  {holding}" + (f"  ({n} of them)" if n > 1 else "")
        for holding, n in groups.items()
    ]


def _of_allocator(device: Device) -> str:
    """What the device's allocator says besides: kernels' own memory, rounding, captured steps."""
    stats = getattr(getattr(device.backend, "module", None), "memory_stats", None)
    if stats is None:
        return ""
    found = stats() if device.type == "cpu" else stats(device)
    kept = found.get("cached_bytes", found.get("reserved_bytes", 0) - found["allocated_bytes"])
    return f" (the allocator: {size_text(found['allocated_bytes'])} in use, {size_text(max(kept, 0))} kept for reuse)"


def size_text(nbytes: float) -> str:
    """Bytes as "1.50 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(nbytes) < 1024 or unit == "GiB":
            break
        nbytes /= 1024
    return f"{nbytes:,.0f} B" if unit == "B" else f"{nbytes:,.2f} {unit}"
