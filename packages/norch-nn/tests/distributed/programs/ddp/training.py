"""Training in all ranks gives the parameters that one process makes of whole batches."""

from __future__ import annotations

import functools
import itertools

import numpy as np
from harness import OPTIONS, alike, promise, rank, size

import norch
from norch import nn
from norch.nn.parallel import DistributedDataParallel as DDP


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
    """In rank 0 the largest difference between parameters trained by all ranks and by it alone, over the largest."""
    norch.manual_seed(seed + rank)  # so that rank 0's weights must come to all
    model = make().to(dtype)
    together = DDP(model, **options)
    alone = trained_alone(make, dtype, optimizer, accumulate, seed) if rank == 0 else None
    optimizer = optimizer(together.parameters())
    for step, (x, y) in enumerate(batches(make, dtype, 4 * accumulate)):
        last = step % accumulate == accumulate - 1
        together.require_backward_grad_sync = last
        (nn.functional.cross_entropy(together(part(x)), part(y)) / accumulate).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    assert alike(model.parameters()), (make, options)
    if alone is None:
        return 0.0
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
