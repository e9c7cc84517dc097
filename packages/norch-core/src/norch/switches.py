"""What a captured step depends on besides values: modes of modules, and which tensors have which memory and hooks.

Whoever changes such a thing says so here; `norch.capture` compares two numbers at each call.
"""

from __future__ import annotations

from collections.abc import Hashable

fingerprint = 0
"""Of all switches as they are now: one that is put back gives the fingerprint that was there before."""

moves = 0
"""How often a tensor was given other memory or hooks, or was made a leaf that requires grad, or none."""


def switched(owner: object, name: str, old: Hashable, new: Hashable) -> None:
    """Notes that the switch `name` of `owner` was `old` and is `new` from now on."""
    global fingerprint
    fingerprint ^= hash((id(owner), name, old)) ^ hash((id(owner), name, new))


def moved() -> None:
    """Notes a change that a captured step may see in the tensors that it uses."""
    global moves
    moves += 1
