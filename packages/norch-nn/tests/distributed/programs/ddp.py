"""What DistributedDataParallel promises, in as many processes as it is started in: "ok NAME" for each promise."""

from __future__ import annotations

import copy
import functools
import itertools
import os
import sys
from unittest import TestCase

import numpy as np

import norch
import norch.distributed as dist
from norch import nn
from norch.distributed.algorithms.ddp_comm_hooks import default_hooks
from norch.distributed.data_parallel import buckets
from norch.distributed.engine import Request
from norch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from norch.distributed.mpi import MPICommunicator
from norch.nn.parallel import DistributedDataParallel as DDP
from norch.utils.checkpoint import checkpoint

raises = TestCase().assertRaisesRegex  # pytest takes as long to import as norch.nn

if os.environ.get("TOGETHER"):  # as if MPI's engine reduced several tensors together, as NCCL's does

    class All(Request):
        def __init__(self, requests):
            self.requests = requests

        def test(self):
            return all(request.test() for request in tuple(self.requests))

    MPICommunicator.reduces_together = True
    MPICommunicator.all_reduce_together = lambda self, tensors, op: All([self.all_reduce(t, op) for t in tensors])
    buckets.IN_PLACE = 100

dist.init_process_group(timeout=30)
rank, size = dist.get_rank(), dist.get_world_size()
PROMISES = []


def promise(function):
    PROMISES.append(function)
    return function


OPTIONS = [
    {},
    {"bucket_cap_mb": 0.002, "gradient_as_bucket_view": True},
    {"find_unused_parameters": True},
    {"static_graph": True},
]


def gathered(values):
    """The objects of all ranks."""
    found = [None] * size
    dist.all_gather_object(found, values)
    return found


def alike(tensors):
    """Whether all ranks have the same bits."""
    found = gathered([t.detach().numpy().tobytes() for t in tensors])
    return all(other == found[0] for other in found)


def part(batch):
    """This rank's part of a batch."""
    n = batch.shape[0] // size
    return batch[rank * n : (rank + 1) * n]


class Words(nn.Module):
    """An embedding, an LSTM, and attention as in a Transformer.

    No biases, here and before BatchNorm, whose gradients are 0: Adam makes steps of what rounding leaves of them.
    """

    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(11, 8), nn.LSTM(8, 8, batch_first=True)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, bias=False)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.block(self.lstm(self.embed(x))[0])).mean(1)


def images():
    conv = nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 11)
    )
    return nn.SyncBatchNorm.convert_sync_batchnorm(conv)


def mlp():
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 11))


INPUTS = {
    mlp: lambda draws: draws.normal(size=(8, 20)),
    images: lambda draws: draws.normal(size=(8, 1, 6, 6)),
    Words: lambda draws: draws.integers(0, 11, (8, 5)),
}


def plain(model):
    """`model` for one process: with BatchNorm."""
    for name, child in model.named_children():
        if isinstance(child, nn.SyncBatchNorm):
            bn = nn.BatchNorm2d(child.num_features).to(child.weight.dtype)
            bn.load_state_dict(child.state_dict())
            model.add_module(name, bn)
    return model


def batches(make, dtype, count):
    """Inputs and labels of that many batches."""
    draws = np.random.default_rng(1)
    for _ in range(count):
        values = INPUTS[make](draws)
        x = norch.tensor(values) if values.dtype == np.int64 else norch.tensor(values, dtype=dtype)
        yield x, norch.tensor(draws.integers(0, 11, 8))


@functools.cache
def trained_alone(make, dtype, optimizer, accumulate, seed):
    """The parameters that one process makes of whole batches."""
    norch.manual_seed(seed)
    model = plain(make()).to(dtype)
    optimizer = optimizer(model.parameters())
    for step, (x, y) in enumerate(batches(make, dtype, 4 * accumulate)):
        (nn.functional.cross_entropy(model(x), y) / accumulate).backward()
        if step % accumulate == accumulate - 1:
            optimizer.step()
            optimizer.zero_grad()
    return list(model.parameters())


def train(make, dtype, optimizer, options, accumulate=1, seed=0):
    """The largest difference between parameters trained by all ranks and by this one alone, over the largest."""
    norch.manual_seed(seed + rank)  # so that rank 0's weights must come to all
    model = make().to(dtype)
    together = DDP(model, **options)
    alone = trained_alone(make, dtype, optimizer, accumulate, seed)
    optimizer = optimizer(together.parameters())
    for step, (x, y) in enumerate(batches(make, dtype, 4 * accumulate)):
        last = step % accumulate == accumulate - 1
        together.require_backward_grad_sync = last
        (nn.functional.cross_entropy(together(part(x)), part(y)) / accumulate).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    assert alike(model.parameters()), (make, options)
    pairs = list(zip(model.parameters(), alone, strict=True))
    return max(float((a - b).abs().max()) for a, b in pairs) / max(float(b.abs().max()) for _, b in pairs)


