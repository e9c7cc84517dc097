"""Damaged checkpoints, and savers that are killed: a file is whole, or refused, in time and with little memory."""

from __future__ import annotations

import io
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from program import library, run

sys.path.append(str(Path(__file__).parents[2] / "packages/norch-core/tests"))

SECONDS = 5.0
"""What reading a damaged file may take, of processor time."""

MEMORY = 512 << 20
"""How much address space reading one may take, in bytes."""


def generate(r: Random) -> list[str]:
    """A saved file, damaged in one to four ways, and read in one of the ways that norch has."""
    if r.random() < 0.1:
        return [f"kill_saver({r.randrange(1 << 30)}, {r.choice(('SIGKILL', 'SIGTERM', 'SIGINT'))!r})"]
    kind = r.choice(("checkpoint", "checkpoint", "safetensors", "archive", "archive", "legacy", "script", "gguf"))
    lines = [f"content = {kind}()"]
    of_kind = {"archive": ("repickled",), "script": ("repickled",), "checkpoint": ("restructured", "crowded"),
               "safetensors": ("restructured", "crowded")}  # fmt: skip
    how = [r.choice(("damaged", *of_kind.get(kind, ()))) for _ in range(r.randint(1, 4))]
    lines += [f"content = {name}(content, {r.randrange(1 << 30)})" for name in how]
    ways = ("load", "load_safetensors", "safe_open", "file", *(("mmap",) if kind != "legacy" else ()))
    return [*lines, f"read(content, {r.choice(ways)!r})"]


def check(lines: tuple[str, ...]) -> str | None:
    """What went wrong with a file."""
    norch = library("norch")
    known = {f.__name__: f for f in (checkpoint, safetensors, archive, legacy, script, gguf, damaged, restructured,
                                     crowded, repickled, read, kill_saver)}  # fmt: skip
    start = time.process_time()
    for i, error in run(lines, norch, known).errors.items():
        return f"line {i + 1} raises {type(error).__name__}: {str(error)[:300]}    {lines[i]}"
    took = time.process_time() - start
    return f"takes {took:.0f} s, which is long" if took > SECONDS else None


def checkpoint() -> bytes:
    from damaged import saved

    return bytes(saved())


def safetensors() -> bytes:
    norch = library("norch")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        norch.save_safetensors({"a": norch.ones(3, 2), "b": norch.arange(4), "c": norch.tensor([True, False])}, path)
        return path.read_bytes()


def archive() -> bytes:
    """What torch.save writes, and before 1.6 wrote; what torch.jit.save writes; what llama.cpp reads."""
    from pytorch_files import state

    return bytes(state("zip"))


def legacy() -> bytes:
    from pytorch_files import state

    return bytes(state("legacy"))


def script() -> bytes:
    from test_other_weights import script as made

    return bytes(made())


def gguf() -> bytes:
    from test_other_weights import PAIRS, PLAIN
    from test_other_weights import gguf as made

    return bytes(made(PLAIN, b"".join(PAIRS), len(PAIRS)))


def repickled(content: bytes, seed: int) -> bytes:
    """The pickle of an archive with opcodes in the wrong places, zipped anew."""
    from pytorch_files import repickled as again
    from pytorch_files import unpickled

    try:
        found = bytes(again(content, lambda data: unpickled(data, random.Random(seed))))
    except Exception:  # damaged already
        return content
    return found if len(found) < 4 << 20 else content


def damaged(content: bytes, seed: int) -> bytes:
    """Bytes changed, lost, repeated or moved."""
    from test_fuzzed_files import mutated

    try:
        return bytes(mutated(content, random.Random(seed))) if len(content) > 60 else content
    except IndexError:  # a header without a number or a bracket that could be another
        return content


