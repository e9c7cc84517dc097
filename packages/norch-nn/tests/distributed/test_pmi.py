"""Processes that no mpirun started: torchrun's variables on the CPU, and what stands for the launcher there."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from norch.distributed import DistributedError, HashStore
from norch.distributed.pmi import PMI

PROGRAMS = Path(__file__).parent / "programs"
QUIET = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def free_port() -> str:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture
def run() -> Any:
    """`run(ranks, size, "program.py", *args)` starts processes without mpirun: their exit status, output and errors."""
    pytest.importorskip("mpi4py")
    started: list[subprocess.Popen[str]] = []

    def start(ranks: list[int], size: int, program: str, *args: Any) -> list[tuple[int, str, str]]:
        port = free_port()
        for rank in ranks:
            variables = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "MASTER_PORT": port}
            started.append(
                subprocess.Popen(
                    [sys.executable, str(PROGRAMS / program), *map(str, args)],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env={
                        **os.environ,
                        **QUIET,
                        "MASTER_ADDR": "127.0.0.1",
                        **{name: str(value) for name, value in variables.items()},
                    },
                )
            )
        return [(p.wait(60), *p.communicate()) for p in started]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def segments() -> set[str]:
    folder = Path("/dev/shm")
    return {p.name for p in folder.glob("mpich_*")} if folder.is_dir() else set()


def nothing_is_left(before: set[str]) -> None:
    """Those that other programs have at this moment go."""
    after, deadline = segments() - before, time.monotonic() + 20
    while after & segments() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not after & segments()


def test_torchruns_variables_start_a_job(run: Any) -> None:
    before = segments()
    for status, out, err in run([0, 1], 2, "unlaunched.py"):
        assert (status, err) == (0, "")
        assert out == "sum 3.0, group 1.0, PMI_FD None\n"
    nothing_is_left(before)


def test_torchrun_itself(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("mpi4py")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port()]
    done = subprocess.run(
        [*command, str(PROGRAMS / "unlaunched.py")],
        capture_output=True, text=True, timeout=60, env={**os.environ, **QUIET},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sum 3.0, group 1.0, PMI_FD None\n") == 2


def test_a_process_that_never_comes_is_named(run: Any) -> None:
    for _, _, err in run([0, 1], 3, "unlaunched.py", 1.5):
        told = err.strip().splitlines()[-1]
        missing = r"rank \d waited for all 3 processes in vain: rank 2 did not call init_process_group\(\)"
        assert re.search(f"{missing}|does not answer", told), told  # rank 0, which gave up, keeps the store


def test_a_killed_process_is_named_and_nothing_is_left(run: Any) -> None:
    before = segments()
    (alive, out, _), (killed, _, _) = run([0, 1], 2, "failures.py", "is-killed", 1, 20)
    assert (alive, killed) == (1, -signal.SIGKILL)
    assert re.search(r"rank 1 on \S+ \(process \d+\) is dead; its last was collective \d, all_reduce", out)
    nothing_is_left(before)


# --- What MPICH asks ------------------------------------------------------------------------------------------------


def together(*work: Callable[[], Any]) -> list[Any]:
    results: list[Any] = [None] * len(work)

    def do(i: int) -> None:
        results[i] = work[i]()

    threads = [threading.Thread(target=do, args=(i,)) for i in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_what_all_have_put_is_got_after_a_barrier() -> None:
    store = HashStore()
    first, second = together(lambda: PMI(0, 2, store, 10), lambda: PMI(1, 2, store, 10))
    assert first.name == second.name
    assert first.answer({"cmd": "get_my_kvsname"}) == f"cmd=my_kvsname kvsname={second.name}"
    assert second.answer({"cmd": "put", "key": "k", "value": "v=1"}) == "cmd=put_result rc=0 msg=success"
    get = {"cmd": "get", "key": "k"}
    assert first.answer(get) == "cmd=get_result rc=-1 msg=unknown"
    barrier = {"cmd": "barrier_in"}
    assert together(lambda: first.answer(barrier), lambda: second.answer(barrier)) == ["cmd=barrier_out rc=0"] * 2
    assert first.answer(get) == second.answer(get) == "cmd=get_result rc=0 value=v=1"


def test_two_jobs_have_different_names() -> None:
    assert PMI(0, 1, HashStore(), 10).name != PMI(0, 1, HashStore(), 10).name


def test_a_barrier_ends_in_time_and_says_who_is_missing() -> None:
    with pytest.raises(DistributedError, match=r"rank 0 waited .*: rank 1, 2 did not call init_process_group\(\)"):
        PMI(0, 3, HashStore(), 0.05)
