"""The engine "nccl" of norch.distributed: NVIDIA's NCCL for tensors on GPUs, opened when it is first asked for.

Collectives run on a stream of their group's own, which waits for the current stream; `Request.chain` makes the current
stream wait for them. The host waits for nothing but members that a group's first collective of a kind connects to.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from norch.backend import hookimpl
from norch.distributed.engine import DONE, Communicator, Engine, Request
from norch.distributed.errors import DistributedError

from . import _ext

if TYPE_CHECKING:
    from norch import DType, Tensor
    from norch.distributed.store import Store

# ncclDataType_t and ncclRedOp_t
_TYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "int64": 4, "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
_OPS = {"sum": 0, "product": 1, "max": 2, "min": 3, "avg": 4}

ABORT_SECONDS = 2.0
"""How long `abort` waits for NCCL to give up what is under way."""

GRACE = 2.0
"""How much longer than the timeout members wait for the first one to say who is missing, in seconds."""

GUARD = 1.0
"""How long after the timeout NCCL itself is told to give up, where Python could not."""

T = TypeVar("T")


def _within(seconds: float, work: Callable[[], T]) -> T:
    """What `work` returns. Where that takes longer it raises TimeoutError and leaves `work` to a thread."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, name="norch.distributed.nccl", daemon=True).start()
    return future.result(seconds)


def _call(work: Callable[..., T], *args: Any) -> T:
    try:
        return work(*args)
    except RuntimeError as error:
        raise DistributedError(f"nccl: {error}") from None


class NCCLRequest(Request):
    def __init__(self, work: Any) -> None:
        self._work = work

    def test(self) -> bool:
        return bool(_call(self._work.test))

    def chain(self) -> bool:
        _call(self._work.chain)
        return True

    def chain_late(self) -> bool:
        _call(self._work.chain_late)
        return True


def _bytes(tensor: Tensor) -> tuple[Any, int, int]:
    """Buffer, offset and size of what is only moved, in bytes."""
    size = tensor.dtype.itemsize
    return tensor.buffer, tensor.offset * size, tensor.numel() * size


class NCCLCommunicator(Communicator):
    reduces_together = True

    def __init__(self, native: Any, size: int, timeout: float) -> None:
        self._native, self._size, self._timeout = native, size, timeout

    def reduces(self, dtype: DType, op: str) -> bool:
        return dtype.name in _TYPES and op in _OPS and (op != "avg" or dtype.is_floating_point)

    def all_reduce(self, tensor: Tensor, op: str) -> Request:
        if not (count := tensor.numel()):
            return DONE
        kind = _TYPES[tensor.dtype.name]
        return NCCLRequest(_call(self._native.all_reduce, tensor.buffer, tensor.offset, count, kind, _OPS[op]))

    def all_reduce_together(self, tensors: Sequence[Tensor], op: str) -> Request:
        parts = [(t.buffer, t.offset, count) for t in tensors if (count := t.numel())]
        if not parts:
            return DONE
        return NCCLRequest(_call(self._native.all_reduce_together, parts, _TYPES[tensors[0].dtype.name], _OPS[op]))

    def reduce(self, tensor: Tensor, op: str, root: int) -> Request:
        if not (count := tensor.numel()):
            return DONE
        kind = _TYPES[tensor.dtype.name]
        return NCCLRequest(_call(self._native.reduce, tensor.buffer, tensor.offset, count, kind, _OPS[op], root))

    def broadcast(self, tensor: Tensor, root: int) -> Request:
        if not tensor.numel():
            return DONE
        return NCCLRequest(_call(self._native.broadcast, *_bytes(tensor), root))

    def all_gather(self, out: Tensor, tensor: Tensor) -> Request:
        if not tensor.numel():
            return DONE
        return NCCLRequest(_call(self._native.all_gather, *_bytes(out)[:2], *_bytes(tensor), self._size))

    def reduce_scatter(self, out: Tensor, tensor: Tensor, op: str) -> Request:
        if not (count := out.numel()):
            return DONE
        operands = (out.buffer, out.offset, tensor.buffer, tensor.offset, count, self._size)
        return NCCLRequest(
            _call(self._native.reduce_scatter, *operands, _TYPES[tensor.dtype.name], _OPS[op]),
        )

    def exchange(
        self, sends: Sequence[tuple[Tensor, int]], receipts: Sequence[tuple[Tensor, int | None]], tag: int = 0
    ) -> Request:
        if tag:
            raise NotImplementedError("nccl: messages have no tags; pairs of send and recv meet in order")
        if any(peer is None for _, peer in receipts):
            raise NotImplementedError("nccl: recv() needs the rank that it receives from")
        out = [(*_bytes(tensor), peer) for tensor, peer in sends if tensor.numel()]
        into = [(*_bytes(tensor), peer) for tensor, peer in receipts if tensor.numel()]
        return NCCLRequest(_call(self._native.exchange, out, into)) if out or into else DONE

    def blocked(self) -> float:
        return float(self._native.blocked())

    def abort(self) -> None:
        try:
            _within(ABORT_SECONDS, self._native.abort)
        except TimeoutError:
            return

    def close(self) -> None:
        try:
            _call(_within, self._timeout, self._native.close)
        except TimeoutError:
            raise DistributedError(
                f"nccl: the group did not end within {self._timeout:g} s: do all of its members close it, and is no "
                "graph alive in which its collectives were recorded?"
            ) from None


