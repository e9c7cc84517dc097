"""Every collective against NumPy, for several dtypes; each process has all tensors, and works the result out."""

from __future__ import annotations

import itertools
import os

import ml_dtypes
import numpy as np

import norch
import norch.distributed as dist
from norch.testing.strict import strict_device

if os.environ.get("SEVERAL_HOSTS"):
    os.environ["NORCH_DISTRIBUTED_HOST"] = f"host{os.environ.get('PMI_RANK', os.environ.get('OMPI_COMM_WORLD_RANK'))}"
if os.environ.get("DEVICE") == "strict":
    strict_device()
    norch.set_default_device("strict")
dist.init_process_group("mpi", timeout=30)
rank, size = dist.get_rank(), dist.get_world_size()
Op = dist.ReduceOp


def given(shape: tuple[int, ...], dtype: norch.DType, seed: int = 0) -> list[np.ndarray]:
    """Values of all members."""
    draws = [np.random.default_rng(100 * seed + r) for r in range(size)]
    if dtype is norch.bool:
        return [d.integers(0, 2, shape).astype(bool) for d in draws]
    if not dtype.is_floating_point:
        return [d.integers(1, 5, shape).astype(dtype.name) for d in draws]
    name = ml_dtypes.bfloat16 if dtype is norch.bfloat16 else dtype.name
    return [(d.integers(-8, 8, shape) / 4).astype(name) for d in draws]


def tensor(values: np.ndarray, dtype: norch.DType) -> norch.Tensor:
    return norch.tensor(values.astype("float64")).to(dtype) if dtype.is_floating_point else norch.tensor(values)


def same(got: norch.Tensor, wanted: np.ndarray, what: str) -> None:
    have = got.cpu().to(norch.float64).numpy() if got.dtype is not norch.bool else got.cpu().numpy()
    assert got.shape == wanted.shape, (what, got.shape, wanted.shape)
    np.testing.assert_array_equal(have, wanted.astype(have.dtype), what)


FLOATS = (norch.float32, norch.float64, norch.float16, norch.bfloat16)
INTEGERS = (norch.uint8, norch.int8, norch.int16, norch.int32, norch.int64)
REDUCE = {
    Op.SUM: lambda x: sum(v.astype("float64") for v in x),
    Op.AVG: lambda x: sum(v.astype("float64") for v in x) / size,
    Op.PRODUCT: lambda x: np.prod([v.astype("float64") for v in x], axis=0),
    Op.MIN: lambda x: np.min([v.astype("float64") for v in x], axis=0),
    Op.MAX: lambda x: np.max([v.astype("float64") for v in x], axis=0),
    Op.BAND: np.bitwise_and.reduce,
    Op.BOR: np.bitwise_or.reduce,
    Op.BXOR: np.bitwise_xor.reduce,
}
NUMERIC = (Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX)
BITS = (Op.BAND, Op.BOR, Op.BXOR)

for dtype, op in [*itertools.product(FLOATS, (*NUMERIC, Op.AVG)), *itertools.product(INTEGERS, NUMERIC + BITS)]:
    if op is Op.AVG and size == 3:
        continue  # thirds are rounded
    values = given((2, 3), dtype)
    wanted = REDUCE[op](values)
    x = tensor(values[rank], dtype)
    assert dist.all_reduce(x, op) is None
    same(x, wanted, f"all_reduce {dtype} {op}")
    y = tensor(values[rank], dtype).t()  # not contiguous
    work = dist.all_reduce(y, op, async_op=True)
    assert work.wait(30) and work.is_completed()  # seconds, or a timedelta
    same(y, wanted.T, f"all_reduce {dtype} {op}, strided")
    several = [tensor(values[rank], dtype), tensor(values[rank], dtype).t(), tensor(values[rank], dtype)[1:]]
    assert dist.all_reduce_coalesced(several, op) is None
    for x, result in zip(several, (wanted, wanted.T, wanted[1:]), strict=True):
        same(x, result, f"all_reduce_coalesced {dtype} {op}")
    for root in range(size):
        x = tensor(values[rank], dtype)
        dist.reduce(x, root, op)
        same(x, wanted if rank == root else values[rank], f"reduce {dtype} {op}")
    parts = given((size, 3), dtype, 1)
    out = tensor(np.zeros(3), dtype) if dtype.is_floating_point else norch.zeros(3, dtype=dtype)
    dist.reduce_scatter_tensor(out, tensor(parts[rank], dtype), op)
    same(out, REDUCE[op](parts)[rank], f"reduce_scatter {dtype} {op}")
    dist.reduce_scatter(out, list(tensor(parts[rank], dtype).unbind(0)), op)
    same(out, REDUCE[op](parts)[rank], f"reduce_scatter list {dtype} {op}")

