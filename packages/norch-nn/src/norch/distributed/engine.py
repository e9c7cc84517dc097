"""The contract between norch.distributed and an engine, which moves tensors between processes. A whole plug-in, whose
entry point in group `norch.distributed` is `mylink = "mylink"`:

from norch.backend import hookimpl
from norch.distributed.engine import Communicator, Engine, Request

class MyLink(Engine):
    name = "mylink"
    def connect(self, ranks, rank, store, timeout): return MyCommunicator(...)

@hookimpl
def norch_engine():
    return MyLink()

Checks, casts, layouts and everything that is made of other collectives are decided before an engine is asked.
`norch conformance --distributed mylink -n 2` tries one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from norch import DType, Tensor

from .store import Store

CONTRACT = (1, 1)
"""Major and minor version. Majors must match; an engine built for an older minor keeps working, since methods and
fields are only ever added, each with a default."""

OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")
"""What a reduction may be asked for: the names of ReduceOp, in lower case."""


class Request:
    """Communication that was started. This one is done."""

    source: int | None = None
    """Of a receipt from anyone: the index of the sender, once it is done."""

    def test(self) -> bool:
        """Whether it is done: never waits, and makes progress. Raises what the engine reports as failed."""
        return True

    def chain(self) -> bool:
        """Lets the device, not the host, wait: work that the current stream is given from now on runs after this.

        False where there are no streams: `test` must then be asked until it is done.
        """
        return False

    def chain_late(self) -> bool:
        """As `chain`, but only work that uses the tensors, or orders streams, need wait. (Since 1.1.)"""
        return self.chain()


DONE = Request()


class Communicator(ABC):
    """The members of one group, counted from 0. A method starts its work and returns; all members call the same ones
    in the same order, those of `exchange` apart.

    Tensors are contiguous, detached and on a device of the engine's; they are kept alive until the request is done.
    """

    def reduces(self, dtype: DType, op: str) -> bool:
        """Whether `op`, one of OPS, is known for `dtype`. What is not is cast: 16-bit floats to float32, bool to uint8;
        "avg" becomes a sum. Nobody asks for the bits of floats, nor for the average of integers."""
        return op != "avg" and dtype.name not in ("float16", "bfloat16", "bool")

    @abstractmethod
    def all_reduce(self, tensor: Tensor, op: str) -> Request:
        """`tensor` becomes the reduction of all members' in each of them: the same bits everywhere."""

    reduces_together: bool = False
    """Whether `all_reduce_together` is there. (Since 1.1.)"""

    def all_reduce_together(self, tensors: Sequence[Tensor], op: str) -> Request:
        """`all_reduce` of each of several tensors of one dtype, where that is faster than to bring them together in
        one before. (Since 1.1.)"""
        raise NotImplementedError

    @abstractmethod
    def broadcast(self, tensor: Tensor, root: int) -> Request:
        """`tensor` becomes that of member `root`."""

    @abstractmethod
    def all_gather(self, out: Tensor, tensor: Tensor) -> Request:
        """`out` (members * n elements) becomes the tensors (n elements) of all members, one after the other."""

    @abstractmethod
    def reduce_scatter(self, out: Tensor, tensor: Tensor, op: str) -> Request:
        """`out` (n elements) becomes this member's part of the reduction of `tensor` (members * n elements)."""

    @abstractmethod
    def exchange(
        self, sends: Sequence[tuple[Tensor, int]], receipts: Sequence[tuple[Tensor, int | None]], tag: int = 0
    ) -> Request:
        """Sends tensors to members and receives from members: pairs meet in order. None receives from anyone, which an
        engine may refuse with NotImplementedError, as it may a `tag` other than 0."""

    def reduce(self, tensor: Tensor, op: str, root: int) -> Request:
        """`tensor` of member `root` becomes the reduction; that of others may become anything."""
        return self.all_reduce(tensor, op)

    def blocked(self) -> float:
        """Seconds that a call of this communicator has not come back for, asked by another thread; 0.0 where there is
        none."""
        return 0.0

    def abort(self) -> None:
        """Gives up what was started, since a member is gone: never waits for anyone. Nothing is asked after it."""
        return None

    def close(self) -> None:
        """Frees what the group holds; all members call it, with nothing under way."""
        return None


class Engine(ABC):
    """A way for processes to exchange tensors. Subclass it and return an instance from the hook `norch_engine`."""

    name: str
    """The name of its entry point, by which `init_process_group` asks for it."""

    contract: tuple[int, int] = CONTRACT

    device_types: frozenset[str] = frozenset({"cpu"})
    """On which devices tensors may lie."""

    launcher: tuple[str, ...] = ()
    """The command that starts processes, given -n and their number; none where variables say which process is which
    (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)."""

    priority: int = 0
    """Of several engines for a device type the highest is taken where the user names none."""

    def unusable_reason(self) -> str | None:
        """Why it cannot be used here, and what would change that; None where it can."""
        return None

    def bootstrap(self, timeout: float) -> Store | None:
        """Where its own launcher started this process: a store that all of its processes share, made with the means of
        that launcher within `timeout` seconds; None else. It is asked where no address of a store was given."""
        return None

    @abstractmethod
    def connect(self, ranks: Sequence[int], rank: int, store: Store, timeout: float) -> Communicator:
        """The group of the processes `ranks` (positions in the whole job, ascending), of which this is number `rank` of
        the job. All of them call it; `store` is theirs alone, `timeout` in seconds. Raises DistributedError for a
        member that does not come."""