class NCCL(Engine):
    name = "nccl"
    device_types = frozenset({"cuda"})
    priority = 10

    def unusable_reason(self) -> str | None:
        if reason := _ext.unusable_reason():
            return str(reason)
        try:
            _ext.nccl_version()
        except RuntimeError as error:
            return str(error)
        return None

    def connect(self, ranks: Sequence[int], rank: int, store: Store, timeout: float) -> Communicator:
        deadline = time.monotonic() + timeout
        device, size = _ext.current_device(), len(ranks)
        properties = _ext.properties(device)
        where = f"cuda:{device} ({properties['name']}) of {socket.gethostname()}"
        index = ranks.index(rank)
        store.set(f"nccl/{index}", json.dumps([properties["uuid"], where]))
        if index == 0:
            # One member looks at all of them, the others at its answer alone.
            problem = _find_problem(ranks, store, deadline, timeout)
            store.set("nccl/id", b"!" + problem.encode() if problem else b"=" + _call(_ext.nccl_unique_id))
        try:
            answer = store.get("nccl/id", max(deadline - time.monotonic(), 0) + GRACE)
        except DistributedError as error:
            if store.look("nccl/0") is None:
                problem = f"nccl: rank {ranks[0]} did not come within {timeout:g} s"
                raise DistributedError(problem) from error
            raise
        if answer.startswith(b"!"):
            raise DistributedError(answer[1:].decode())
        try:
            seconds = max(deadline - time.monotonic(), 1.0)
            limit = timeout + GUARD
            native = _call(_within, seconds, lambda: _ext.NcclCommunicator(device, size, index, answer[1:], limit))
        except TimeoutError:
            raise DistributedError(
                f"nccl: rank {rank} on {where}: all of the ranks {', '.join(map(str, ranks))} came, but NCCL did not "
                f"connect them within {timeout:g} s; NCCL_DEBUG=INFO shows what it tries"
            ) from None
        return NCCLCommunicator(native, size, timeout)


def _find_problem(ranks: Sequence[int], store: Store, deadline: float, timeout: float) -> str:
    """Who is missing, or which two share a GPU; nothing where all is well."""
    missing: list[int] = []
    seen: dict[str, int] = {}
    for index, rank in enumerate(ranks):
        try:
            answer = store.get(f"nccl/{index}", max(deadline - time.monotonic(), 0.001))
        except DistributedError:
            missing.append(rank)
            continue
        uuid, where = json.loads(answer)
        if uuid in seen:
            return (
                f"nccl: ranks {seen[uuid]} and {rank} both use {where}, and NCCL needs a GPU for each of its own; call "
                "norch.cuda.set_device(local_rank) before init_process_group(), and start at most one process a GPU"
            )
        seen[uuid] = rank
    if not missing:
        return ""
    names = ("rank " if len(missing) == 1 else "ranks ") + ", ".join(map(str, missing))
    return f"nccl: {names} of {len(ranks)} did not come within {timeout:g} s"


@hookimpl
def norch_engine() -> NCCL:
    return NCCL()
