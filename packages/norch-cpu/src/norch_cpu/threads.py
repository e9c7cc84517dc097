"""How many threads kernels use at first."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

MAX_THREADS = 1024
_VARIABLE = "NORCH_NUM_THREADS"


def default_threads(root: Path = Path("/")) -> int:
    """What the environment variable NORCH_NUM_THREADS says, else OMP_NUM_THREADS, else as many as there are cores that
    this process may use: of those that its affinity allows, not more than its control group (a container's limit) has
    time for. Two hardware threads of one core count once, since kernels keep a core's units busy.

    root: where /sys and /proc are. Raises ValueError if NORCH_NUM_THREADS is no number from 1 to 1024.
    """
    given = os.environ.get(_VARIABLE)
    if given:
        if not (given.isdecimal() and 1 <= int(given[:5]) <= MAX_THREADS):
            raise ValueError(f"{_VARIABLE} must be a number from 1 to {MAX_THREADS}, got {given!r}")
        return int(given)
    of_openmp = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if of_openmp.isdecimal() and 1 <= int(of_openmp[:5]) <= MAX_THREADS:
        return int(of_openmp)
    if not hasattr(os, "sched_getaffinity"):
        return min(os.cpu_count() or 1, MAX_THREADS)
    return max(1, min(cores_among(os.sched_getaffinity(0), root), quota(root), MAX_THREADS))


def cores_among(processors: Collection[int], root: Path = Path("/")) -> int:
    """How many cores these logical processors belong to, by Linux's /sys; all of them where that does not say."""
    left, cores = set(processors), 0
    while left:
        first = left.pop()
        cores += 1
        text = _read(root / f"sys/devices/system/cpu/cpu{first}/topology/thread_siblings_list")
        left.difference_update(_listed(text))
    return cores


def _listed(text: str) -> Iterator[int]:
    """The numbers of a list such as 0-2,8."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            yield from range(int(first), int(last if last.isdecimal() else first) + 1)


def quota(root: Path = Path("/")) -> int:
    """How many processors the control group of this process, or one around it, gives it time for, rounded up, or
    MAX_THREADS where there is no limit."""
    groups, least = root / "sys/fs/cgroup", float(MAX_THREADS)
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        # Version 2 has one hierarchy, in version 1 each controller has its own. A container may see the host's path.
        top = groups / "cpu" if controllers else groups
        group = top / path.strip("/")
        for folder in {top, *(p for p in (group, *group.parents) if top in p.parents)}:
            if controllers:
                words = [_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")]
            else:
                words = _read(folder / "cpu.max").split()
            if len(words) == 2 and all(word.strip().isdecimal() and int(word) for word in words):
                least = min(least, int(words[0]) / int(words[1]))
    return max(1, -int(-least // 1))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