for op, fold in ((Op.SUM, np.any), (Op.BOR, np.any), (Op.MAX, np.any), (Op.PRODUCT, np.all), (Op.BAND, np.all)):
    values = given((5,), norch.bool, 2)
    x = norch.tensor(values[rank])
    dist.all_reduce(x, op)
    same(x, fold(values, axis=0), f"all_reduce bool {op}")

for dtype in (*FLOATS, *INTEGERS, norch.bool):
    values = given((3, 2), dtype, 3)
    for root in range(size):
        x = tensor(values[rank], dtype)
        dist.broadcast(x, root)
        same(x, values[root], f"broadcast {dtype}")
        x = norch.zeros(2, 3, dtype=dtype).t()
        if rank == root:
            x.copy_(tensor(values[rank], dtype))
        dist.broadcast(x, src=root)
        same(x, values[root], f"broadcast {dtype}, strided")
    mine = tensor(values[rank], dtype)
    into = [norch.zeros(3, 2, dtype=dtype) for _ in range(size)]
    dist.all_gather(into, mine)
    for i, value in enumerate(into):
        same(value, values[i], f"all_gather {dtype}")
    for shape, join in (((3 * size, 2), np.concatenate), ((size, 3, 2), np.stack)):
        out = norch.zeros(shape, dtype=dtype)
        dist.all_gather_into_tensor(out, mine)
        same(out, join(values), f"all_gather_into_tensor {dtype}")
    for root in range(size):
        into = [norch.zeros(3, 2, dtype=dtype) for _ in range(size)] if rank == root else None
        dist.gather(mine, into, root)
        for i, value in enumerate(into or ()):
            same(value, values[i], f"gather {dtype}")
        x = norch.zeros(3, 2, dtype=dtype)
        dist.scatter(x, [tensor(v, dtype) for v in values] if rank == root else None, root)
        same(x, values[rank], f"scatter {dtype}")

# Member i gives j a tensor of i + j + 1 elements.
made = [[np.arange(i + j + 1.0) + 10 * i + 100 * j for j in range(size)] for i in range(size)]
out = [norch.zeros(i + rank + 1, dtype=norch.float64) for i in range(size)]
dist.all_to_all(out, [norch.tensor(v) for v in made[rank]])
for i, value in enumerate(out):
    same(value, made[i][rank], "all_to_all")
square = [np.arange(2.0 * size) + 10 * i for i in range(size)]
x = norch.zeros(2 * size, dtype=norch.float64)
dist.all_to_all_single(x, norch.tensor(square[rank]))
same(x, np.concatenate([v[2 * rank : 2 * rank + 2] for v in square]), "all_to_all_single")
x = norch.zeros(sum(i + rank + 1 for i in range(size)), dtype=norch.float64)
dist.all_to_all_single(
    x,
    norch.tensor(np.concatenate(made[rank])),
    [i + rank + 1 for i in range(size)],
    [rank + j + 1 for j in range(size)],
)
same(x, np.concatenate([made[i][rank] for i in range(size)]), "all_to_all_single, split sizes")

# From one to the next, all at once, in turn, and from anyone.
after, before = (rank + 1) % size, (rank - 1) % size
x, y = norch.full((4,), float(rank)), norch.zeros(4)
for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, after), dist.P2POp(dist.irecv, y, before)]):
    work.wait()
same(y, np.full(4, before), "batch_isend_irecv")
y = norch.zeros(2, 4)[:, 1]
sent = dist.isend(norch.full((2,), rank + 0.5), after)
assert dist.recv(y, before) == before
sent.wait()
same(y, np.full(2, before + 0.5), "isend, recv")
if rank == 0:
    senders = set()
    for _ in range(1, size):
        x = norch.zeros((), dtype=norch.int64)
        sender = dist.recv(x, tag=7)
        assert int(x) == sender
        senders.add(sender)
    assert senders == set(range(1, size))
else:
    dist.send(norch.tensor(rank), 0, tag=7)

