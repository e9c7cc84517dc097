"""What a group knows of its members: where they run, what they do, and which one is to blame."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

import norch

from . import ledger as ledgers
from . import witness
from .ledger import FAILED, FINISHED, RUNNING, TOLD, Ledger
from .store import client, serve

if TYPE_CHECKING:
    from .engine import Communicator
    from .process_group import ProcessGroup

ANSWER = 1.0
"""Seconds that a member on another host has for its answer."""

RECORD = 512
"""Bytes by which a member introduces itself."""


def host() -> str:
    """The name of this host. NORCH_DISTRIBUTED_HOST gives another, for tests."""
    return os.environ.get("NORCH_DISTRIBUTED_HOST") or socket.gethostname()


def _namespace() -> str:
    """What tells processes that see each other's pids from those that do not."""
    try:
        inode = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        inode = 0
    return f"{host()}/{inode}"


class Members:
    """The members of a group: made by all of them together, with its first communicator."""

    def __init__(self, group: ProcessGroup, comm: Communicator, kind: str) -> None:
        self.group = group
        own = {"host": host(), "space": _namespace(), "pid": os.getpid()}
        self.records = self._share(comm, kind, own)
        here = own["space"]
        self.local = [i for i, record in enumerate(self.records) if record["space"] == here]
        mine = self.local.index(group.member)
        if mine == 0:
            file, path = ledgers.make_file(len(self.local))
        paths = self._share(comm, kind, {"path": path} if mine == 0 else {})
        if mine:
            path = paths[self.local[0]]["path"]
            file = os.open(path, os.O_RDWR)
        self.ledger = Ledger(file, len(self.local), mine, group.global_rank)
        self._share(comm, kind, {})  # all have opened it
        if mine == 0 and not path.startswith("/proc/"):
            os.unlink(path)
        if mine == 0 and group.group_name == "world" and group.size() > 1:
            self._call_witness(file)
        self._server: Any = None
        self.others = self._meet_others(comm, kind)

    def _share(self, comm: Communicator, kind: str, value: dict[str, Any]) -> list[dict[str, Any]]:
        """What all members give, by member."""
        text = json.dumps(value).encode().ljust(RECORD)
        if len(text) > RECORD:
            raise ValueError(f"a member's record takes {len(text)} bytes, over {RECORD}")
        device = norch.device(kind)
        tensor = norch.tensor(list(text), dtype=norch.uint8).to(device)
        out = norch.empty(self.group.size() * RECORD, dtype=norch.uint8, device=device)
        self.group.wait_for(comm.all_gather(out, tensor), 0, "init_process_group", None)
        data = out.cpu().numpy().tobytes()
        return [json.loads(data[i : i + RECORD]) for i in range(0, len(data), RECORD)]

    def _meet_others(self, comm: Communicator, kind: str) -> dict[int, str]:
        """Of members on other hosts the addresses where they answer for their host's table; none where all are here."""
        if len(self.local) == self.group.size():
            return {}
        self._server = serve({"rows": self._rows})
        address = f"{self.group.store.own_address()}:{self._server.server_address[1]}"
        found = self._share(comm, kind, {"address": address})
        return {i: record["address"] for i, record in enumerate(found) if i not in self.local}

    def _rows(self, seq: int) -> list[dict[str, Any]]:
        """What the members of this host do, for one on another."""
        return [
            {
                "member": member,
                "state": int(self.ledger.rows["state"][at]),
                "seq": int(self.ledger.rows["seq"][at]),
                "alive": self.ledger.alive(at),
                "last": self.ledger.last(at),
                "failure": self.ledger.failure(at),
                "call": self.ledger.call(at, seq) or "",
            }
            for at, member in enumerate(self.local)
        ]

    def everyone(self, seq: int) -> list[dict[str, Any]]:
        """`_rows` of all hosts. Who cannot be asked and nobody on its host answers for has a state of None; it is not
        alive where its host refuses the connection."""
        rows = {row["member"]: row for row in self._rows(seq)}
        for space in {self.records[i]["space"] for i in self.others}:
            members = [i for i in self.others if self.records[i]["space"] == space]
            refused = set()
            for i in members:
                try:
                    found: Any = client(self.others[i], ANSWER).rows(seq)
                except (OSError, HTTPException) as error:
                    if isinstance(error, ConnectionRefusedError):
                        refused.add(i)
                    continue
                rows |= {row["member"]: row for row in found}
                break
            for i in members:
                silent = "nothing on its host answers"
                alive = False if i in refused else None
                row = {"member": i, "state": None, "seq": -1, "alive": alive, "last": silent, "failure": "", "call": ""}
                rows.setdefault(i, row)
        return [rows[i] for i in sorted(rows)]

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _call_witness(self, file: int) -> None:
        if not hasattr(os, "pidfd_open"):
            return
        row: Any = ledgers.ROW
        plan = {
            "file": file,
            "size": row.itemsize * len(self.local),
            "row": row.itemsize,
            "slots": ledgers.SLOTS,
            "text": ledgers.TEXT,
            "running": RUNNING,
            "finished": FINISHED,
            "fields": {name: row.fields[name][1] for name in ("state", "seq", "at", "texts")},
            "host": host(),
            "pids": [self.records[i]["pid"] for i in self.local],
            "names": [f"rank {self.group.ranks[i]}" for i in self.local],
        }
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", witness.__file__, json.dumps(plan)],
            pass_fds=(file,), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        process.returncode = 0  # it outlives this process, which does not wait for it

    # --- Who is to blame --------------------------------------------------------------------------------------------

    def _called(self, member: int) -> str:
        record = self.records[member]
        return f"rank {self.group.ranks[member]} on {record['host']} (process {record['pid']})"

    def mismatch(self, seq: int) -> str:
        """That members call different things as collective `seq`, and what each calls."""
        calls = [f"rank {self.group.ranks[r['member']]}: {r['call'] or 'not there yet'}" for r in self.everyone(seq)]
        return f"collective {seq} is not the same on all ranks: " + ", ".join(calls)

    def trouble(self, seq: int, everywhere: bool = False) -> str | None:
        """Why collective `seq` cannot be done any more, if that is known on this host already, or everywhere."""
        rows = self.everyone(seq) if everywhere and self.others else self._rows(seq)
        calls = {row["call"].rpartition(" at ")[0] for row in rows} - {""}
        if len(calls) > 1 and seq:
            return self.mismatch(seq)
        for row in rows:
            who, state = self._called(row["member"]), row["state"]
            if row["member"] == self.group.member:
                continue
            if state in (FAILED, TOLD):
                why: str = row["failure"]
                return why if why.startswith("collective ") else f"{who} gave up: {why}"
            if state == FINISHED and row["seq"] < seq:
                return f"{who} has left the group; {row['last']}"
            if state != FINISHED and row["alive"] is False:
                return f"{who} is dead; {row['last']}"
        return None

    def ends(self, how: str) -> str:
        """That this member ends, and what it did last."""
        return f"{self._called(self.group.member)} ends with {how}; {self.ledger.last(self.ledger.mine)}"

    def let_know(self, grace: float) -> None:
        """Waits, at most so many seconds, until the members of this host have told their users that this one failed;
        those of other hosts may ask all the while."""
        self.ledger.told()
        end = time.monotonic() + grace
        while time.monotonic() < end and any(
            self.others or (state in (RUNNING, FAILED) and self.ledger.alive(at))
            for at, state in enumerate(self.ledger.rows["state"].tolist())
        ):
            time.sleep(0.01)

    def late(self, seq: int, call: str, timeout: float) -> str:
        """That collective `seq` took too long, and who has not come to it; of what is none (0) what the others do."""
        lines = []
        for row in self.everyone(seq):
            if seq == 0 and row["member"] != self.group.member:
                lines.append(f"{self._called(row['member'])}: {row['last']}")
            elif row["seq"] < seq:
                lines.append(f"{self._called(row['member'])}: MISSING; {row['last']}")
        head = f"{call} did not end within {timeout:g} s"
        if not lines:
            return f"{head}, although all ranks began it"
        return f"{head}: " + "; ".join(lines)
