"""What this machine can do at most: how fast it moves bytes and multiplies, measured with the libraries at hand."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from cpu_rows import LIBRARIES, Row, torch
from timing import Call, interleaved

import norch


class Machine:
    """The limits for `threads` threads, each measured when first asked for.

    A backend that can measure them better says so: `norch.cpu.copy_bandwidth(nbytes, threads)`, bytes read and written
    a second by a warm copy of `nbytes` bytes, and `norch.cpu.fma_peak(threads)`, floating-point operations a second.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.bandwidths: dict[int, float] = {}
        self._peak: tuple[float, str] | None = None
        self._tile_peak: float | None = None
        self.seen: list[tuple[float, str]] = []

    def note(self, row: Row, times: Mapping[str, list[float]] | str) -> None:
        """Remembers the rates of a row, for the peak is no less."""
        if row.flops and not row.tile_products and not isinstance(times, str):
            self.seen += [(row.flops / min(taken), f"{library}'s best {row.name}") for library, taken in times.items()]

    def bandwidth(self, moved: float) -> float:
        """Bytes a second at which work that moves about so many in all could go, its data being where they are kept."""
        size = 1 << round(math.log2(moved))
        if size not in self.bandwidths:
            native = getattr(norch.cpu, "copy_bandwidth", None)
            rates = [_copy_rate(size, self.threads), _triad_rate(size, self.threads), _read_rate(size, self.threads)]
            self.bandwidths[size] = max([*rates, native(size // 2, self.threads)] if native else rates)
        return self.bandwidths[size]

    def peak(self) -> tuple[float, str]:
        """float32 operations a second, and how they were measured."""
        if self._peak is None:
            native = getattr(norch.cpu, "fma_peak", None)
            self._peak = (native(self.threads), "independent FMAs in registers") if native else max(_matmul_rates())
        return max([self._peak, *self.seen])

    def peak_of(self, row: Row) -> float:
        """The peak for a row's arithmetic: products of bfloat16 have one of their own."""
        if row.tile_products and self.tile_peak():
            return max(self.tile_peak() / row.tile_products, self.peak()[0])
        return self.peak()[0]

    def tile_peak(self) -> float:
        """bfloat16 operations a second in tile registers or by dot products of pairs, 0 where there are neither."""
        if self._tile_peak is None:
            native = getattr(norch.cpu, "tile_peak", None)
            self._tile_peak = native(self.threads) if native else 0.0
        return self._tile_peak


def _rate(works: Sequence[Callable[[], Any]], moved: float) -> float:
    """Bytes a second when each of `works`, of which one call moves `moved` bytes, runs in a thread of its own."""
    calls = max(1, round(2e7 / moved))
    barrier = threading.Barrier(len(works))
    spans: list[tuple[float, float]] = [(0.0, 0.0)] * len(works)
    best = 0.0

    def run(at: int) -> None:
        work = works[at]
        work()
        barrier.wait()
        start = time.perf_counter()
        for _ in range(calls):
            work()
        spans[at] = start, time.perf_counter()

    turns, end = 0, time.perf_counter() + 0.1
    while turns < 3 or time.perf_counter() < end:
        turns += 1
        threads = [threading.Thread(target=run, args=(at,)) for at in range(len(works))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taken = max(end for _, end in spans) - min(start for start, _ in spans)
        best = max(best, len(works) * calls * moved / taken)
    return best


def _parts(count: int, nbytes: float, threads: int) -> list[list[np.ndarray[Any, Any]]]:
    """For each thread `count` arrays, all of them together `nbytes` long."""
    return [[np.ones(int(nbytes / count / threads / 4), np.float32) for _ in range(count)] for _ in range(threads)]


def _copy_rate(nbytes: float, threads: int) -> float:
    parts = _parts(2, nbytes, threads)
    return _rate([lambda p=p: np.copyto(p[0], p[1]) for p in parts], nbytes / threads)


def _triad_rate(nbytes: float, threads: int) -> float:
    parts = _parts(3, nbytes, threads)
    return _rate([lambda p=p: np.add(p[0], p[1], out=p[2]) for p in parts], nbytes / threads)


def _read_rate(nbytes: float, threads: int) -> float:
    parts = _parts(1, nbytes, threads)
    return _rate([lambda p=p: p[0].max() for p in parts], nbytes / threads)


def _matmul_rates() -> list[tuple[float, str]]:
    """What the libraries get to in large products: the processor's own peak is above the best of it."""
    found = []
    for n in (1024, 2048):
        array = np.random.default_rng(0).standard_normal((n, n), np.float32)
        calls: dict[str, Call] = {}
        for library in LIBRARIES:
            made = {"norch": norch.tensor, "numpy": np.copy, "torch": lambda a: torch.from_numpy(a).clone()}[library]
            operand = made(array)
            calls[library] = lambda a=operand: a @ a  # type: ignore[misc]
        times = interleaved(calls, 5, 1, settle=0.02)
        found += [(2 * n**3 / min(taken), f"{library}'s best matmul, {n}") for library, taken in times.items()]
    return found