def sgd(parameters):
    return norch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def adamw(parameters):
    return norch.optim.AdamW(parameters, lr=1e-3)


@promise
def equals_one_process_with_the_whole_batch():
    for make, (dtype, optimizer, bound) in itertools.product(
        INPUTS, ((norch.float32, sgd, 1e-6), (norch.float64, sgd, 1e-12), (norch.float32, adamw, 2e-5))
    ):
        for options in OPTIONS if optimizer is sgd and size == 2 else OPTIONS[:1]:
            found = train(make, dtype, optimizer, options)
            if rank == 0 and not options:
                print(f"# {make.__name__} {dtype} {optimizer.__name__} {found:.1e}", flush=True)
            assert found < bound, (make, dtype, optimizer, options, found)


@promise
def accumulates_without_sync():
    for options in OPTIONS:
        assert train(mlp, norch.float32, sgd, options, accumulate=3) < 1e-6


@promise
def no_sync_keeps_gradients_apart():
    model = DDP(nn.Linear(2, 1))
    x = norch.full((1, 2), float(rank + 1))
    with model.no_sync():
        model(x).sum().backward()
    assert model.module.weight.grad.tolist() == [[rank + 1.0] * 2]
    model(x).sum().backward()
    mean = (size + 1) / 2
    assert model.module.weight.grad.tolist() == [[2 * mean] * 2], "what was gathered is averaged too"
    model(x).sum().backward()
    assert model.module.weight.grad.tolist() == [[3 * mean] * 2]


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x, *names):
        return sum(getattr(self, name)(x).sum() for name in names)


@promise
def unused_parameters_are_named():
    model = DDP(Branches())
    x = norch.ones(1, 2)
    for _ in range(2):
        model(x, "a", "b", "c").backward()
    model(x, "a", "c").backward()
    with raises(RuntimeError, r"find_unused_parameters=True.*\n.*rank \d: b.weight, b.bias\n.*: 2 3"):
        model(x, "a")


@promise
def unused_parameters_may_be_found():
    model = DDP(Branches(), find_unused_parameters=True, bucket_cap_mb=1e-5)
    x = norch.ones(1, 2)
    for _ in range(2):
        model.zero_grad()
        model(x, "a", *["b"] * (rank == 0)).backward()
        assert model.module.a.weight.grad.tolist() == [[1, 1]] * 2
        assert model.module.b.weight.grad.tolist() == [[1 / size] * 2] * 2, "others add zeros"
        assert model.module.c.weight.grad is None
    model.module.c.weight.grad = norch.full((2, 2), 7.0)
    model(x, "a").backward()
    assert model.module.c.weight.grad.tolist() == [[7, 7]] * 2
    model.zero_grad()
    (model(x, "a") * 0 + x.sum() * 0).backward()
    model.zero_grad()
    with_input = x.clone().requires_grad_()
    (model(with_input, "a") if rank == 0 else model.forward(with_input, "b")).backward()
    assert model.module.b.weight.grad.tolist() == [[(size - 1) / size] * 2] * 2


@promise
def a_static_graph_may_have_unused_parameters():
    model = DDP(Branches(), static_graph=True, bucket_cap_mb=1e-5)
    x = norch.ones(1, 2)
    for _ in range(3):
        model.zero_grad()
        model(x, "a", *["b"] * (rank == 0)).backward()
        assert model.module.b.weight.grad.tolist() == [[1 / size] * 2] * 2
        assert model.module.c.weight.grad is None


@promise
def buckets_are_reduced_during_the_backward_pass():
    norch.manual_seed(0)
    model = DDP(nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)]), bucket_cap_mb=1e-4)
    assert len(model.reducer.buckets) == 4 * 2, "a bucket that is too small for two"
    seen = []

    def hook(state, bucket):
        seen.append([p.grad is not None for p in model.parameters()])
        assert bucket.is_last() == (len(seen) == 8)
        return default_hooks.allreduce_hook(state, bucket)

    model.register_comm_hook(None, hook)
    model(norch.ones(2, 8)).sum().backward()
    assert [sum(flags) for flags in seen] == list(range(1, 9)), "each as soon as its gradient is there"
    model.zero_grad()
    seen.clear()
    model(norch.ones(2, 8)).sum().backward()
    assert len(seen) == 8