def restructured(content: bytes, seed: int) -> bytes:
    """The header written anew, and signed, with other things in some of its places."""
    from damaged import framed

    chance = random.Random(seed)
    odd: list[Any] = [
        None, True, -1, 0, 7, 2**70, 0.5, "", "views.0", "$tensor", [], {}, [[]], {"$tensor": 0}, "F32", "é",
        {"$dict": [[{"$tuple": []}, 1]]}, {"$set": [1]}, {"$int": "0x7"}, [0, 2**40], [-1, 5],
    ]  # fmt: skip

    def changed(node: Any) -> Any:
        if chance.random() < 0.05:
            return chance.choice(odd)
        if isinstance(node, dict):
            return {chance.choice((k,) * 9 + ("$tuple", "x")): changed(v) for k, v in node.items()}
        return [changed(v) for v in node] if isinstance(node, list) else node

    try:
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
    except (ValueError, RecursionError):
        return content
    return bytes(framed(changed(header), content[8 + length :]))


def crowded(content: bytes, seed: int) -> bytes:
    """A header of very many, very deep or very long things."""
    from damaged import framed

    chance = random.Random(seed)
    n = chance.choice((1000, 30_000, 300_000))
    kind = chance.randrange(6)
    entry = '{"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}'
    if kind == 0:
        text = "[" * n + "]" * n
    elif kind == 1:
        text = "{" + ", ".join(f'"a": {entry}' for _ in range(n // 10)) + "}"
    elif kind == 2:
        text = "{" + ", ".join(f'"{i}": {entry}' for i in range(n // 10)) + "}"
    elif kind == 3:
        text = '{"a": ' + "9" * n + "}"
    elif kind == 4:
        text = '{"__metadata__": {' + ", ".join(['"norch": "[]"'] * (n // 10)) + "}}"
    else:
        text = (
            '{"a": {"dtype": "F32", "shape": [' + ", ".join("1" for _ in range(n // 10)) + '], "data_offsets": [0, 4]}}'
        )
    return bytes(framed(text, content[-64:]))


def read(content: bytes, how: str) -> None:
    """Reads a file whole; CheckpointError and DTypeError are what norch may say of a bad one."""
    norch = library("norch")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = (
        int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if sys.platform == "linux" else 0
    )
    if used:
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x"
            path.write_bytes(content)
            if how == "load":
                norch.load(io.BytesIO(content))
            elif how == "safe_open":
                with norch.safe_open(path) as file:
                    for name in list(file.keys()):
                        file.get_tensor(name)
            else:
                found = {"mmap": lambda: norch.load(path, mmap=True), "file": lambda: norch.load(path),
                         "load_safetensors": lambda: norch.load_safetensors(path)}[how]()  # fmt: skip
                if isinstance(found, dict):
                    [v.tolist() for v in found.values() if isinstance(v, norch.Tensor) and 0 < v.numel() < 1e6]
    except (norch.CheckpointError, norch.DTypeError, norch.DeviceError):
        pass
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def kill_saver(seed: int, name: str) -> None:
    """Stops a process that saves over a checkpoint, at a random moment: the file holds the old state or the new one."""
    norch = library("norch")
    chance = random.Random(seed)

    def state(number: float) -> dict[str, Any]:
        return {"step": number, "w": norch.full((20_000,), number), "v": [norch.full((3,), number)] * 2}

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        norch.save(state(1.0), path)
        # Held back until the child can take it: it must not leave this block, which would delete the folder.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        child = os.fork()
        if child == 0:
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
                while True:
                    norch.save(state(2.0), path)
            except KeyboardInterrupt:
                os._exit(0)
            finally:
                os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        time.sleep(chance.random() * 0.02)
        while not os.waitpid(child, os.WNOHANG)[0]:  # a Ctrl-C that falls into a destructor is lost
            os.kill(child, getattr(signal, name))
            time.sleep(0.05)
        found = norch.load(path)
        number = found["step"]
        whole = (found["w"] == number).all() and all((v == number).all() for v in found["v"])
        if number not in (1.0, 2.0) or not whole:
            raise AssertionError(f"the checkpoint holds {found}")
        norch.save(state(3.0), path)
        left = [entry for entry in os.listdir(folder) if entry != path.name]
        if left:
            raise AssertionError(f"files are left behind: {left}")
