"""Workers that fail, die, stall or are left: an error that says what happened, no hang, and nothing stays behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import loader_datasets as samples
import numpy as np
import pytest

import norch
from norch.utils import data
from norch.utils.data import DataLoader, WorkerError, iteration, mailbox

pytestmark = pytest.mark.usefixtures("on_host")

PROCESS = {"num_workers": 1, "workers": "process"}
LONG = 60.0  # seconds that no test takes unless something hangs


def eventually(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + LONG
    while not condition() and time.monotonic() < end:
        gc.collect()
        time.sleep(0.02)
    return condition()


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("norch-loader")]


def shared_memory() -> set[str]:
    return set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> Iterator[None]:
    before, files = shared_memory(), len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    yield
    assert eventually(lambda: not threads()), threads()
    assert eventually(lambda: not multiprocessing.active_children())
    assert not {name for name in shared_memory() - before if "norch" in name}
    if files:
        assert eventually(lambda: len(os.listdir("/proc/self/fd")) <= files + 2)  # multiprocessing keeps a tracker


def failure(loader: DataLoader) -> tuple[BaseException, str, list[Any]]:
    """What a loop over the loader raised, its traceback as a user sees it, and the batches before."""
    seen: list[Any] = []
    try:
        seen.extend(iter(loader))
    except BaseException as error:
        text = "".join(traceback.format_exception(error))
        error.__traceback__ = None  # its frames hold the iterator
        return error, text, seen
    raise AssertionError("nothing was raised")


# --- Exceptions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_in_a_sample(workers: int) -> None:
    error, text, seen = failure(DataLoader(samples.Failing("key_error"), 2, num_workers=workers))
    assert type(error) is KeyError
    assert [b.tolist() for b in seen] == [[0, 1], [2, 3]]
    assert 'raise KeyError("no such thing")' in text  # the line of the dataset
    assert "while loading index 5 of batch 2" in text
    assert ("in DataLoader worker" in text) == (workers > 0)
    if workers:
        assert "(thread norch-loader-" in text


def test_an_exception_in_a_process() -> None:
    error, text, seen = failure(DataLoader(samples.Failing("two_arguments"), 2, **PROCESS))
    assert type(error) is WorkerError  # what cannot be unpickled
    assert "samples.TwoArguments" in str(error) or "TwoArguments: left and right" in str(error)
    assert [b.tolist() for b in seen] == [[0, 1], [2, 3]]
    assert 'raise TwoArguments("left", "right")' in text
    assert "while loading index 5 of batch 2" in text


def test_after_an_exception_whoever_wants_goes_on() -> None:
    for kwargs in ({}, {"num_workers": 2}, PROCESS):
        iterator = iter(DataLoader(samples.Failing("key_error"), 2, **kwargs))
        seen = []
        while True:
            try:
                seen += next(iterator).tolist()
            except StopIteration:
                break
            except KeyError as error:
                if kwargs is PROCESS:
                    text = "".join(traceback.format_exception(error))
                    assert 'raise KeyError("no such thing")' in text
                    assert "The above exception was the direct cause" in text
                    assert "in DataLoader worker 0 (process" in text
        assert seen == [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]


def test_a_state_after_an_exception_tries_the_batch_again() -> None:
    for workers in (0, 2):
        loader = DataLoader(samples.Failing("key_error"), 2, num_workers=workers)
        failure(loader)
        other = DataLoader(range(12), 2)
        other.load_state_dict(loader.state_dict())
        assert next(b.tolist() for b in other) == [4, 5]


@pytest.mark.parametrize("workers", [0, 2])
def test_stop_iteration_does_not_end_the_epoch(workers: int) -> None:
    error, text, _ = failure(DataLoader(samples.Failing("stop"), 1, num_workers=workers))
    assert type(error) is WorkerError
    assert "StopIteration was raised while loading index 5 of batch 5" in str(error)
    assert "next(iter(()))" in text


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_in_collate(workers: int) -> None:
    error, text, _ = failure(DataLoader(range(4), 2, num_workers=workers, collate_fn=samples.failing_collate))
    assert type(error) is ZeroDivisionError
    assert "while collating batch 0" in text
    assert "in failing_collate" in text


def test_an_exception_in_worker_init_fn() -> None:
    error, text, seen = failure(DataLoader(range(4), num_workers=2, worker_init_fn=samples.failing_init))
    assert type(error) is LookupError
    assert "while starting" in text
    assert not seen


def stopping_init(worker: int) -> None:
    next(iter(()))


def test_stop_iteration_in_worker_init_fn_does_not_end_the_epoch() -> None:
    error, text, _ = failure(DataLoader(range(4), num_workers=1, worker_init_fn=stopping_init))
    assert type(error) is WorkerError
    assert "in stopping_init" in text


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_in_a_sampler(workers: int) -> None:
    def order() -> Iterator[int]:
        yield from range(9)
        raise OSError("no more indices")

    class Order(data.Sampler):
        def __iter__(self) -> Iterator[int]:
            return order()

    error, _, seen = failure(DataLoader(range(12), 2, sampler=Order(), num_workers=workers))
    assert type(error) is OSError
    assert [b.tolist() for b in seen] == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_in_a_stream(workers: int) -> None:
    class Bad(data.IterableDataset):
        def __iter__(self):
            yield 1
            raise OSError("the disk is gone")

    error, text, seen = failure(DataLoader(Bad(), None, num_workers=workers))
    assert type(error) is OSError
    assert "while loading sample 1 of its stream of batch" in text
    assert len(seen) == max(1, workers)


def test_an_exit_in_a_thread_is_an_exit() -> None:
    error, _, _ = failure(DataLoader(samples.Failing("leaves"), num_workers=1))
    assert type(error) is SystemExit


def test_what_cannot_be_pickled() -> None:
    with pytest.raises(Exception, match="local object|Can't pickle|Can't get local") as found:
        next(iter(DataLoader(range(3), collate_fn=lambda b: b, **PROCESS)))
    assert any("workers='thread'" in note for note in found.value.__notes__)


# --- Processes -------------------------------------------------------------------------------------------------------


def test_everything_travels() -> None:
    """One process, many things: a nested batch, large and odd buffers, randomness for each sample, uncollated lists."""
    (batch,) = DataLoader(samples.Mixed(), 5, **PROCESS)
    (expected,) = DataLoader(samples.Mixed(), 5)
    assert list(batch) == list(expected)
    assert batch["tensor"].dtype is norch.bfloat16
    for key in ("tensor", "array", "empty", "scalar", "flag"):
        assert batch[key].dtype is expected[key].dtype
        assert batch[key].shape == expected[key].shape
        assert batch[key].tolist() == expected[key].tolist(), key
    assert batch["text"] == expected["text"]
    assert [p.tolist() for p in batch["pair"]] == [p.tolist() for p in expected["pair"]]
    batch["array"] += 1  # memory of its own, that can be written


def test_old_sources_of_randomness_in_processes() -> None:
    """`random` and `numpy.random` are seeded for each sample, whatever the batches."""
    found = [
        [[float(v) for v in row] for b in DataLoader(samples.Legacy(), size, seed=1, **PROCESS) for row in zip(*b)]
        for size in (2, 6)
    ]
    assert found[0] == found[1]
    assert len({v for row in found[0] for v in row}) == 12


@pytest.mark.skipif(sys.platform != "linux", reason="signals as Linux has them")
@pytest.mark.parametrize(("how", "says"), [("exits", "exited with code 3"), ("killed", "was killed by SIGKILL")])
def test_a_process_that_dies(how: str, says: str) -> None:
    loader = DataLoader(samples.Failing(how, at=5), 2, num_workers=2, workers="process", prefetch_factor=1)
    start = time.monotonic()
    error, text, _ = failure(loader)
    assert type(error) is WorkerError
    assert says in str(error)
    lines = str(error).splitlines()
    assert any("loading index 5 of batch 2" in line and line.endswith("when it died") for line in lines), text
    assert sum(line.startswith("  worker ") for line in lines) == 2
    assert time.monotonic() - start < LONG


def test_a_script_without_a_main_part_is_told(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        from norch.utils.data import DataLoader
        for batch in DataLoader(range(3), num_workers=1, workers="process"):
            print(batch)
        """)
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=LONG)
    assert done.returncode
    assert "if __name__ == '__main__':" in done.stderr.replace('"', "'")


