"""The cases: what the contract says of a Communicator, against NumPy."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import norch
from norch import Tensor

from ..engine import OPS, Communicator, Engine, Request
from ..store import PrefixStore, Store

CASES: dict[str, Callable[[Kit], None]] = {}

AT_ONCE = 0.25
"""Seconds within which what must not wait returns."""

_FOLD: dict[str, Any] = {
    "sum": lambda x: np.sum(x, axis=0, dtype=x[0].dtype),
    "avg": lambda x: np.sum(x, axis=0, dtype=x[0].dtype) / len(x),
    "product": lambda x: np.prod(x, axis=0, dtype=x[0].dtype),
    "min": lambda x: np.min(x, axis=0),
    "max": lambda x: np.max(x, axis=0),
    "band": np.bitwise_and.reduce,
    "bor": np.bitwise_or.reduce,
    "bxor": np.bitwise_xor.reduce,
}
_DTYPES = (
    norch.float32, norch.float64, norch.float16, norch.bfloat16, norch.uint8, norch.int8, norch.int16, norch.int32,
    norch.int64, norch.bool,
)  # fmt: skip
SIZES = (0, 1, 7, 1000, 300_001)


class Failed(Exception):
    """What the contract says and did not come."""


class Kit:
    """What a case has: the engine, its communicator of all processes, and which one this is."""

    def __init__(self, engine: Engine, rank: int, size: int, store: Store, limit: float) -> None:
        self.engine, self.rank, self.size, self.store, self.limit = engine, rank, size, store, limit
        self.kind = sorted(engine.device_types)[0]
        self.made: Communicator | None = None

    @property
    def comm(self) -> Communicator:
        if self.made is None:
            raise Failed("connect() did not work")
        return self.made

    def wait(self, *requests: Request) -> None:
        """Returns when all are done, asked in turn."""
        end = time.monotonic() + self.limit
        left = list(requests)
        while left:
            left = [r for r in left if not r.test()]
            if left and time.monotonic() > end:
                raise Failed(f"hangs: a request was not done after {self.limit:g} s")
            if left:
                time.sleep(1e-5)

    def values(self, n: int, dtype: norch.DType, seed: int = 0) -> list[np.ndarray]:
        """Values of all members, whose sums and products of four are exact in any dtype."""
        draws = [np.random.default_rng([seed, member]) for member in range(self.size)]
        if dtype is norch.bool:
            return [d.integers(0, 2, n).astype(bool) for d in draws]
        if dtype.is_floating_point:
            return [(d.integers(1, 5, n) / 2).astype("float64") for d in draws]
        return [d.integers(1, 4, n).astype(dtype.name) for d in draws]

    def tensor(self, values: np.ndarray, dtype: norch.DType) -> Tensor:
        return norch.tensor(values).to(dtype).to(self.kind)

    def same(self, got: Tensor, wanted: np.ndarray, what: str) -> None:
        host = got.cpu()
        have = host.double().numpy() if host.dtype.is_floating_point else host.numpy()
        if not np.array_equal(have.reshape(-1), wanted.astype(have.dtype).reshape(-1)):
            raise Failed(
                f"{what}: got {have.reshape(-1)[:6].tolist()}..., expected {wanted.reshape(-1)[:6].tolist()}..."
            )

    def reductions(self) -> Iterator[tuple[norch.DType, str]]:
        """What the communicator may be asked for and says that it reduces."""
        for dtype, op in itertools.product(_DTYPES, OPS):
            asked = op not in ("band", "bor", "bxor") if dtype.is_floating_point else op != "avg"
            if asked and self.comm.reduces(dtype, op):
                yield dtype, op


def case(work: Callable[[Kit], None]) -> Callable[[Kit], None]:
    CASES[(work.__doc__ or work.__name__).partition("\n")[0].rstrip(".")] = work
    return work


@case
def connects(kit: Kit) -> None:
    """connect() returns a communicator in every process."""
    store = PrefixStore("all", kit.store)
    kit.made = kit.engine.connect(range(kit.size), kit.rank, store, kit.limit)


@case
def reduces_what_it_must(kit: Kit) -> None:
    """float32 and float64 have sum, product, min and max, integers of 8 and 64 bits too."""
    for dtype, op in itertools.product(
        (norch.float32, norch.float64, norch.uint8, norch.int64, norch.int32), ("sum", "product", "min", "max")
    ):
        if not kit.comm.reduces(dtype, op):
            raise Failed(f"reduces({dtype}, {op!r}) is False")


@case
def all_reduce(kit: Kit) -> None:
    """all_reduce computes every op and dtype that it says it has."""
    for dtype, op in kit.reductions():
        values = kit.values(13, dtype)
        x = kit.tensor(values[kit.rank], dtype)
        kit.wait(kit.comm.all_reduce(x, op))
        kit.same(x, _FOLD[op](values), f"{op} of {dtype}")


@case
def all_reduce_sizes(kit: Kit) -> None:
    """all_reduce of no elements, of one and of many, and of a part of a buffer."""
    for n in SIZES:
        values = kit.values(n + 3, norch.float32, n)
        whole = kit.tensor(values[kit.rank], norch.float32)
        kit.wait(kit.comm.all_reduce(whole[3:], "sum"))
        wanted = np.concatenate([values[kit.rank][:3], np.sum(values, axis=0)[3:]])
        kit.same(whole, wanted, f"{n} elements, 3 behind the start of a buffer")


@case
def all_reduce_same_bits(kit: Kit) -> None:
    """all_reduce gives the same bits to all members, whatever the order of its sums."""
    draw = np.random.default_rng(kit.rank)
    x = kit.tensor(draw.normal(size=100_003) * 10.0 ** draw.integers(-6, 7, 100_003), norch.float32)
    kit.wait(kit.comm.all_reduce(x, "sum"))
    out = norch.empty(kit.size * x.numel(), device=kit.kind)
    kit.wait(kit.comm.all_gather(out, x))
    parts = out.cpu().numpy().reshape(kit.size, -1).view(np.int32)
    if (parts != parts[0]).any():
        raise Failed("members have different bits")


@case
def all_reduce_together(kit: Kit) -> None:
    """all_reduce_together, where it is there, reduces each of several tensors."""
    if not kit.comm.reduces_together:
        return
    sizes = (7, 0, 300_001, 1000)
    for op in ("sum", "max"):
        tensors = [norch.arange(n, device=kit.kind, dtype=norch.float32) % 5 + kit.rank for n in sizes]
        kit.wait(kit.comm.all_reduce_together(tensors, op))
        for n, x in zip(sizes, tensors, strict=True):
            every = [(np.arange(n) % 5 + r).astype("float32") for r in range(kit.size)]
            kit.same(x, _FOLD[op](every), f"{op} of {n} elements, one of several")


@case
def broadcast(kit: Kit) -> None:
    """broadcast copies from any member, of every dtype."""
    for dtype, root, n in itertools.product(_DTYPES, range(kit.size), (0, 5, 70_001)):
        values = kit.values(n, dtype, 1)
        x = kit.tensor(values[kit.rank], dtype)
        kit.wait(kit.comm.broadcast(x, root))
        kit.same(x, values[root], f"{n} of {dtype} from {root}")


@case
def all_gather(kit: Kit) -> None:
    """all_gather joins what all members have, of every dtype."""
    for dtype, n in itertools.product(_DTYPES, (0, 5, 70_001)):
        values = kit.values(n, dtype, 2)
        out = norch.zeros(kit.size * n, dtype=dtype, device=kit.kind)
        kit.wait(kit.comm.all_gather(out, kit.tensor(values[kit.rank], dtype)))
        kit.same(out, np.concatenate(values), f"{n} of {dtype}")


@case
def reduce_scatter(kit: Kit) -> None:
    """reduce_scatter gives each member its part of the reduction."""
    for dtype, op in kit.reductions():
        values = kit.values(kit.size * 9, dtype, 3)
        out = norch.zeros(9, dtype=dtype, device=kit.kind)
        kit.wait(kit.comm.reduce_scatter(out, kit.tensor(values[kit.rank], dtype), op))
        kit.same(out, _FOLD[op](values)[9 * kit.rank : 9 * kit.rank + 9], f"{op} of {dtype}")


@case
def reduce(kit: Kit) -> None:
    """reduce gives the reduction to the member that is named."""
    for root in range(kit.size):
        values = kit.values(11, norch.float64, 4)
        x = kit.tensor(values[kit.rank], norch.float64)
        kit.wait(kit.comm.reduce(x, "sum", root))
        if kit.rank == root:
            kit.same(x, np.sum(values, axis=0), f"to {root}")


@case
def exchange_ring(kit: Kit) -> None:
    """exchange: all send to the next and receive from the one before, at once, little and much."""
    after, before = (kit.rank + 1) % kit.size, (kit.rank - 1) % kit.size
    for n in (0, 3, 1_000_001):
        x = norch.full((n,), kit.rank + 1.0, device=kit.kind)
        y = norch.zeros(n, device=kit.kind)
        kit.wait(kit.comm.exchange([(x, after)], [(y, before)]))
        kit.same(y, np.full(n, before + 1.0), f"{n} elements")


@case
def exchange_pairs_meet_in_order(kit: Kit) -> None:
    """exchange: several messages between two members meet in the order of their lists."""
    after, before = (kit.rank + 1) % kit.size, (kit.rank - 1) % kit.size
    sends = [(norch.full((i + 1,), 10.0 * kit.rank + i, device=kit.kind), after) for i in range(6)]
    receipts = [(norch.zeros(i + 1, device=kit.kind), before) for i in range(6)]
    kit.wait(kit.comm.exchange(sends, receipts))
    for i, (y, _) in enumerate(receipts):
        kit.same(y, np.full(i + 1, 10.0 * before + i), f"message {i}")


@case
def exchange_alone(kit: Kit) -> None:
    """exchange: two members talk while the others do not take part, and one waits for a late one."""
    if kit.rank == 0:
        y = norch.zeros(4, dtype=norch.int64, device=kit.kind)
        begin = time.monotonic()
        request = kit.comm.exchange([], [(y, kit.size - 1)])
        request.test()
        if time.monotonic() - begin > AT_ONCE:
            raise Failed("exchange() or test() waited for the other member")
        kit.wait(request)
        kit.same(y, np.arange(4), "late message")
    elif kit.rank == kit.size - 1:
        time.sleep(2 * AT_ONCE)
        kit.wait(kit.comm.exchange([(norch.arange(4, device=kit.kind), 0)], []))


@case
def several_under_way(kit: Kit) -> None:
    """Many collectives under way are done in any order of asking."""
    tensors = [norch.full((50_000 if i % 3 else 5,), float(i), device=kit.kind) for i in range(20)]
    requests = [kit.comm.all_reduce(x, "sum") if i % 2 else kit.comm.broadcast(x, 0) for i, x in enumerate(tensors)]
    for request in reversed(requests):
        kit.wait(request)
    for i, x in enumerate(tensors):
        kit.same(x, np.full(x.numel(), float(i * kit.size if i % 2 else i)), f"collective {i}")


@case
def never_waits(kit: Kit) -> None:
    """A collective and test() never wait for a member that is late."""
    x = norch.ones(200_000, device=kit.kind)
    if kit.rank == kit.size - 1:
        time.sleep(3 * AT_ONCE)
    begin = time.monotonic()
    request = kit.comm.all_reduce(x, "sum")
    done = request.test()
    if time.monotonic() - begin > AT_ONCE:
        raise Failed(f"all_reduce() and test() took {time.monotonic() - begin:.2f} s")
    if done and kit.rank != kit.size - 1 and time.monotonic() - begin < AT_ONCE and kit.kind == "cpu":
        raise Failed("test() is True before the last member came")
    kit.wait(request)
    kit.same(x, np.full(200_000, float(kit.size)), "the sum")
    if not request.test():
        raise Failed("test() is False after it was True")


@case
def chains(kit: Kit) -> None:
    """Where chain() is True, work of the current stream sees the result."""
    x = norch.ones(100_000, device=kit.kind)
    request = kit.comm.all_reduce(x, "sum")
    if request.chain():
        kit.same(x * 2, np.full(100_000, 2.0 * kit.size), "after chain()")
    kit.wait(request)


@case
def chains_late(kit: Kit) -> None:
    """Where chain_late() is True, whatever uses the result sees it."""
    parts = [norch.ones(100_000, device=kit.kind) for _ in range(3)]
    requests = [kit.comm.all_reduce(x, "sum") for x in parts]
    if all(request.chain_late() for request in requests):
        wanted = np.full(100_000, float(kit.size))
        kit.same(parts[2] * 2, 2 * wanted, "after chain_late(), by an op")
        kit.same(parts[0][500:] + 1, wanted[500:] + 1, "after chain_late(), by a view")
        kit.same(parts[1], wanted, "after chain_late(), by a copy")
    kit.wait(*requests)


@case
def groups_of_some(kit: Kit) -> None:
    """Two groups at a time: each counts its members from 0."""
    parts = [list(range(0, kit.size, 2)), list(range(1, kit.size, 2))]
    mine = parts[kit.rank % 2]
    store = PrefixStore(f"half{kit.rank % 2}", kit.store)
    comm = kit.engine.connect(mine, kit.rank, store, kit.limit)
    x = norch.full((3,), float(kit.rank), device=kit.kind)
    kit.wait(comm.all_reduce(x, "sum"))
    kit.same(x, np.full(3, float(sum(mine))), "the sum of a half")
    y = norch.full((2,), float(kit.rank), device=kit.kind)
    kit.wait(comm.broadcast(y, len(mine) - 1), kit.comm.all_reduce(x, "max"))
    kit.same(y, np.full(2, float(mine[-1])), "from the last of a half")
    comm.close()


@case
def gives_up(kit: Kit) -> None:
    """abort() does not wait for a member that never comes."""
    if kit.rank == 0:
        kit.comm.all_reduce(norch.ones(10, device=kit.kind), "sum").test()
        begin = time.monotonic()
        kit.comm.abort()
        if time.monotonic() - begin > 2:
            raise Failed(f"abort() took {time.monotonic() - begin:.1f} s")
    else:
        time.sleep(AT_ONCE)
        kit.comm.abort()
