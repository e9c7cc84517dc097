"""A process beside those of a job, one on each host: says which one died and where, since the launcher ends the others
before they can. It is started with the table of the group and ends when all its processes have.

It stands alone, `python witness.py`: it must start fast and depend on nothing that may have failed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable

AT_ONCE = 200
"""Milliseconds: a process that is being killed can end after those that saw its connections close."""


def watch(pids: dict[int, str], read: Callable[[int], tuple[int, str] | None], host: str) -> None:
    """Waits until all processes, by pid what they are called, end; reports the first that ended out of order, unless
    it has said itself why. Of several that ended at once that is the one which came least far."""
    files = {}
    for pid in pids:
        try:
            files[os.pidfd_open(pid)] = pid
        except ProcessLookupError:
            files[-pid] = pid
    poll = select.poll()
    for file in files:
        if file >= 0:
            poll.register(file, select.POLLIN)
    ended = [files.pop(file) for file in list(files) if file < 0]
    told = False
    while True:
        while files and not told and (ready := poll.poll(AT_ONCE if ended else None)):
            ended += _closed(poll, files, ready)
        found = sorted((*last, pid) for pid in ended if (last := read(pid)) is not None)
        if found and not told:
            told = True
            _, text, pid = found[0]
            if all(text for _, text, _ in found):
                sys.stderr.write(f"norch.distributed: {pids[pid]} (process {pid} on {host}) has ended; {text}\n")
                sys.stderr.flush()
        if not files:
            return
        ended = _closed(poll, files, poll.poll())


def _closed(poll: select.poll, files: dict[int, int], ready: list[tuple[int, int]]) -> list[int]:
    """The processes of these files, which are watched no more."""
    for file, _ in ready:
        poll.unregister(file)
        os.close(file)
    return [files.pop(file) for file, _ in ready]


def main(argv: list[str]) -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    plan = json.loads(argv[0])
    import mmap
    import struct

    memory = mmap.mmap(plan["file"], plan["size"], prot=mmap.PROT_READ)
    rows = {pid: i * plan["row"] for i, pid in enumerate(plan["pids"])}

    def number(base: int, name: str) -> int:
        value: int = struct.unpack_from("=q", memory, base + plan["fields"][name])[0]
        return value

    def read(pid: int) -> tuple[int, str] | None:
        """How far a process came, and what it did last; None where it left in order, "" where it has said why not."""
        base = rows[pid]
        state, seq, at = (number(base, name) for name in ("state", "seq", "at"))
        if state == plan["finished"]:
            return None
        if state != plan["running"]:
            return seq, ""
        start = base + plan["fields"]["texts"] + at * plan["text"]
        text = memory[start : start + plan["text"]].rstrip(b"\0").decode(errors="replace")
        if not text:
            return seq, "it had not called anything"
        return seq, f"its last was {text}" if at == plan["slots"] else f"its last was collective {seq}, {text}"

    watch(dict(zip(plan["pids"], plan["names"])), read, plan["host"])


if __name__ == "__main__":
    main(sys.argv[1:])
