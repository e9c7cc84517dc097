"""How the tests of DataLoader run one: with which workers, and what came out as lists."""

from __future__ import annotations

from typing import Any

import norch
from norch.utils.data import DataLoader

KINDS: dict[str, dict[str, Any]] = {
    "none": {},
    "1 thread": {"num_workers": 1},
    "2 threads": {"num_workers": 2},
    "3 threads": {"num_workers": 3, "prefetch_factor": 1},
    "2 processes": {"num_workers": 2, "workers": "process", "persistent_workers": True},
}
THREADS = [k for k in KINDS if "process" not in k]


def listed(value: Any) -> Any:
    if isinstance(value, norch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {k: listed(v) for k, v in value.items()}
    return [listed(v) for v in value] if isinstance(value, tuple | list) else value


def epoch(loader: DataLoader) -> list[Any]:
    return [listed(batch) for batch in loader]


def rows(loader: DataLoader) -> list[Any]:
    """By sample, in order: what the batches of dicts hold."""
    return [row for b in epoch(loader) for row in zip(*b.values())]
