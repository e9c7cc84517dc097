"""How often Python looks through all objects for cycles of garbage, which a long graph has it do in vain."""

from __future__ import annotations

import gc
from typing import Any

MOST = 8
"""Up to so many times as rarely as the program has it."""
FEW = 1000  # objects: fewer are no reason to look as often as before

_given = _chosen = gc.get_threshold()


def _collected(phase: str, info: dict[str, Any]) -> None:
    """Called before and after each collection (see `gc.callbacks`).

    A graph's nodes live until its backward pass, so that a collection of the oldest generation, which Python makes
    whenever that has grown by a quarter, looks at all of them and finds nothing: with tens of thousands of nodes that
    is half of a program's time. After each that finds next to nothing the next comes twice as late; after one that
    finds something, or where the program has set thresholds of its own, it comes when the program has it. Young
    objects are collected as ever.
    """
    global _given, _chosen
    if phase != "stop" or info["generation"] != 2:
        return
    now = gc.get_threshold()
    if now != _chosen:
        _given = now
    often = _given[2]
    if info["collected"] < FEW:
        often = min(max(now[2] * 2, 1), _given[2] * MOST) if now == _chosen else _given[2]
    _chosen = (*_given[:2], often)
    if _chosen != now and now[0]:
        gc.set_threshold(*_chosen)


gc.callbacks.append(_collected)
