"""A model cut into a stage a rank, beside the whole one that each rank has too, in float64."""

import copy
import sys
from unittest import TestCase

import norch
import norch.distributed as dist
import norch.nn.functional as F
from norch import nn
from norch.distributed.device_mesh import init_device_mesh
from norch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from norch.nn.parallel import DistributedDataParallel

raises = TestCase().assertRaisesRegex  # pytest takes as long to import as norch.nn

dist.init_process_group(timeout=30)
rank, size = dist.get_rank(), dist.get_world_size()
WIDTH, PIECES = 6, 8


class Stage(nn.Module):
    """Passes on two tensors and the integers by which it shifts."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, y, shift):
        return norch.tanh(self.first(x)) + y, self.second(x * y) + shift.unsqueeze(-1), shift


class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, shift):
        return self.inner(x), x * 1.0, shift


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, x, y, shift, scale=None):
        out = self.head(x * y)
        return out if scale is None else out * scale


norch.manual_seed(2)
layers = nn.ModuleList([First(), *(Stage() for _ in range(size - 2)), Last()]).double()
x, shift = norch.randn(16, WIDTH, dtype=norch.float64), norch.randint(0, 3, (16,))
scale, target = norch.rand(16, 1, dtype=norch.float64), norch.randint(0, 5, (16,))


def whole(x, shift, scale=None):
    values = x, shift
    for layer in layers[:-1]:
        values = layer(*values)
    return layers[-1](*values, scale)


expected = whole(x, shift, scale)
loss = F.cross_entropy(expected, target)
loss.backward()
mine = layers[rank]


class Counted(dict):
    """What a stage holds, and how much it was at most."""

    most = 0

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.most = max(self.most, len(self))


def step(schedule, method="step", batch=slice(None)):
    losses = []
    if schedule.stage.is_first:
        return getattr(schedule, method)(x[batch], shift[batch]), losses
    if schedule.stage.is_last:
        return getattr(schedule, method)(target=target[batch], losses=losses, scale=scale[batch]), losses
    return getattr(schedule, method)(), losses


for kind, most in ((ScheduleGPipe, PIECES), (Schedule1F1B, size - rank)):
    module = copy.deepcopy(mine)
    module.zero_grad()
    stage = PipelineStage(module, rank, size, "cpu")
    stage.held = Counted()
    schedule = kind(stage, PIECES, F.cross_entropy)
    for times in (1, 2):  # gradients are added up
        out, losses = step(schedule)
        for p, q in zip(module.parameters(), mine.parameters(), strict=True):
            assert (p.grad - times * q.grad).abs().max() < 1e-12, kind
    assert stage.held.most == min(most, PIECES), (kind, stage.held.most)
    assert not stage.held
    if stage.is_last:
        assert (out - expected).abs().max() < 1e-12
        assert abs(sum(losses).item() / PIECES - loss.item()) < 1e-12
        assert len(losses) == PIECES
    else:
        assert out is None

# Other shapes, no gradients, fewer microbatches than stages.
out, losses = step(schedule, "eval", slice(PIECES))
if rank == size - 1:
    assert (out - expected[:PIECES]).abs().max() < 1e-12
    assert len(losses) == PIECES
module.zero_grad()
step(Schedule1F1B(stage, 1, F.cross_entropy))
for p, q in zip(module.parameters(), mine.parameters(), strict=True):
    assert (p.grad - q.grad).abs().max() < 1e-12

# Over the batch too, where DistributedDataParallel reduces once a step.
mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("data", "pipeline"))
norch.manual_seed(4)
parts = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double() for _ in range(size // 2)]
y = norch.randn(16, WIDTH, dtype=norch.float64)
F.mse_loss(nn.Sequential(*parts)(x), y).backward()
at, row = mesh.get_local_rank("pipeline"), mesh.get_local_rank("data")
for kind in (ScheduleGPipe, Schedule1F1B):
    module = copy.deepcopy(parts[at])
    module.zero_grad()
    ddp = DistributedDataParallel(module, process_group=mesh.get_group("data"))
    stage = PipelineStage(ddp, at, size // 2, "cpu", group=mesh.get_group("pipeline"))
    given = [x.chunk(2)[row]] if stage.is_first else []
    kind(stage, 4, F.mse_loss).step(*given, target=y.chunk(2)[row] if stage.is_last else None)
    for p, q in zip(module.parameters(), parts[at].parameters(), strict=True):
        assert (p.grad - q.grad).abs().max() < 1e-12, kind

with raises(ValueError, "each stage is a process, in order"):
    PipelineStage(module, rank, size + 1, "cpu")
schedule = Schedule1F1B(stage, 8, F.mse_loss)
with raises(norch.ShapeError, r"dim 0 of \(7, 6\) cannot be cut into 8 microbatches"):
    schedule.step(x[:7])
with norch.no_grad(), raises(RuntimeError, r"call eval\(\)"):
    schedule.step(x)

sys.stdout.write(f"rank {rank}: gradients equal the whole batch's\n")
dist.destroy_process_group()
