"""A process beside those of a job, one on each host: says which one died, of what and where, where the launcher ends the
others before they can. It is started with the table of the group and ends when all its processes have.

It stands alone, `python witness.py`: it must start fast and depend on nothing that may have failed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys


def watch(pids: dict[int, str], read: object, host: str) -> None:
    """Waits for all processes to end, by pid what they are called, and reports the first that ended out of order."""
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
        for pid in ended:
            text = None if told else read(pid)  # type: ignore[operator]
            if text:
                told = True
                sys.stderr.write(f"norch.distributed: {pids[pid]} (process {pid} on {host}) has ended; {text}\n")
                sys.stderr.flush()
        if not files:
            return
        ended = []
        for file, _ in poll.poll():
            poll.unregister(file)
            os.close(file)
            ended.append(files.pop(file))


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

    def read(pid: int) -> str | None:
        base = rows[pid]
        if number(base, "state"):
            return None  # it left in order, or has said itself why not
        at = number(base, "at")
        start = base + plan["fields"]["texts"] + at * plan["text"]
        text = memory[start : start + plan["text"]].rstrip(b"\0").decode(errors="replace")
        if not text:
            return "it had not called anything"
        return (
            f"its last was {text}" if at == plan["slots"] else f"its last was collective {number(base, 'seq')}, {text}"
        )

    watch(dict(zip(plan["pids"], plan["names"])), read, plan["host"])


if __name__ == "__main__":
    main(sys.argv[1:])
