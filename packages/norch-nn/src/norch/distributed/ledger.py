"""What each member of a group does, where all members on its host can read it, also after its process has died.

It lies in shared memory without a name: nothing is left of it when the last process ends.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from typing import Any
from zlib import crc32

import numpy as np

SLOTS = 32
"""Collectives that are remembered of each member."""

TEXT, FAILURE = 240, 4000  # bytes

RUNNING, FAILED, FINISHED, TOLD = 0, 1, 2, 3
"""The state of a member: FINISHED has left the group in order, FAILED says why in its failure, TOLD has said so to its
user too and is about to end."""

ROW = np.dtype(
    [
        ("pid", "i8"),
        ("state", "i8"),
        ("rank", "i8"),  # in the whole job
        ("seq", "i8"),  # of its last collective
        ("at", "i8"),  # which of the texts says what it did last
        ("failure", f"S{FAILURE}"),
        ("keys", "i8", SLOTS),
        ("texts", f"S{TEXT}", SLOTS + 1),
    ]
)


class Ledger:
    """The table of a host's members of one group: a row each, written by its member alone."""

    def __init__(self, file: int, members: int, mine: int, rank: int) -> None:
        self.file, self.mine = file, mine
        self._memory = mmap.mmap(file, ROW.itemsize * members)
        self.rows: Any = np.ndarray(members, ROW, self._memory)
        row = self.rows[mine]
        self._seq, self._at = self.rows["seq"][mine : mine + 1], self.rows["at"][mine : mine + 1]
        self._keys, self._texts = row["keys"], row["texts"]
        self._by_slot = [self.rows["keys"][:, slot] for slot in range(SLOTS)]
        self._states = self.rows["state"]
        self._states[mine] = RUNNING
        row["rank"], row["pid"] = rank, os.getpid()

    def note(self, seq: int, call: str, where: str) -> int:
        """Writes down that this member begins collective number `seq`; returns the key by which others compare it."""
        text = call.encode()
        slot = seq % SLOTS
        self._texts[slot] = text + b" at " + where.encode()
        key = self._keys[slot] = seq << 32 | crc32(text)
        self._at[0] = slot
        self._seq[0] = seq
        return key

    def note_alone(self, call: str, where: str) -> None:
        """Writes down what is no collective: a send or a receipt."""
        self._texts[SLOTS] = f"{call} at {where}".encode()
        self._at[0] = SLOTS

    def agrees(self, seq: int, key: int) -> bool:
        """Whether all members of this host that have begun collective `seq` call the same."""
        return all(other == key or other >> 32 != seq for other in self._by_slot[seq % SLOTS].tolist())

    def fail(self, why: str) -> None:
        """This member gives up, and says why. The first reason stands."""
        row = self.rows[self.mine]
        if row["state"] == RUNNING:
            row["failure"] = why.encode()[:FAILURE]
            row["state"] = FAILED

    def finish(self) -> None:
        if self.rows[self.mine]["state"] == RUNNING:
            self.rows[self.mine]["state"] = FINISHED

    def told(self) -> None:
        self.rows[self.mine]["state"] = TOLD

    def failure(self, member: int) -> str:
        text: bytes = self.rows[member]["failure"]
        return text.decode(errors="replace")

    def call(self, member: int, seq: int) -> str | None:
        """What a member called as collective `seq`; None where it has not come to it, or it is long ago."""
        row = self.rows[member]
        if row["keys"][seq % SLOTS] >> 32 != seq:
            return None
        text: bytes = row["texts"][seq % SLOTS]
        return text.decode(errors="replace")

    def last(self, member: int) -> str:
        """What a member did last, in words."""
        return last_of(self.rows[member])

    def alive(self, member: int) -> bool:
        return is_alive(int(self.rows[member]["pid"]))


def last_of(row: Any) -> str:
    text = row["texts"][row["at"]].decode(errors="replace")
    if not text:
        return "it had not called anything"
    return f"its last was {text}" if row["at"] == SLOTS else f"its last was collective {row['seq']}, {text}"


def is_alive(pid: int) -> bool:
    """Whether a process runs: one that has ended and is not waited for yet does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return sys.platform != "linux"


def make_file(members: int) -> tuple[int, str]:
    """A file for the table of so many members, and the path by which other processes open it."""
    size = ROW.itemsize * members
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("norch-distributed")
        path = f"/proc/{os.getpid()}/fd/{file}"
    else:
        file, path = tempfile.mkstemp(prefix="norch-distributed-")
    os.ftruncate(file, size)
    return file, path
