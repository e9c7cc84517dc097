"""The engine of a job or a group of one process, where that of the CPU is not installed: nothing has to be moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from norch import DType, Tensor

from .engine import DONE, Communicator, Engine, Request
from .errors import DistributedError
from .store import Store


class _Receipts(Request):
    """What a process is to get from itself, where that has not been sent yet."""

    def __init__(self, comm: _Alone, waiting: list[tuple[int, Tensor]]) -> None:
        self.comm, self.waiting, self.source = comm, waiting, 0

    def test(self) -> bool:
        while self.waiting:
            tag, into = self.waiting[0]
            sent = self.comm.sent.get(tag)
            if not sent:
                return False
            into.copy_(sent.pop(0))
            del self.waiting[0]
        return True


class _Alone(Communicator):
    def __init__(self) -> None:
        self.sent: dict[int, list[Tensor]] = {}

    def reduces(self, dtype: DType, op: str) -> bool:
        return True

    def all_reduce(self, tensor: Tensor, op: str) -> Request:
        return DONE

    broadcast: Any = all_reduce

    def all_gather(self, out: Tensor, tensor: Tensor) -> Request:
        out.copy_(tensor.reshape(out.shape))
        return DONE

    def reduce_scatter(self, out: Tensor, tensor: Tensor, op: str) -> Request:
        return self.all_gather(out, tensor)

    def exchange(
        self, sends: Sequence[tuple[Tensor, int]], receipts: Sequence[tuple[Tensor, int | None]], tag: int = 0
    ) -> Request:
        self.sent.setdefault(tag, []).extend(tensor.clone() for tensor, _ in sends)
        return _Receipts(self, [(tag, into) for into, _ in receipts]) if receipts else DONE


class Alone(Engine):
    """A process by itself. It is no plug-in: `init_process_group` takes it where nothing else can be used."""

    name = "alone"

    def connect(self, ranks: Sequence[int], rank: int, store: Store, timeout: float) -> Communicator:
        if len(ranks) != 1:
            raise DistributedError(f"engine 'alone' is for one process, not {len(ranks)}; pip install norch-nn[mpi]")
        return _Alone()


ALONE = Alone()
