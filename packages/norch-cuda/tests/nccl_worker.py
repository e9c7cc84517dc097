"""One of the processes of test_nccl.py: python nccl_worker.py CHECK STORE"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time

import norch
from norch.distributed.store import FileStore, PrefixStore
from norch_cuda import nccl

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
OTHER = 1 - RANK
DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64")
REDUCTIONS = {
    "sum": lambda a, b: a + b, "product": lambda a, b: a * b, "min": min, "max": max, "avg": lambda a, b: (a + b) / 2,
}  # fmt: skip
COUNT = 1000


def values(rank, dtype=norch.float32, count=COUNT):
    return (norch.arange(count, device="cuda") % 4 + 2 * rank + 1).to(dtype)


def reduced(op, count=COUNT):
    return [REDUCTIONS[op](a, b) for a, b in zip(values(0, count=count).tolist(), values(1, count=count).tolist())]


def reductions(group):
    for name in DTYPES:
        for op in REDUCTIONS:
            x = values(RANK, getattr(norch, name))
            if group.reduces(x.dtype, op):
                group.all_reduce(x[100:], op).chain()
                assert x.to(norch.float32).tolist() == values(RANK).tolist()[:100] + reduced(op)[100:], (name, op)


def reduce(group):
    for op in REDUCTIONS:
        x = values(RANK)
        group.reduce(x, op, 1).chain()
        if RANK == 1:
            assert x.tolist() == reduced(op), op


def broadcast(group):
    for dtype in (norch.float64, norch.bool, norch.int8):
        x, want = values(RANK).to(dtype), values(1).to(dtype)
        group.broadcast(x, 1).chain()
        assert x.tolist() == want.tolist(), dtype


def all_gather(group):
    out = norch.zeros(2 * COUNT, device="cuda", dtype=norch.int64)
    group.all_gather(out, values(RANK, norch.int64)).chain()
    assert out.tolist() == values(0).tolist() + values(1).tolist()


def reduce_scatter(group):
    half = COUNT // 2
    for op in REDUCTIONS:
        out = norch.zeros(half, device="cuda")
        group.reduce_scatter(out, values(RANK), op).chain()
        assert out.tolist() == reduced(op)[RANK * half : (RANK + 1) * half], op


def exchange(group):
    one, two = norch.zeros(COUNT, device="cuda"), norch.zeros(1 << 22, device="cuda")
    big = values(RANK, count=1 << 22)
    group.exchange([(values(RANK), OTHER), (big, OTHER)], [(one, OTHER), (two, OTHER)]).chain()
    assert one.tolist() == values(OTHER).tolist()
    assert (two - values(OTHER, count=1 << 22)).abs().sum().item() == 0
    if RANK == 0:
        group.exchange([(one, 1)], []).chain()
    else:
        group.exchange([], [(two[:COUNT], 0)]).chain()
        assert two[:COUNT].tolist() == values(1).tolist()


def nothing(group):
    x = norch.zeros(0, device="cuda")
    for request in (group.all_reduce(x, "sum"), group.all_gather(x, x), group.exchange([(x, OTHER)], [(x, OTHER)])):
        assert request.test()


def waiting(group):
    busy = norch.ones(1 << 27, device="cuda")
    for _ in range(100):
        busy.mul_(1.0)
    x = busy[:COUNT] + RANK
    request = group.all_reduce(x, "sum")
    assert not request.test()
    request.chain()
    assert (x * 2).tolist() == [6.0] * COUNT
    assert request.test()
    request = group.all_reduce(x, "sum")
    while not request.test():
        time.sleep(0.0001)
    assert x.tolist() == [6.0] * COUNT


def memory(group):
    kept = []
    for i in range(50):
        x = norch.full((1 << 20,), float(i + RANK), device="cuda")
        out = norch.zeros(2 << 20, device="cuda")
        request = group.all_gather(out, x)
        del x
        if i % 2:
            request.chain()
        del request
        norch.full((1 << 20,), -1.0, device="cuda")
        kept.append(out)
    norch.cuda.synchronize()
    for i, out in enumerate(kept):
        assert out[: 1 << 20].unique().tolist() == [i]
        assert out[1 << 20 :].unique().tolist() == [i + 1]


def graph(group):
    x, graph = norch.ones(COUNT, device="cuda"), norch.cuda.CUDAGraph()
    with norch.cuda.graph(graph):
        y = x * 2
        group.all_reduce(y, "sum").chain()
        z = y + 1
        group.broadcast(z, 1).chain()
        out = z * 0.5
    for i in range(3):
        x.fill_(i + 10 * RANK)
        graph.replay()
        assert out.tolist() == [(2 * (2 * i + 10) + 1) / 2] * COUNT, i
        group.all_reduce(out, "max").chain()


def two_groups(group):
    other = connect("second")
    a, b = values(RANK), values(RANK)
    first, second = group.all_reduce(a, "sum"), other.all_reduce(b, "product")
    first.chain()
    second.chain()
    assert a.tolist() == reduced("sum")
    assert b.tolist() == reduced("product")
    other.close()


def together(group):
    for name in DTYPES:
        for op in REDUCTIONS:
            dtype = getattr(norch, name)
            x, y, none = values(RANK, dtype), values(RANK, dtype, 100_003), values(RANK, dtype, 0)
            if group.reduces(dtype, op):
                group.all_reduce_together([x[100:], none, y], op).chain()
                assert x.to(norch.float32).tolist() == values(RANK).tolist()[:100] + reduced(op)[100:], (name, op)
                assert y.to(norch.float32).tolist() == reduced(op, 100_003), (name, op)
    assert group.all_reduce_together([none], "sum").test()


def late(group):
    parts, rest = [norch.full((1 << 22,), 1.0 + RANK, device="cuda") for _ in range(4)], norch.ones(5, device="cuda")
    for _ in range(20):
        requests = [group.all_reduce(part, "avg") for part in parts]
        for request in requests:
            request.chain_late()
        rest.add_(1.0)
        for part in reversed(parts):
            part.mul_(2.0)
    assert rest.tolist() == [21.0] * 5
    for part in parts:
        assert part.unique().tolist() == [1.5 * 2.0**20]


def connect(name, timeout=60.0):
    return nccl.norch_engine().connect([0, 1], RANK, PrefixStore(name, FileStore(sys.argv[2])), timeout)


def run_all():
    group, found = connect("first"), {}
    for check in (
        reductions, reduce, broadcast, all_gather, reduce_scatter, exchange, nothing, waiting, memory, graph,
        two_groups, together, late,
    ):  # fmt: skip
        try:
            check(group)
            found[check.__name__] = "ok"
        except Exception as error:
            found[check.__name__] = f"{type(error).__name__}: {error}"
    print(json.dumps(found), flush=True)
    group.close()


def wait_for_one_that_hangs(is_first):
    group, x = connect("first"), norch.ones(1 << 20, device="cuda")
    if not is_first:
        group.all_reduce(x, "sum").chain()
        norch.cuda.synchronize()
    if RANK == 1:
        print("hangs", flush=True)
        time.sleep(7)
        os._exit(0)
    start = []

    def abort():
        time.sleep(2)
        start.append(time.monotonic())
        group.abort()

    threading.Thread(target=abort).start()
    try:
        request = group.all_reduce(x, "sum")
        while not request.test():
            time.sleep(0.01)
    finally:
        print(f"ended after {time.monotonic() - start[0]:.2f} s", flush=True)


def by_names():
    """What users call."""
    dist = norch.distributed
    dist.init_process_group("nccl", timeout=60)
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (RANK, 2, "nccl")
    x = values(RANK)
    dist.all_reduce(x)
    assert x.tolist() == reduced("sum")
    x = values(RANK, norch.bfloat16)
    work = dist.all_reduce(x, dist.ReduceOp.AVG, async_op=True)
    work.wait()
    assert x.to(norch.float32).tolist() == reduced("avg")
    flags = values(RANK) > 2
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    assert flags.tolist() == [v > 2 for v in reduced("max")]
    every = [norch.zeros(COUNT, device="cuda") for _ in range(2)]
    dist.all_gather(every, values(RANK))
    assert [t.tolist() for t in every] == [values(r).tolist() for r in range(2)]
    into = [norch.zeros(COUNT, device="cuda") for _ in range(2)]
    dist.all_to_all(into, [values(RANK), values(RANK) * 10])
    assert [t.tolist() for t in into] == [(values(r) * (10 if RANK else 1)).tolist() for r in range(2)]
    got = norch.zeros(COUNT, device="cuda")
    calls = [dist.P2POp(dist.isend, values(RANK), OTHER), dist.P2POp(dist.irecv, got, OTHER)]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    assert got.tolist() == values(OTHER).tolist()
    objects = [None, None]
    dist.all_gather_object(objects, {"rank": RANK})
    assert objects == [{"rank": 0}, {"rank": 1}]
    pair = dist.new_group([0, 1])
    dist.broadcast(x, 1, group=pair)
    dist.barrier()
    norch.cuda.synchronize()
    dist.destroy_process_group()
    print("all names ok", flush=True)


def failing(check):
    """Rank 1 does not do its part of the third collective; rank 0 waits for the device alone."""
    dist = norch.distributed
    dist.init_process_group("nccl", timeout=4)
    x = norch.ones(1 << 16, device="cuda")
    for _ in range(2):
        dist.all_reduce(x)
    norch.cuda.synchronize()
    begun = time.monotonic()
    try:
        if RANK == 1 and check == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if RANK == 1 and check in ("hung", "flooded"):
            time.sleep(9)
            os._exit(0)
        if RANK == 1:
            time.sleep(1)
        dist.all_reduce(x[: 100 + RANK])
        for _ in range(5000 if check == "flooded" else 0):  # more than a stream takes: a launch waits
            x.add_(1.0)
        x.tolist()
        print("nothing was noticed", flush=True)
    except RuntimeError as error:
        print(f"ended after {time.monotonic() - begun:.2f} s: {error}", flush=True)
    time.sleep(1)  # the watchdog, which had no GIL while a launch waited, has its turn
    try:
        dist.all_reduce(x)
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(1)


def main():
    check = sys.argv[1]
    if check in ("shared_gpu", "absent"):
        connect(check, 30.0 if check == "shared_gpu" else 3.0)
        return
    norch.cuda.set_device(RANK)
    if check == "all":
        run_all()
    elif check == "by_names":
        by_names()
    elif check in ("killed", "hung", "flooded", "mismatch"):
        failing(check)
    else:
        wait_for_one_that_hangs(check == "abort_first")


main()
