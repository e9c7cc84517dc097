"""Groups of processes, and how one of their collectives is begun, checked, waited for and given up."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import norch
from norch.backend import unseen
from norch.source_lines import here

from .by_host import ByHost
from .engine import Communicator, Engine, Request
from .engines import is_known
from .errors import DistributedError
from .futures import Future
from .members import Members
from .store import PrefixStore, Store, seconds
from .watchdog import Watchdog

SPINS = 64
"""How often a request is asked before anyone else gets the processor."""

PAUSE = 2e-5
"""Seconds that a waiting process sleeps between two looks, after Options.spin."""

LOOK = 0.05
"""Seconds between two looks at how the other members are."""

ASK = 0.5
"""Seconds after which a waiting member asks those on other hosts, and again after ten times as many."""

_yield = getattr(os, "sched_yield", lambda: time.sleep(0))


class Options:
    """check: whether members compare what they call (NORCH_DISTRIBUTED_CHECK=0 does not).

    spin: seconds that a waiting process looks without a pause; none where processes are more than processors.
    """

    check = os.environ.get("NORCH_DISTRIBUTED_CHECK", "1") != "0"
    spin = 0.003


def caller() -> str:
    """File and line of the nearest caller outside of norch."""
    return str(here() or "the end of the program")


class Work:
    """A collective under way. `wait()` before its tensors are used.

    call: what it is, in words; request: its engine's; finish: what is done at its end; kept: what must live till then;
    alone: whether only some of `group` take part.
    """

    __slots__ = ("call", "deadline", "finish", "group", "kept", "request", "seq")

    def __init__(
        self,
        group: ProcessGroup,
        request: Request,
        call: str,
        finish: Callable[[], Any] | None,
        kept: Any,
        alone: bool = False,
    ) -> None:
        self.group, self.request, self.call, self.finish, self.kept = group, request, call, finish, kept
        self.seq = 0 if alone else group.seq
        self.deadline = time.monotonic() + group.timeout

    def wait(self, timeout: Any = None) -> bool:
        """Returns when the tensors hold the result, as far as the current stream's work is concerned.

        Raises DistributedError, naming who is missing, after the group's timeout (or `timeout`, given likewise).
        """
        if self.kept is not None:
            if timeout is not None:
                self.deadline = time.monotonic() + seconds(timeout)
            self._wait(self.request.chain)
        return True

    def wait_late(self) -> None:
        """As `wait`, but a stream waits when it first uses the tensors: what it is given before runs meanwhile."""
        if self.kept is not None:
            self._wait(self.request.chain_late)

    def _wait(self, chain: Callable[[], bool]) -> None:
        if chain():
            self.group.watch(self.request, self.seq, self.call)
        else:
            self.group.wait_for(self.request, self.seq, self.call, self.deadline)
        self._done()

    def _done(self) -> None:
        finish, self.finish = self.finish, None
        if finish is not None:
            finish()
        self.kept = None

    def is_completed(self) -> bool:
        """Whether it is done. Never waits."""
        if self.kept is not None and self.request.test():
            self.wait()
        return self.kept is None

    def is_success(self) -> bool:
        """Whether it ended without an error."""
        return self.is_completed()

    def source_rank(self) -> int:
        """Of a receipt from anyone, once it is done: the rank of the sender. Raises ValueError before."""
        source = self.request.source
        if source is None:
            raise ValueError("source_rank(): only a receipt that is done has a source")
        return self.group.ranks[source]

    def result(self) -> Any:
        """The tensors that the collective was given."""
        return self.kept

    def get_future(self) -> Future[Any]:
        """A future of the list of the tensors that the collective was given."""
        kept = self.kept
        tensors = [kept] if isinstance(kept, norch.Tensor) else kept

        def make() -> Any:
            self.wait()
            return tensors

        return Future.later(make, self.is_completed)


class ProcessGroup:
    """Some of the processes of the job. `ranks` are theirs in the job, ascending; members count from 0: this is member
    `rank`. `name` is its own in `store`, by which members meet.

    timeout: seconds that a collective may take. engines: by device type.
    """

    def __init__(
        self, name: str, ranks: Sequence[int], rank: int, engines: Mapping[str, Engine], store: Store, timeout: float
    ) -> None:
        self.group_name, self.ranks, self.engines, self.timeout = name, tuple(ranks), dict(engines), timeout
        self.global_rank, self.member = rank, self.ranks.index(rank)
        self.store = PrefixStore(name, store)
        self.seq = 0
        self.failed: str | None = None
        self.closed = False
        self.comms: dict[str, Communicator] = {}
        self.members: Members | None = None
        self.watchdog: Watchdog | None = None

    # --- What PyTorch's have ----------------------------------------------------------------------------------------

    def rank(self) -> int:
        """Which member this process is, from 0."""
        return self.member

    def size(self) -> int:
        """How many members there are."""
        return len(self.ranks)

    def name(self) -> str:
        """What its engines are called, as "mpi" or "mpi,nccl"."""
        return ",".join(sorted({engine.name for engine in self.engines.values()}))

    def __deepcopy__(self, memo: dict[int, Any]) -> ProcessGroup:
        return self  # a copy of a model talks to the same processes

    def __repr__(self) -> str:
        return f"<norch.distributed.ProcessGroup {self.group_name!r}: {self.name()}, ranks {list(self.ranks)}>"

    # --- Engines ----------------------------------------------------------------------------------------------------

    def comm(self, kind: str) -> Communicator:
        """The communicator for a device type (`kind`), made when it is first asked for: by all members."""
        found = self.comms.get(kind)
        return self.connect(kind) if found is None else found

    def connect(self, kind: str) -> Communicator:
        """Connects the members for tensors on a device type (`kind`), and shows them to each other.

        A device that no installed engine is for goes by way of the CPU's. Raises DistributedError where they do not
        come in time.
        """
        self.alive()
        engine = self.engines.get(kind)
        if engine is None and "cpu" in self.engines and not is_known(kind):
            self.comms[kind] = by_host = ByHost(self.comm("cpu"))
            return by_host
        if engine is None:
            have = ", ".join(f"{e.name} for {k!r}" for k, e in sorted(self.engines.items()))
            raise DistributedError(
                f"no engine of this group moves tensors on {kind!r}; it has {have}. Engines are named as in "
                "init_process_group('cpu:mpi,cuda:nccl')"
            )
        for other, comm in self.comms.items():
            if self.engines[other] is engine:
                self.comms[kind] = comm
                return comm
        comm = engine.connect(self.ranks, self.global_rank, PrefixStore(engine.name, self.store), self.timeout)
        self.comms[kind] = comm
        if self.members is None:
            self.members = Members(self, comm, kind)
        if kind != "cpu" and self.watchdog is None:
            self.watchdog = Watchdog(self)
        return comm

    # --- Calls ------------------------------------------------------------------------------------------------------

    def begin(self, call: str) -> None:
        """Counts and notes a collective, `call` in words. Raises DistributedError where another member calls something
        else as it.

        Members on one host see what each other calls; those of several ask by a small reduction before each collective
        on the CPU, and where there is none when they have waited for ASK seconds.
        """
        if self.failed is not None or self.closed:
            self.alive()
        self._tell(call)
        self.seq = seq = self.seq + 1
        ledger = self.members.ledger  # type: ignore[union-attr]
        key = ledger.note(seq, call, caller())
        if Options.check:
            members: Any = self.members
            if not ledger.agrees(seq, key) or (
                members.others and "cpu" in self.comms and not self._same(seq, key, call)
            ):
                raise self.give_up(members.mismatch(seq))

    def _same(self, seq: int, key: int, call: str) -> bool:
        """Whether the members of all hosts have the same key."""
        keys = norch.tensor([key, -key])
        self.wait_for(self.comms["cpu"].all_reduce(keys, "max"), seq, call, None)
        return int(keys[0]) == key == -int(keys[1])

    def begin_alone(self, call: str) -> None:
        """Notes what only some members take part in, `call` in words."""
        self.alive()
        self._tell(call)
        self.members.ledger.note_alone(call, caller())  # type: ignore[union-attr]

    def _tell(self, call: str) -> None:
        """Tells a step that is being recorded: of an engine's work it sees nothing, and a replay would leave it out."""
        if self.size() > 1:
            for tell in unseen:
                tell(call)

    def alive(self) -> None:
        """Raises DistributedError where the group was destroyed, or a member has failed."""
        if self.failed is not None:
            raise DistributedError(f"this group has failed before: {self.failed}")
        if self.closed:
            raise DistributedError("this group was destroyed by destroy_process_group()")

    def end(
        self,
        call: str,
        request: Request,
        finish: Callable[[], Any] | None,
        kept: Any,
        async_op: bool,
        alone: bool = False,
    ) -> Work | None:
        """Waits for what was begun, or returns the Work that will. alone: not all members take part.

        call: what was begun, in words, and its engine's `request`; finish: what is then to be done; kept: what must
        live till then.
        """
        if async_op:
            return Work(self, request, call, finish, kept, alone)
        if request.chain():
            self.watch(request, 0 if alone else self.seq, call)
        else:
            self.wait_for(request, 0 if alone else self.seq, call, None)
        if finish is not None:
            finish()
        return None

    def barrier(self, async_op: bool) -> Work | None:
        """Waits until all members have come to it, or returns a Work that does."""
        kind = next(iter(self.comms), None) or next(iter(self.engines))
        comm = self.comm(kind)
        self.begin("barrier")
        mark = norch.zeros(1, dtype=norch.int32, device=kind)
        request = comm.all_reduce(mark, "sum")
        if async_op:
            return Work(self, request, "barrier", None, mark)
        self.wait_for(request, self.seq, "barrier", None)
        return None

    def wait_for(self, request: Request, seq: int, call: str, deadline: float | None) -> None:
        """Returns when `request` is done, of collective number `seq`, `call` in words, at the `deadline` at the latest;
        raises as soon as it is known that it cannot be.
        """
        test = request.test
        for _ in range(SPINS):
            if test():
                return
        begun = time.monotonic()
        if deadline is None:
            deadline = begun + self.timeout
        look, ask = begun + LOOK, begun + ASK
        while not test():
            now = time.monotonic()
            if now > look:
                look = now + LOOK
                trouble = self.members.trouble(seq, now > ask) if self.members is not None else None
                ask = ask if now < ask else now + 10 * ASK
                if trouble is not None:
                    raise self.give_up(trouble)
                if now > deadline:
                    raise self.give_up(self.late(seq, call))
            if now - begun > Options.spin:
                time.sleep(PAUSE)
            else:
                _yield()

    def watch(self, request: Request, seq: int, call: str) -> None:
        """Leaves it to a thread to see that `request` ends (of collective number `seq`, `call` in words), which the
        device waits for and the host does not.
        """
        if self.watchdog is not None:
            self.watchdog.latest = (request, seq, call, time.monotonic())

    def late(self, seq: int, call: str) -> str:
        """That a collective, number `seq`, `call` in words, took too long, and who has not come to it."""
        if self.members is None:
            return f"{call} took over {self.timeout:g} s"
        return self.members.late(seq, call, self.timeout)

    def give_up(self, why: str) -> DistributedError:
        """From now on this group refuses everything, and the other members learn why."""
        self.failed = why
        if self.members is not None:
            self.members.ledger.fail(why)
        for comm in set(self.comms.values()):
            comm.abort()
        return DistributedError(why)

    def close(self) -> None:
        """Frees what the group holds; all members call it."""
        if not self.closed and self.failed is None:
            if self.members is not None:
                self.members.ledger.finish()
                self.members.close()
            for comm in set(self.comms.values()):
                comm.close()
        self.closed = True
        self.comms.clear()
