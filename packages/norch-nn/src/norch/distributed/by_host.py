"""Communication of devices that no engine knows: their tensors are copied to the CPU, moved by its engine, and back."""

from __future__ import annotations

from collections.abc import Sequence

import norch
from norch import DType, Tensor

from .engine import Communicator, Request


class _Copied(Request):
    """A request on copies. Once it is done, what they have become is copied back to the device."""

    def __init__(self, request: Request, results: Sequence[tuple[Tensor, Tensor]], *given: Tensor) -> None:
        self.request, self.results, self.given = request, results, given

    def test(self) -> bool:
        if not self.request.test():
            return False
        for tensor, copy in self.results:
            tensor.copy_(copy)
        self.results, self.source = (), self.request.source
        return True


def _like(tensor: Tensor) -> Tensor:
    return norch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")


class ByHost(Communicator):
    """What `comm`, of the CPU, does, for tensors on other devices."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm

    def reduces(self, dtype: DType, op: str) -> bool:
        return self.comm.reduces(dtype, op)

    def all_reduce(self, tensor: Tensor, op: str) -> Request:
        copy = tensor.cpu()
        return _Copied(self.comm.all_reduce(copy, op), [(tensor, copy)])

    def reduce(self, tensor: Tensor, op: str, root: int) -> Request:
        copy = tensor.cpu()
        return _Copied(self.comm.reduce(copy, op, root), [(tensor, copy)])

    def broadcast(self, tensor: Tensor, root: int) -> Request:
        copy = tensor.cpu()
        return _Copied(self.comm.broadcast(copy, root), [(tensor, copy)])

    def all_gather(self, out: Tensor, tensor: Tensor) -> Request:
        copy, given = _like(out), tensor.cpu()
        return _Copied(self.comm.all_gather(copy, given), [(out, copy)], given)

    def reduce_scatter(self, out: Tensor, tensor: Tensor, op: str) -> Request:
        copy, given = _like(out), tensor.cpu()
        return _Copied(self.comm.reduce_scatter(copy, given, op), [(out, copy)], given)

    def exchange(
        self, sends: Sequence[tuple[Tensor, int]], receipts: Sequence[tuple[Tensor, int | None]], tag: int = 0
    ) -> Request:
        given = [(tensor.cpu(), peer) for tensor, peer in sends]
        into = [(_like(tensor), peer) for tensor, peer in receipts]
        request = self.comm.exchange(given, into, tag)
        results = [(tensor, copy) for (tensor, _), (copy, _) in zip(receipts, into, strict=True)]
        return _Copied(request, results, *[copy for copy, _ in given])
