"""Sees that what only a device waits for does end: a thread for each group whose engine has streams."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

from .engine import Request
from .errors import DistributedError

if TYPE_CHECKING:
    from .process_group import ProcessGroup

LOOK = 0.1
"""Seconds between two looks."""

PATIENCE = 0.5
"""Seconds that a call may take before it is asked who is to blame."""


class Watchdog:
    """Gives a group up where a member is dead or has failed, or the timeout passes. It says so on stderr, as nobody may
    be waiting in Python; the engine's abort ends what the device waits for.

    latest: the newest request that was chained, with its collective's number and text and when that was. Collectives
    of a group end in their order, so one at a time is watched.
    """

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group
        self.latest: tuple[Request, int, str, float] | None = None
        self._watched: tuple[Request, int, str, float] | None = None
        threading.Thread(target=self._run, name="norch.distributed.watchdog", daemon=True).start()

    def _run(self) -> None:
        group = self.group
        while group.failed is None and not group.closed:
            time.sleep(LOOK)
            why = self._find_trouble()
            if why is not None and group.failed is None and not group.closed:
                sys.stderr.write(f"norch.distributed: rank {group.global_rank}: {why}\n")
                sys.stderr.flush()
                group.give_up(why)

    def _find_trouble(self) -> str | None:
        group = self.group
        blocked = max((comm.blocked() for comm in list(group.comms.values())), default=0.0)
        if blocked > PATIENCE:
            ledger = group.members.ledger if group.members is not None else None
            call = ledger.call(ledger.mine, group.seq) if ledger is not None else None
            return self._blame(group.seq, call or "a call", blocked)
        if self._watched is None:
            self._watched, self.latest = self.latest, None
        if self._watched is None:
            return None
        request, seq, call, begun = self._watched
        seconds = time.monotonic() - begun
        try:
            if request.test():
                self._watched = None
                return None
        except DistributedError as error:
            return self._blame(seq, call, seconds) or str(error)
        return self._blame(seq, call, seconds)

    def _blame(self, seq: int, call: str, seconds: float) -> str | None:
        trouble = self.group.members.trouble(seq) if self.group.members is not None else None
        return self.group.late(seq, call) if trouble is None and seconds > self.group.timeout else trouble
