"""Checkpoints of two, four and one ranks, loaded by others: bit for bit, the model and both kinds of optimisers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import norch
import norch.distributed as dist
import norch.distributed.checkpoint as dcp
from norch import nn, optim
from norch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from norch.distributed.fsdp import fully_shard
from norch.distributed.optim import ZeroRedundancyOptimizer
from norch.optim.lr_scheduler import StepLR

dist.init_process_group("mpi", timeout=30)
rank = dist.get_rank()
folder = Path(sys.argv[1])
groups = {n: dist.new_group(list(range(n))) for n in (1, 2, 4)}
FULL = StateDictOptions(full_state_dict=True)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(7)
        self.first, self.second = nn.Linear(7, 13), nn.Linear(13, 3, bias=False)
        self.scale = nn.Parameter(norch.ones(()))

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return self.second(self.first(self.norm(x)).tanh()) * self.scale


class Training:
    """kind: how state is shared out among `n` ranks."""

    def __init__(self, kind: str, n: int, seed: int) -> None:
        norch.manual_seed(seed)
        self.net, self.step, group = Net(), 0, groups[n]
        if kind == "fsdp":
            fully_shard(self.net.first, mesh=group)
            fully_shard(self.net, mesh=group)
        parts = [p for p in self.net.parameters() if p is not self.net.first.bias]
        params = [{"params": parts}, {"params": [self.net.first.bias], "weight_decay": 0.5}]
        if kind == "zero":
            self.optimizer: Any = ZeroRedundancyOptimizer(params, optim.AdamW, process_group=group, lr=0.1)
        else:
            self.optimizer = optim.AdamW(params, lr=0.1)
        self.schedule = StepLR(self.optimizer, 2, 0.5)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            norch.manual_seed(self.step)
            self.optimizer.zero_grad()
            self.net(norch.randn(6, 7)).square().mean().backward()
            self.optimizer.step()
            self.schedule.step()
            self.step += 1

    def state(self, options: StateDictOptions | None = None) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.net, self.optimizer, options=options)
        return {"model": model, "optimizer": optimizer, "schedule": self.schedule.state_dict(), "step": self.step}

    def save(self, path: Path, n: int) -> None:
        dcp.save(self.state(), checkpoint_id=path, process_group=groups[n])

    def load(self, path: Path, n: int) -> None:
        state = self.state()
        dcp.load(state, checkpoint_id=path, process_group=groups[n])
        set_state_dict(self.net, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.step = state["step"]


def same(a: Any, b: Any, where: str = "") -> None:
    if isinstance(a, norch.Tensor):
        assert a.dtype is b.dtype, where
        assert a.shape == b.shape, (where, a.shape, b.shape)
        assert (a == b).all().item(), where
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), (where, list(a), list(b))
        for key in a:
            same(a[key], b[key], f"{where}.{key}")
    else:
        assert a == b, (where, a, b)


for kind in ("fsdp", "zero"):
    told: list[Any] = [None]
    if rank < 2:
        training = Training(kind, 2, seed=1)
        training.train(3)
        training.save(folder / kind / "2", 2)
        told = [training.state(FULL)]
    dist.broadcast_object_list(told, 0)
    for before, n in ((2, 4), (4, 1), (1, 2)):
        if rank < n:
            training = Training(kind, n, seed=2)
            training.load(folder / kind / str(before), n)
            same(training.state(FULL), told[0], f"{kind} {before} -> {n}")
            training.save(folder / kind / str(n), n)
            training.train(1)  # goes on
            assert training.step == 4
        dist.barrier()
    # What fully_shard saved a whole model reads, and the plain optimiser.
    if rank == 0:
        alone = Training("plain", 1, seed=3)
        alone.load(folder / kind / "4", 1)
        same(alone.state(), told[0], f"{kind} -> plain")

# One rank that cannot write or read makes all of them say so; the checkpoint before is as it was.
training = Training("fsdp", 4, seed=4)
kept = norch.save_safetensors
if rank == 2:
    norch.save_safetensors = lambda *_: (_ for _ in ()).throw(OSError("no space left"))
try:
    training.save(folder / "fsdp" / "4", 4)
except (OSError, norch.CheckpointError) as error:
    assert "no space left" in str(error)
    assert rank == 2 or "rank 2 has failed" in str(error), error
else:
    raise AssertionError
norch.save_safetensors = kept
training.load(folder / "fsdp" / "4", 4)
same(training.state(FULL)["step"], 3)
assert len(list((folder / "fsdp" / "4").iterdir())) == 2  # the index and its folder
dist.barrier()
lost = next((folder / "fsdp" / "4").glob("*/00003-of-00004.safetensors"))
dist.barrier()
if rank == 0:
    lost.unlink()
dist.barrier()
try:
    training.load(folder / "fsdp" / "4", 4)
except norch.CheckpointError as error:
    assert "00003-of-00004.safetensors is missing" in str(error), error
else:
    raise AssertionError

# What rank 0 alone has is set on all.
norch.manual_seed(rank)
net = Net()
state = {name: t.clone() for name, t in net.state_dict().items()} if rank == 0 else {}
options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
result = set_model_state_dict(net, state, options=options)
assert not result.missing_keys and not result.unexpected_keys
norch.manual_seed(0)
same(net.state_dict(), Net().state_dict())

print(f"rank {rank}: all right\n", end="")
dist.destroy_process_group()
