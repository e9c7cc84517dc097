"""SyncBatchNorm in several processes, whose batches differ in size, beside BatchNorm on the whole batch."""

from __future__ import annotations

import itertools
from unittest import TestCase

import numpy as np

import norch
import norch.distributed as dist
from norch import nn

raises = TestCase().assertRaisesRegex  # pytest takes as long to import as norch.nn

dist.init_process_group(timeout=30)
rank, size = dist.get_rank(), dist.get_world_size()
ROWS = 9
ENDS = [0, *[3 + i * (ROWS - 3) // (size - 1) for i in range(size)]]
MINE = slice(ENDS[rank], ENDS[rank + 1])
DIMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


def close(got, wanted, bound, what):
    difference = (got.detach().double() - wanted.detach().double()).abs().max().item()
    assert difference <= bound, (what, difference)


def compare(shape, dtype, bound, options):
    make = DIMS[len(shape)]
    whole = make(3, **options).to(dtype)
    if whole.weight is not None:
        with norch.no_grad():
            whole.weight.copy_(norch.tensor([1.0, 2.0, -3.0]))
            if whole.bias is not None:
                whole.bias.copy_(norch.tensor([0.1, 0.2, 0.3]))
    parts = make(3, **options).to(dtype)
    parts.load_state_dict(whole.state_dict())
    parts = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(parts))[0]
    assert type(parts) is nn.SyncBatchNorm
    draws = np.random.default_rng(0)
    for _ in range(2):
        values, seeds = (norch.tensor(draws.normal(size=shape) * 2 + 5, dtype=dtype) for _ in range(2))
        x, part = values.clone().requires_grad_(), values[MINE].clone().requires_grad_()
        y, out = whole(x), parts(part)
        for module in (whole, parts):
            module.zero_grad()
        y.backward(seeds)
        out.backward(seeds[MINE])
        assert out.dtype is dtype
        close(out, y[MINE], bound, ("out", shape, dtype, options))
        close(part.grad, x.grad[MINE], bound, ("gradient", shape, dtype, options))
    for (name, p), q in zip(parts.named_parameters(), whole.parameters(), strict=True):
        grad = p.grad.clone()
        dist.all_reduce(grad)
        close(grad, q.grad, 20 * bound, (name, shape, dtype, options))
    for (name, p), q in zip(parts.named_buffers(), whole.buffers(), strict=True):
        close(p, q, bound, (name, shape, dtype, options))
    if parts.running_mean is not None:
        close(parts.eval()(values[MINE]), whole.eval()(values)[MINE], bound, ("eval", shape, dtype, options))


OPTIONS = ({}, {"affine": False}, {"momentum": None}, {"track_running_stats": False}, {"bias": False})
SHAPES = ((ROWS, 3), (ROWS, 3, 5), (ROWS, 3, 4, 2), (ROWS, 3, 2, 2, 2))
for shape, options in itertools.product(SHAPES, OPTIONS):
    compare(shape, norch.float64, 1e-12, options)
compare(SHAPES[2], norch.float32, 1e-5, {})
compare(SHAPES[2], norch.bfloat16, 0.25, {})

# A process without samples takes part too.
layer = nn.SyncBatchNorm(3).double()
x = norch.randn(4 if rank == 0 else 0, 3, dtype=norch.float64, requires_grad=True)
layer(x).square().sum().backward()
assert bool(layer.running_mean.isfinite().all())
assert x.grad is not None
assert bool(x.grad.isfinite().all())

with raises(ValueError, "more than 1 value per channel"):
    layer(norch.ones(1 if rank == 0 else 0, 3, dtype=norch.float64))
with raises(ValueError, "expected at least 2D input"):
    layer(norch.ones(3))
alone = [dist.new_group([r]) for r in range(size)][rank]
norch.testing.assert_close(
    nn.SyncBatchNorm(3, process_group=alone)(norch.arange(6.0).reshape(2, 3)),
    nn.BatchNorm1d(3)(norch.arange(6.0).reshape(2, 3)),
)
print(f"rank {rank} of {size}: equal", flush=True)
dist.destroy_process_group()