@promise
def hooks_bring_gradients_together():
    x = norch.full((1, 3), float(rank + 1))
    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook, default_hooks.bf16_compress_hook):
        for options in OPTIONS:
            model = DDP(nn.Linear(3, 2), **options)
            model.register_comm_hook(None, hook)
            for _ in range(2):
                model.zero_grad()
                model(x).sum().backward()
            assert model.module.weight.grad.tolist() == [[(size + 1) / 2] * 3] * 2
            assert model.module.weight.grad.dtype is norch.float32
    with raises(RuntimeError, "only be called once"):
        model.register_comm_hook(None, hook)

    def largest(state, bucket):
        work = dist.all_reduce(bucket.buffer(), dist.ReduceOp.MAX, state, async_op=True)
        return work.get_future().then(lambda done: done.value()[0] * 10)

    model = DDP(nn.Linear(3, 2))
    model.register_comm_hook(model.process_group, default_hooks.fp16_compress_wrapper(largest))
    model(x).sum().backward()
    assert model.module.weight.grad.tolist() == [[10.0 * size] * 3] * 2


@promise
def another_model_is_named():
    for make, message in (
        (lambda: nn.Linear(3, 4 + rank), r"parameter 'weight' is float32 \(4, 3\) on rank 0 and float32 \(5, 3\) on"),
        (lambda: nn.Linear(3, 4).to([norch.float32, norch.float64][rank > 0]), "'weight' is float32 .* and float64"),
        (lambda: nn.Linear(3, 4, bias=rank == 0), "2 parameters and rank 1 1; the first that is missing is 'bias'"),
    ):
        with raises(RuntimeError, message):
            DDP(make())
    with raises(RuntimeError, "doesn't have any parameters that require a gradient"):
        DDP(nn.ReLU())
    with raises(ValueError, "leave device_ids out"):
        DDP(nn.Linear(1, 1), device_ids=[rank])


@promise
def buffers_are_those_of_rank_0():
    norch.manual_seed(rank)
    bn = nn.BatchNorm1d(3)
    bn.running_mean.fill_(rank + 1.0)
    model = DDP(bn)
    assert bn.running_mean.tolist() == [1, 1, 1]
    model(norch.randn(4, 3) + rank).sum().backward()
    assert not alike([bn.running_mean])
    with norch.no_grad():
        model.eval()(norch.randn(4, 3))
    assert alike(bn.buffers())
    bn = nn.BatchNorm1d(3)
    bn.running_mean.fill_(rank + 1.0)
    own = DDP(bn, broadcast_buffers=False)
    assert bn.running_mean.tolist() == [rank + 1.0] * 3
    own = DDP(bn, forward_sync_buffers=False)
    assert bn.running_mean.tolist() == [1, 1, 1]
    for _ in range(2):
        own(norch.randn(4, 3) + rank).sum().backward()
    assert not alike([own.module.running_mean])


@promise
def sixteen_bits():
    for dtype in (norch.float16, norch.bfloat16):
        model = DDP(nn.Linear(3, 2).to(dtype))
        model(norch.full((1, 3), float(rank + 1), dtype=dtype)).sum().backward()
        assert model.module.weight.grad.dtype is dtype
        assert model.module.weight.grad.tolist() == [[(size + 1) / 2] * 3] * 2
    model = DDP(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2).to(norch.float64)))
    with norch.autocast("cpu", dtype=norch.bfloat16):
        out = model.module[0](norch.ones(1, 3))
        assert out.dtype is norch.bfloat16
    model.module[1](model.module[0](norch.full((1, 3), float(rank))).double()).sum().backward()
    model = DDP(nn.Linear(3, 2))
    with norch.autocast("cpu", dtype=norch.bfloat16):
        model(norch.full((1, 3), float(rank + 1))).float().sum().backward()
    assert model.module.weight.grad.tolist() == [[(size + 1) / 2] * 3] * 2


@promise
def gradients_lie_in_buckets():
    for keep in (False, True):
        model = DDP(nn.Linear(3, 2), gradient_as_bucket_view=keep)
        places = []
        for _ in range(3):
            model.zero_grad()
            model(norch.ones(1, 3)).sum().backward()
            weight, bias = model.module.weight.grad, model.module.bias.grad
            places.append(weight.data_ptr())
            held = [weight, bias]  # so that other memory must be taken
            values = [t.tolist() for t in held]
        assert keep == (len(set(places)) == 1)
        model.zero_grad()
        model(5 * norch.ones(1, 3)).sum().backward()
        assert keep or [t.tolist() for t in held] == values, "what a user holds does not change"


@promise
def several_passes():
    x = norch.full((1, 2), float(rank + 1))
    mean = (size + 1) / 2
    model = DDP(nn.Linear(2, 1, bias=False))
    (model(x) + model(x)).sum().backward()
    assert model.module.weight.grad.tolist() == [[2 * mean] * 2]
    model.zero_grad()
    first, second = model(x), model(x)
    first.sum().backward()
    second.sum().backward()
    assert model.module.weight.grad.tolist() == [[2 * mean] * 2]
    model = DDP(Branches())
    for _ in range(2):  # two passes that bring half of the gradients each
        model.zero_grad()
        b, c = model(x, "b", "a"), model.module.c(x).sum()
        b.backward()
        c.backward()
        assert model.module.c.weight.grad.tolist() == [[mean] * 2] * 2
        assert model.module.a.weight.grad.tolist() == [[mean] * 2] * 2


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.layers, self.reentrant = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)]), reentrant

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