# --- Stalls ----------------------------------------------------------------------------------------------------------


def test_a_thread_that_stalls() -> None:
    dataset = samples.Waiting(at=3)
    error, _, seen = failure(DataLoader(dataset, 2, num_workers=2, timeout=1.0))
    dataset.event.set()
    assert type(error) is WorkerError
    assert [b.tolist() for b in seen] == [[0, 1]]
    assert "no batch came within timeout=1 s" in str(error)
    lines = str(error).splitlines()[1:]
    assert len(lines) == 2
    assert sum("loading index 3 of batch 1 since " in line for line in lines) == 1
    assert sum(": idle since" in line for line in lines) == 1


def test_without_a_timeout_there_is_a_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iteration, "STALL_SECONDS", 1.0)
    monkeypatch.setattr(iteration, "_POLL_SECONDS", 0.05)
    dataset = samples.Waiting(at=1)
    error, _, _ = failure(DataLoader(dataset, 2, num_workers=1))
    dataset.event.set()
    assert "no worker has done anything for 1 s" in str(error)
    assert "worker 0 (thread norch-loader-0): loading index 1 of batch 0" in str(error)


def test_a_process_that_stalls() -> None:
    error, _, _ = failure(DataLoader(samples.Failing("hangs", at=0), 2, timeout=1.0, **PROCESS))
    assert type(error) is WorkerError
    assert "no batch came within timeout=1 s" in str(error)


