"""Run as a script: saves over a checkpoint again and again while it is killed, interrupted or out of room.

`kill_harness.py HOW FOLDER` prints how many saves it broke off. Each is in a process of its own, forked from here.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import norch

SIZE = 100_000
CAN_BE_UNNAMED = False


def state(number: int) -> dict[str, Any]:
    """One that says throughout which it is."""
    return {"step": number, "model": {f"w{i}": norch.full((SIZE,), float(number)) for i in range(2)}, "list": [number]}


def number_of(path: Path) -> int:
    """Which state a file holds, all of it."""
    found = norch.load(path)
    number: int = found["step"]
    assert found["list"] == [number]
    assert all((w == number).all() for w in found["model"].values())
    assert len(found["model"]) == 2
    return number


def in_child(work: Callable[[], object]) -> int:
    """How a forked process that did `work` ended: 0, the number of an exception's exit, or minus a signal's."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except KeyboardInterrupt:
            code = 2
        except OSError:
            code = 3
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def at_line(count: int, action: Callable[[], None]) -> None:
    """Calls `action` before the line `count` of those that will write, from the first that touches the disk."""
    left = count

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal left
        if os.path.basename(frame.f_code.co_filename) not in ("atomic.py", "writing.py"):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                action()
        return trace

    sys.settrace(trace)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt() -> None:
    raise KeyboardInterrupt


def left_behind(path: Path) -> list[str]:
    return [name for name in os.listdir(path.parent) if name != path.name]


def every_line(path: Path, action: Callable[[], None], expected: int) -> int:
    """Breaks off a save before each line that it runs."""
    global SIZE
    SIZE = 10
    norch.save(state(0), path)
    old, line, new_since, leftovers = 0, 0, None, 0
    while True:
        line += 1

        def work(line: int = line) -> None:
            at_line(line, action)
            norch.save(state(line), path)

        code = in_child(work)
        number = number_of(path)
        assert number in (old, line), (number, old, line)
        new_since = line if number == line and new_since is None else new_since
        old = number
        leftovers += len(left_behind(path))
        for name in left_behind(path):
            (path.parent / name).unlink()
        if code == 0:
            assert number == line
            break
        assert code == expected, (line, code)
    assert new_since is not None
    assert line - new_since < 15  # after the new name there is only the folder to sync
    if action is interrupt:
        assert leftovers == 0
    elif CAN_BE_UNNAMED:  # only between the file's getting a name, and that name's becoming the target's
        assert leftovers <= 3, leftovers
    return line


def at_random(path: Path, number: int, trials: int, expected: int) -> int:
    """Sends a signal at moments spread over the time that a save takes."""
    times = []
    for _ in range(6):
        start = time.perf_counter()
        norch.save(state(0), path)
        times.append(time.perf_counter() - start)
    took, old, stopped = min(times), 0, 0
    chance = random.Random(0)
    for trial in range(1, trials + 1):
        wanted = state(trial)
        delay = max(chance.random() * took * 1.2, 1e-5)

        def work(wanted: Any = wanted, delay: float = delay) -> None:
            signal.signal(signal.SIGALRM, signal.default_int_handler if number == signal.SIGINT else stop)
            signal.setitimer(signal.ITIMER_REAL, delay)
            norch.save(wanted, path)

        code = in_child(work)
        assert code in (0, expected), code
        stopped += code != 0
        found = number_of(path)
        assert found == trial if code == 0 else found in (old, trial)
        old = found
        if number == signal.SIGINT:
            assert not left_behind(path), left_behind(path)
    return stopped


def stop(*_: object) -> None:
    kill()


def out_of_room(path: Path) -> int:
    """A file may not grow beyond a limit, as on a full disk."""
    norch.save(state(0), path)
    size = path.stat().st_size
    limits = [0, 1, 8, 100, size // 2, size - 1]
    for limit in limits:

        def work(limit: int = limit) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            norch.save(state(1), path)

        assert in_child(work) == 3
        assert number_of(path) == 0
        assert not left_behind(path)
    return len(limits)


def main(how: str, folder: str) -> int:
    global CAN_BE_UNNAMED
    path = Path(folder) / "checkpoint.pt"
    if how.endswith(", named"):
        how = how.removesuffix(", named")
        if hasattr(os, "O_TMPFILE"):
            del os.O_TMPFILE
    elif hasattr(os, "O_TMPFILE"):
        try:
            os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY))
            CAN_BE_UNNAMED = True
        except OSError:
            pass
    if how == "kill at every line":
        return every_line(path, kill, -signal.SIGKILL)
    if how == "interrupt at every line":
        return every_line(path, interrupt, 2)
    if how == "kill at random":
        return at_random(path, signal.SIGKILL, 100, -signal.SIGKILL)
    if how == "interrupt at random":
        return at_random(path, signal.SIGINT, 100, 2)
    return out_of_room(path)


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