# A Work that nobody keeps: its memory is not given to others before it is done.
for i in range(20):
    sent, got = norch.full((100_000,), float(i)), norch.zeros(100_000)
    dist.isend(sent, after)
    if i % 2:
        dist.irecv(norch.zeros(100_000), before)
    else:
        work = dist.irecv(got, before)
    del sent
    other = [norch.full((100_000,), -1.0) for _ in range(3)]
    if i % 2 == 0:
        work.wait()
        assert (got == i).all()
    dist.all_reduce(norch.ones(1000), async_op=True)
    del got
dist.barrier()

# Objects.
objects: list = [None] * size
value = {"rank": rank, "list": [1, 2.5, "text", None, True, (3,)], "tensor": norch.ones(2, dtype=norch.bfloat16) * rank}
dist.all_gather_object(objects, value)
assert [o["rank"] for o in objects] == list(range(size))
assert all(
    o["list"] == [1, 2.5, "text", None, True, (3,)] and o["tensor"].tolist() == [i, i] for i, o in enumerate(objects)
)
objects = [f"from {rank}", {"n": rank}]
dist.broadcast_object_list(objects, src=size - 1)
assert objects == [f"from {size - 1}", {"n": size - 1}]
objects = [None] * size
dist.gather_object(rank * 2, objects if rank == 0 else None)
assert rank or objects == [2 * r for r in range(size)]
objects = [None]
dist.scatter_object_list(objects, list("abcdef")[:size] if rank == 0 else None)
assert objects == ["abcdef"[rank]]
if rank == 0:
    dist.send_object_list([1, "two"], dst=1)
elif rank == 1:
    objects = [None, None]
    assert dist.recv_object_list(objects, src=0) == 0 and objects == [1, "two"]
try:
    dist.all_gather_object([None] * size, dist.get_rank)
except (TypeError, RuntimeError) as error:
    refused = str(error)
assert "is a function" in refused, refused

# Empty tensors, 0-d ones, and one that is reduced in pieces.
x = norch.zeros(0, 3)
dist.all_reduce(x)
x = norch.tensor(rank + 1)
dist.all_reduce(x)
assert int(x) == size * (size + 1) // 2
x = norch.arange(3 << 20, dtype=norch.float32) % 1000 + rank
works = [dist.all_reduce(x, async_op=True), dist.all_reduce(small := norch.ones(3), async_op=True)]
for work in reversed(works):
    work.wait()
assert small.tolist() == [size] * 3
same(x[-5:], (np.arange((3 << 20) - 5, 3 << 20) % 1000) * size + sum(range(size)), "in pieces")

# A collective changes its tensor: what saved it for its gradient says so.
w = norch.ones(3, requires_grad=True)
x = norch.ones(3)
y = w * x
dist.all_reduce(x)
try:
    y.sum().backward()
except RuntimeError as error:
    assert "all_reduce has changed it in place" in str(error), error
else:
    raise AssertionError("an all_reduce was not noticed")
with norch.no_grad():
    dist.all_reduce(w)
assert w.requires_grad and w.tolist() == [size] * 3

# Groups of some.
half = dist.new_group(range(0, size, 2))
rest = dist.new_group([r for r in range(size) if r % 2])
own = half if rank % 2 == 0 else rest
assert (half is dist.GroupMember.NON_GROUP_MEMBER) == bool(rank % 2)
x = norch.tensor(float(rank))
dist.all_reduce(x, group=own)
assert float(x) == sum(range(rank % 2, size, 2))
assert dist.all_reduce(x, group=rest if rank % 2 == 0 else half) is None
assert dist.get_process_group_ranks(own) == list(range(rank % 2, size, 2))
assert dist.get_rank(own) == rank // 2 and dist.get_world_size(own) == len(range(rank % 2, size, 2))
x = norch.tensor(float(rank))
dist.broadcast(x, src=dist.get_global_rank(own, 0), group=own)
assert float(x) == rank % 2 == dist.get_global_rank(own, 0) and dist.get_group_rank(own, rank) == rank // 2
dist.barrier(own)
dist.monitored_barrier()
dist.destroy_process_group(own)
lists = [list(range(0, size, 2)), list(range(1, size, 2))][: min(size, 2)]
own, groups = dist.new_subgroups_by_enumeration(lists)
x = norch.tensor(1.0)
dist.all_reduce(x, op=dist.reduce_op.SUM, group=own)
assert float(x) == len(lists[rank % 2]) and len(groups) == len(lists) and groups[rank % 2] is own
first, _ = dist.new_subgroups_by_enumeration([[0]])
assert (first is None) == (rank != 0)
print(f"rank {rank} of {size}: all right\n", end="")
dist.destroy_process_group()
assert not dist.is_initialized()
