"""The same programs on norch (MPI) and on PyTorch (gloo) in the same processes leave the same gradients."""

from __future__ import annotations

import os
import warnings
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed
import torch.distributed.algorithms.ddp_comm_hooks.default_hooks
import torch.utils.data.distributed

import norch
import norch.distributed
import norch.distributed.algorithms.ddp_comm_hooks.default_hooks

warnings.filterwarnings("ignore", "find_unused_parameters=True was specified")
norch.distributed.init_process_group("gloo", timeout=30)
rank, size = norch.distributed.get_rank(), norch.distributed.get_world_size()
# PyTorch's processes meet at a file, whose name rank 0 chooses.
name = [f"{os.environ.get('TMPDIR', '/tmp')}/norch-ddp-{os.getpid()}"]
norch.distributed.broadcast_object_list(name)
torch.distributed.init_process_group("gloo", f"file://{name[0]}", timedelta(seconds=30), size, rank)


def net(lib: Any) -> Any:
    class Net(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = lib.nn.Linear(3, 4), lib.nn.Linear(4, 4), lib.nn.Linear(4, 2)
            self.norm = lib.nn.BatchNorm1d(4)

        def forward(self, x: Any, skip: bool = False) -> Any:
            x = lib.nn.functional.relu(self.norm(self.a(x)))
            return self.c(x if skip else self.b(x))

    draws = np.random.default_rng(rank)  # those of rank 0 must come to all
    made = Net()
    for p in made.parameters():
        with lib.no_grad():
            p.copy_(lib.tensor(draws.normal(size=tuple(p.shape)).astype("float32")))
    return made


def batch(lib: Any, seed: int) -> Any:
    return lib.tensor(np.random.default_rng(100 * seed + rank).normal(size=(4, 3)).astype("float32"))


def after(lib: Any, model: Any) -> list[Any]:
    kept = [None if p.grad is None else p.grad.detach().numpy().copy() for p in model.parameters()]
    return kept + [b.detach().numpy().copy() for b in model.buffers()]


def scenario(lib: Any, what: str) -> list[Any]:
    ddp, hooks = lib.nn.parallel.DistributedDataParallel, lib.distributed.algorithms.ddp_comm_hooks.default_hooks
    options: dict[str, Any] = {
        "unused": {"find_unused_parameters": True},
        "unused here": {"find_unused_parameters": True},
        "unused, gathered before": {"find_unused_parameters": True},
        "static": {"static_graph": True},
        "views": {"gradient_as_bucket_view": True, "bucket_cap_mb": 1e-5},
        "own buffers": {"forward_sync_buffers": False},
        "two forward passes": {"forward_sync_buffers": False},  # else the first pass misses what the second overwrote
    }.get(what, {})
    model = ddp(net(lib), **options)
    if what == "hook":
        model.register_comm_hook(None, hooks.fp16_compress_hook)
    skip = what in ("unused", "static") or (what == "unused here" and rank == 1)
    found = []
    if what.startswith("join"):
        optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
        with model.join(divide_by_initial_world_size=what == "join"):
            for step in range(2 + rank):
                optimizer.zero_grad()
                model(batch(lib, step)).sum().backward()
                optimizer.step()
        return [p.detach().numpy().copy() for p in [*model.parameters(), *model.buffers()]]
    for step in range(3):
        if what == "two forward passes":
            model.eval()
            (model(batch(lib, step)) * model(batch(lib, step + 10))).sum().backward()
        elif what == "evaluation":
            with lib.no_grad():
                model.eval()(batch(lib, step))
                model.train()
            model(batch(lib, step)).sum().backward()
        else:
            apart = step < 2 and what in ("no_sync", "unused, gathered before")
            with model.no_sync() if apart else nullcontext():
                model(batch(lib, step), skip or (what == "unused, gathered before" and not apart)).sum().backward()
        found += after(lib, model)
        if what not in ("no_sync", "unused, gathered before"):
            model.zero_grad()
    return found


for what in (
    "plain", "no_sync", "unused", "unused here", "unused, gathered before", "static", "views", "own buffers", "hook",
    "two forward passes", "evaluation", "join", "join, of those that have a batch",
):  # fmt: skip
    for i, (ours, theirs) in enumerate(zip(scenario(norch, what), scenario(torch, what), strict=True)):
        assert (ours is None) == (theirs is None), (what, i, ours, theirs)
        if ours is not None:
            bound = 2e-2 if what == "hook" else 1e-5
            np.testing.assert_allclose(ours, theirs, rtol=bound, atol=bound, err_msg=f"{what} {i}")
    if rank == 0:
        print("equal:", what, flush=True)

for count in range(1, 12):
    for drop in (False, True):
        given = dict(shuffle=False, drop_last=drop)
        samplers = [lib.utils.data.distributed.DistributedSampler(range(count), **given) for lib in (norch, torch)]
        assert [len(s) for s in samplers] == [samplers[0].num_samples] * 2
        assert list(samplers[0]) == list(samplers[1])
torch.distributed.destroy_process_group()
norch.distributed.destroy_process_group()
