"""Who holds the memory, as lines of text."""

from __future__ import annotations

from .holders import Holding

LARGEST = 10
"""How many blocks are named."""


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


def size_text(nbytes: float) -> str:
    """Bytes as "1.50 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(nbytes) < 1024 or unit == "GiB":
            break
        nbytes /= 1024
    return f"{nbytes:,.0f} B" if unit == "B" else f"{nbytes:,.2f} {unit}"
