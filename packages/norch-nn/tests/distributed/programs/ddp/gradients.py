"""Which gradients are brought together, when, by what hooks, and where they lie."""

from __future__ import annotations

from harness import OPTIONS, alike, promise, raises, rank, size

import norch
import norch.distributed as dist
from norch import nn
from norch.distributed.algorithms.ddp_comm_hooks import default_hooks
from norch.nn.parallel import DistributedDataParallel as DDP
from norch.utils.checkpoint import checkpoint


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