@promise
def checkpointed_parts():
    for reentrant in (False, True):
        norch.manual_seed(0)
        model = DDP(Checkpointed(reentrant), bucket_cap_mb=1e-5)
        x = norch.full((1, 4), float(rank + 1), requires_grad=True)
        for _ in range(2):
            model.zero_grad()
            model(x).sum().backward()
        assert alike([p.grad for p in model.parameters()])
        norch.testing.assert_close(model.module.layers[2].bias.grad, norch.ones(4))


@promise
def uneven_inputs():
    for average in (True, False):
        for keep in (True, False):
            norch.manual_seed(rank)
            net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
            model = DDP(net, gradient_as_bucket_view=keep, bucket_cap_mb=1e-5)
            optimizer = norch.optim.SGD(model.parameters(), lr=0.1)
            with model.join(divide_by_initial_world_size=average):
                for step in range(2 + rank):
                    optimizer.zero_grad()
                    model(norch.randn(3, 2)).sum().backward()
                    optimizer.step()
                    if step >= 2:
                        bias = net[2].bias.grad.item()
                        assert bias == 3 * (size - step + 1 if average else size) / size, (bias, step)
            assert alike([*model.parameters(), *model.buffers()])
    model = DDP(nn.Linear(2, 1))
    with raises(RuntimeError, "exhausted inputs"), model.join(throw_on_early_termination=True):
        for _ in range(2 + rank):
            model(norch.randn(3, 2)).sum().backward()


@promise
def clipping_and_scaling_agree():
    norch.manual_seed(0)
    model = DDP(nn.Linear(3, 2))
    optimizer = norch.optim.SGD(model.parameters(), lr=0.1)
    scaler = norch.amp.GradScaler("cpu", init_scale=8.0)
    before = model.module.weight.tolist()
    for bad in (True, False):
        optimizer.zero_grad()
        x = norch.full((1, 3), float("inf") if bad and rank == size - 1 else rank + 1.0)
        scaler.scale(model(x).sum()).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 4.0
        assert (model.module.weight.tolist() == before) == bad
    assert len(set(gathered(float(norm)))) == 1
    assert alike(model.parameters())


@promise
def scaling_agrees_where_each_rank_has_a_part():
    layer = nn.Linear(2, 1)
    optimizer = norch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = ShardedGradScaler("cpu", init_scale=8.0)
    for bad in (True, False):
        before = layer.weight.tolist()
        optimizer.zero_grad()
        if rank or bad:  # where it is good one rank has no gradients at all
            x = norch.full((1, 2), float("inf") if bad and rank == 0 else 1.0)
            scaler.scale(layer(x).sum()).backward()
        scaler.scale(norch.ones(()))
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 4.0
        assert (layer.weight.tolist() == before) == (bad or rank == 0)


@promise
def copies_and_state():
    model = DDP(nn.Linear(2, 1))
    assert sorted(model.state_dict()) == ["module.bias", "module.weight"]
    model.load_state_dict(model.state_dict())
    twin = copy.deepcopy(model)
    x = norch.full((1, 2), float(rank + 1))
    twin(x).sum().backward()
    assert twin.module.weight.grad.tolist() == [[(size + 1) / 2] * 2]
    assert model.module.weight.grad is None
    averaged = norch.optim.swa_utils.AveragedModel(model)
    averaged.update_parameters(model)


@promise
def processes_share_the_processors():
    count = os.cpu_count() or 1
    wanted = max(1, count // size) if len(os.sched_getaffinity(0)) == count else norch.get_num_threads()
    assert norch.get_num_threads() == int(os.environ.get("NORCH_NUM_THREADS", wanted))


@promise
def groups_of_some():
    model = DDP(nn.Linear(2, 1))
    group = dist.new_group([0])
    if rank:
        with raises(ValueError, "no member"):
            DDP(nn.Linear(2, 1), process_group=group)
    else:
        DDP(nn.Linear(2, 1), process_group=group)(norch.ones(1, 2)).sum().backward()
    model(norch.ones(1, 2)).sum().backward()


wanted = sys.argv[1:]
for kept in PROMISES:
    if not wanted or kept.__name__ in wanted:
        kept()
        dist.barrier()
        if rank == 0:
            print("ok", kept.__name__, flush=True)
dist.destroy_process_group()
