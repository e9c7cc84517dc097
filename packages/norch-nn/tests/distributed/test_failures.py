"""Failures say who and where, in time, and leave nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from norch.distributed.witness import watch

SUM = r"all_reduce\(sum\) of float32 \(512,\) at failures.py:\d+"
LAST = rf"its last was collective 4, {SUM}"
PROMPT, LATE = 5, 6
"""Seconds in which a program hears of a failure, and after a timeout: a tenth, and none, where nothing else runs."""

SECOND = r"rank {victim} on \S+ \(process \d+\)"


def said(out: str) -> list[tuple[float, str]]:
    """After how many seconds a process was told what."""
    return [(float(t), text) for t, text in re.findall(r"^after ([\d.]+) s (.*)$", out, re.M)]


def nothing_is_left(out: str, segments: set[str]) -> None:
    """No process, and no shared memory but that which other tests have for a moment."""
    pids = [int(p) for p in re.findall(r"process (\d+)$", out, re.M)]
    assert pids
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        running = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        if not running and shared_memory() <= segments:
            return
        time.sleep(0.05)
    assert not running
    assert shared_memory() <= segments


def shared_memory() -> set[str]:
    folder = Path("/dev/shm")
    return {p.name for p in folder.glob("mpich_*")} if folder.is_dir() else set()


@pytest.mark.parametrize(
    ("how", "call"),
    [
        ("shape", r"all_reduce\(sum\) of float32 \(1024,\)"),
        ("op", r"all_reduce\(max\) of float32 \(512,\)"),
        ("dtype", r"all_reduce\(sum\) of float64 \(512,\)"),
        ("call", r"broadcast from rank 0 of float32 \(512,\)"),
    ],
)
def test_what_is_not_the_same_raises_on_all_ranks(mpirun: Any, how: str, call: str) -> None:
    before = shared_memory()
    done = mpirun(2, "failures.py", how, 1, 20)
    told = said(done.stdout)
    assert done.returncode != 0
    assert len(told) == 2
    for seconds, text in told:
        assert seconds < PROMPT
        assert re.search(
            rf"collective 5 is not the same on all ranks: rank 0: {SUM}, rank 1: {call} at failures.py:\d+", text
        )
    nothing_is_left(done.stdout, before)


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("how", ["hangs", "stops"])
def test_who_does_not_come_is_named_after_the_timeout(mpirun: Any, how: str, victim: int) -> None:
    before = shared_memory()
    done = mpirun(2, "failures.py", how, victim, 1)
    told = said(done.stdout)
    assert done.returncode != 0
    assert len(told) == 1
    seconds, text = told[0]
    assert 1 <= seconds < 1 + LATE
    assert re.search(
        rf"{SUM.split(' at ')[0]} did not end within 1 s: {SECOND.format(victim=victim)}: MISSING; {LAST}", text
    )
    nothing_is_left(done.stdout, before)


@pytest.mark.parametrize("victim", [0, 1])
def test_who_is_killed_is_named(mpirun: Any, victim: int) -> None:
    before = shared_memory()
    done = mpirun(2, "failures.py", "is-killed", victim, 20)
    assert done.returncode != 0
    # The launcher ends the others, often before they can say anything; then the witness does.
    assert re.search(rf"rank {victim} .*\(process \d+.*\) (is dead|has ended); {LAST}", done.stdout + done.stderr)
    assert "went on" not in done.stdout
    nothing_is_left(done.stdout, before)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_the_witness_names_who_came_least_far_of_those_that_end_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    slow, fast = (subprocess.Popen(["sleep", seconds]) for seconds in ("0.15", "0.1"))
    came = {slow.pid: (4, "its last was collective 4"), fast.pid: (5, "its last was collective 5")}
    watch({fast.pid: "rank 1", slow.pid: "rank 0"}, came.get, "host")
    told = f"norch.distributed: rank 0 (process {slow.pid} on host) has ended; its last was collective 4\n"
    assert capsys.readouterr().err == told
    assert [slow.wait(), fast.wait()] == [0, 0]


@pytest.mark.parametrize("victim", [0, 1])
def test_an_exception_ends_all_and_is_named(mpirun: Any, victim: int) -> None:
    before = shared_memory()
    done = mpirun(2, "failures.py", "raises", victim, 20)
    assert done.returncode != 0
    who = SECOND.format(victim=victim)
    assert re.search(rf"{who} ends with MemoryError; {LAST}", done.stderr)
    ((seconds, text),) = said(done.stdout)
    assert seconds < PROMPT
    assert re.search(rf"{who} gave up: it raised MemoryError: no room for 8 TB", text)
    nothing_is_left(done.stdout, before)


def test_members_on_other_hosts_say_what_they_do(mpirun: Any) -> None:
    """Each process is told that it runs on a host of its own, so that none sees the others' tables."""
    hosts = {"SEVERAL_HOSTS": "1"}
    done = mpirun(2, "failures.py", "op", 1, 20, env=hosts)
    calls = rf"rank 0: {SUM}, rank 1: all_reduce\(max\) of float32 \(512,\)"
    for seconds, text in (told := said(done.stdout)):
        assert seconds < PROMPT
        assert re.search(rf"collective 5 is not the same on all ranks: {calls}", text)
    assert len(told) == 2
    ((seconds, text),) = said(mpirun(2, "failures.py", "hangs", 1, 1, env=hosts).stdout)
    assert seconds < 1 + LATE
    assert re.search(rf"did not end within 1 s: rank 1 on host1 \(process \d+\): MISSING; {LAST}", text)
    ((seconds, text),) = said(mpirun(2, "failures.py", "raises", 1, 20, env=hosts).stdout)
    assert seconds < PROMPT
    assert re.search(r"rank 1 on host1 \(process \d+\) gave up: it raised MemoryError: no room", text)
    ((_, text),) = said(mpirun(2, "failures.py", "stops", 1, 1, env=hosts).stdout)
    assert re.search(r"rank 1 on host1 \(process \d+\): MISSING; nothing on its host answers", text)


def test_who_leaves_early_is_named(mpirun: Any) -> None:
    done = mpirun(2, "failures.py", "leaves", 1, 20)
    assert done.returncode != 0
    assert "rank 1: barrier at the end of the program" in done.stdout


def test_who_never_comes_is_named(mpirun: Any) -> None:
    before = shared_memory()
    done = mpirun(2, "failures.py", "never-comes", 1, 1)
    ((seconds, text),) = said(done.stdout)
    assert done.returncode != 0
    assert 1 <= seconds < 1 + LATE
    if sys.platform == "linux":
        assert "rank 1 has not called init_process_group()" in text
    nothing_is_left(done.stdout, before)


def test_a_receipt_says_what_the_sender_does(mpirun: Any) -> None:
    done = mpirun(2, "failures.py", "receives", 1, 1)
    ((_, text),) = said(done.stdout)
    assert re.search(
        rf"irecv from rank 1 of float32 \(512,\) did not end within 1 s: {SECOND.format(victim=1)}: {LAST}", text
    )


def test_ctrl_c_ends_all(start: Any) -> None:
    """`mpirun` gets it, as from a terminal."""
    before = shared_memory()
    process = start(2, "failures.py", "interrupt", 1, 60)
    lines = [process.stdout.readline() for _ in range(2)]
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert process.returncode != 0
    assert "went on" not in out
    nothing_is_left("".join(lines) + out, before)