# --- Leaving ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("persistent", [False, True])
def test_leaving_early(persistent: bool) -> None:
    loader = DataLoader(range(100), 2, num_workers=2, persistent_workers=persistent)
    for _ in loader:
        break
    assert eventually(lambda: not threads())
    assert len(list(loader)) == 50
    assert bool(threads()) == persistent
    del loader
    assert eventually(lambda: not threads())


def test_closing() -> None:
    iterator = iter(DataLoader(range(100), 2, num_workers=2))
    next(iterator)
    iterator.close()
    assert not threads()
    assert next(iterator, "none") == "none"


def test_leaving_processes_early() -> None:
    loader = DataLoader(range(100), 2, num_workers=2, workers="process", persistent_workers=True)
    for _ in loader:
        break
    assert eventually(lambda: not multiprocessing.active_children())
    iterator = iter(loader)
    next(iterator)
    assert len(multiprocessing.active_children()) == 2
    del iterator
    assert eventually(lambda: not multiprocessing.active_children())


SCRIPT = """
import sys, time
sys.path.insert(0, {folder!r})
import loader_datasets as samples
from norch.utils.data import DataLoader, get_worker_info

if __name__ == "__main__":
    loader = DataLoader(samples.{dataset}, 1, num_workers=2, workers={workers!r}, collate_fn=samples.first_only)
    iterator = iter(loader)
    print(next(iterator), flush=True)
    children = [p.pid for p in iterator._pool._processes] if {workers!r} == "process" else []
    print(*children, flush=True)
    {then}
"""


def script(tmp_path: Path, workers: str, dataset: str, then: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A script that has had its first batch, and the ids of its workers."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(folder=str(Path(__file__).parent), dataset=dataset, workers=workers, then=then))
    running = subprocess.Popen(
        [sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert running.stdout is not None
    assert running.stdout.readline().strip() == "0"
    return running, [int(pid) for pid in running.stdout.readline().split()]


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    status = Path(f"/proc/{pid}/status")
    try:
        return "State:\tZ" in status.read_text()  # ended, but whoever adopted it has not noticed
    except OSError:
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="signals as Linux has them")
@pytest.mark.parametrize("workers", ["thread", "process"])
def test_ctrl_c(tmp_path: Path, workers: str) -> None:
    """To the whole group, as a terminal sends it, while the loop waits for a worker that hangs."""
    running, children = script(tmp_path, workers, 'Failing("hangs", at=1)', "next(iterator)")
    time.sleep(0.3)
    os.killpg(running.pid, signal.SIGINT)
    _, errors = running.communicate(timeout=LONG / 2)  # the sample hangs for longer
    assert running.returncode not in (0, None)
    assert errors.count("KeyboardInterrupt") == 1, errors  # the script's own, and no worker's
    assert eventually(lambda: all(gone(pid) for pid in children))


@pytest.mark.skipif(sys.platform != "linux", reason="signals as Linux has them")
@pytest.mark.parametrize("workers", ["thread", "process"])
def test_the_end_of_a_script(tmp_path: Path, workers: str) -> None:
    running, children = script(tmp_path, workers, 'Failing("hangs", at=3)', "pass")
    _, errors = running.communicate(timeout=LONG / 2)
    assert running.returncode == 0
    assert not errors
    assert eventually(lambda: all(gone(pid) for pid in children))


@pytest.mark.skipif(sys.platform != "linux", reason="signals as Linux has them")
def test_a_loader_that_is_killed_takes_its_processes_along(tmp_path: Path) -> None:
    running, children = script(tmp_path, "process", 'Failing("hangs", at=1)', "next(iterator)")
    assert len(children) == 2
    running.kill()
    running.communicate(timeout=LONG)
    assert eventually(lambda: all(gone(pid) for pid in children))


# --- Mailboxes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [7, 1 << 29])
def test_a_mailbox(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many buffers, empty ones, larger and smaller than what came before, in pieces and at once."""
    monkeypatch.setattr(mailbox, "_MAX_BYTES", most)
    file = mailbox.File()
    for count, size in ((600, 3), (0, 0), (2, 50), (1, 1)):
        sent = [np.full((size, i % 2), i, np.int16) for i in range(count)], "text" * size, norch.arange(size)
        arrays, text, tensor = mailbox.read(file, *mailbox.write(file, sent))
        assert [a.tolist() for a in arrays] == [a.tolist() for a in sent[0]]
        assert text == sent[1]
        assert tensor.tolist() == sent[2].tolist()
        assert type(tensor) is norch.Tensor


def test_a_mailbox_and_gradients() -> None:
    file, w = mailbox.File(), norch.ones(2, requires_grad=True)
    assert mailbox.read(file, *mailbox.write(file, w)).requires_grad
    with pytest.raises(norch.AutogradError, match=r"use detach\(\)"):
        mailbox.write(file, w * 2)
