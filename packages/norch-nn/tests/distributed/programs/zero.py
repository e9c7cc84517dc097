"""ZeroRedundancyOptimizer against the plain optimiser, and what it keeps in memory."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import norch
import norch.distributed as dist
from norch import nn, optim
from norch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
from norch.distributed.optim import ZeroRedundancyOptimizer, zero_redundancy_optimizer
from norch.optim.lr_scheduler import StepLR

dist.init_process_group("mpi", timeout=30)
rank, size = dist.get_rank(), dist.get_world_size()


def model(dtype: norch.DType = norch.float32) -> nn.Module:
    norch.manual_seed(0)
    net = nn.Sequential(nn.Linear(9, 64), nn.Tanh(), nn.Conv1d(5, 3, 3), nn.Flatten(), nn.Linear(186, 1)).to(dtype)
    return net.append(nn.Linear(1, 1, bias=False).to(dtype))  # unused below: without a gradient


def gradients(net: nn.Module, step: int) -> norch.Tensor:
    """Those of the same batch on all ranks, as DDP leaves them."""
    norch.manual_seed(step)
    x = norch.randn(4, 5, 9, dtype=net[0].weight.dtype)
    loss = net[:5](x).square().mean()
    loss.backward()
    return loss


def same(a: Any, b: Any) -> bool:
    if isinstance(a, norch.Tensor):
        return a.shape == b.shape and (a == b).all().item()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return a == b


def agree(net: nn.Module) -> None:
    for p in net.parameters():
        mine = [norch.empty_like(p) for _ in range(size)]
        dist.all_gather(mine, p)
        assert all((m == p).all().item() for m in mine)


FULL = StateDictOptions(full_state_dict=True)
OPTIMISERS: dict[type[optim.Optimizer], dict[str, Any]] = {
    optim.SGD: {"momentum": 0.9, "weight_decay": 0.1},
    optim.Adam: {"amsgrad": True},
    optim.AdamW: {},
    optim.Adadelta: {},
    optim.Adagrad: {},
    optim.Adamax: {},
    optim.ASGD: {},
    optim.NAdam: {},
    optim.RAdam: {},
    optim.RMSprop: {"centered": True, "momentum": 0.5},
    optim.Rprop: {},
    optim.Lion: {},
}
apart = {}
for number, (kind, options) in enumerate(OPTIMISERS.items()):
    whole, net = model(), model()
    as_view = bool(number % 2)
    zero_redundancy_optimizer.BUCKET = 1000 if number % 3 else 32 << 20
    if not as_view:
        net[0].weight.data = net[0].weight.data.t().contiguous().t()  # not in row-major order
    one = kind(whole.parameters(), lr=0.01, **options)
    all_ = ZeroRedundancyOptimizer(net.parameters(), kind, parameters_as_bucket_view=as_view, lr=0.01, **options)
    schedules = StepLR(one, 2, 0.5), StepLR(all_, 2, 0.5)
    for step in range(4):
        for net_, optimizer, schedule in ((whole, one, schedules[0]), (net, all_, schedules[1])):
            if step % 2:
                optimizer.step(lambda o=optimizer, m=net_, s=step: (o.zero_grad(), gradients(m, s))[1])
            else:
                optimizer.zero_grad()
                gradients(net_, step)
                optimizer.step()
            schedule.step()
    assert all_.param_groups[0]["lr"] == one.param_groups[0]["lr"] == 0.0025
    far = max((p - q).abs().max().item() for p, q in zip(whole.parameters(), net.parameters(), strict=True))
    apart[kind.__name__] = far
    agree(net)
    all_.consolidate_state_dict(to=size - 1)
    if rank == size - 1:
        state, plain = all_.state_dict(), one.state_dict()
        if far == 0:
            assert same({k: v for k, v in state["state"].items() if v}, {k: v for k, v in plain["state"].items() if v})
        assert state["param_groups"] == plain["param_groups"]
    # From the plain optimiser's state on, the steps are its steps.
    again = ZeroRedundancyOptimizer(net.parameters(), kind, lr=1.0, **options)
    again.load_state_dict(one.state_dict())
    net.load_state_dict(whole.state_dict())
    for net_, optimizer in ((whole, one), (net, again)):
        optimizer.zero_grad()
        gradients(net_, 9)
        optimizer.step()
    far = max((p - q).abs().max().item() for p, q in zip(whole.parameters(), net.parameters(), strict=True))
    assert far <= apart[kind.__name__], kind
assert max(apart.values()) <= 1e-7, apart
if rank == 0:
    print("apart:", {k: v for k, v in apart.items() if v} or "nothing")

# One large weight is shared out evenly too: the state of each rank is 1 / N of the whole.
big = nn.Sequential(nn.Linear(300, 200), nn.Linear(200, 3))
plain, shared = optim.AdamW(big.parameters()), ZeroRedundancyOptimizer(big.parameters(), optim.AdamW)
(big(norch.ones(1, 300)).sum()).backward()
plain.step()
shared.step()


def size_of(optimizer: optim.Optimizer) -> int:
    tensors = [v for s in optimizer.state.values() for v in s.values() if isinstance(v, norch.Tensor)]
    return sum({id(t.buffer): t.buffer.nbytes for t in tensors}.values())


share = size_of(shared.optim) * size / size_of(plain)
assert share <= 1.1, share
if rank == 0:
    print(f"state {share:.3f} of total / {size}")

# Groups, and one that comes later; options are read at each step.
whole, net = model(norch.float64), model(norch.float64)
optimisers = []
for m, make in ((whole, optim.AdamW), (net, lambda g, **o: ZeroRedundancyOptimizer(g, optim.AdamW, **o))):
    optimizer = make([{"params": m[0].parameters(), "lr": 0.1}, {"params": [m[2].weight], "weight_decay": 0.5}], lr=0.3)
    gradients(m, 0)
    optimizer.step()
    optimizer.add_param_group({"params": [m[2].bias, *m[4].parameters()], "betas": (0.5, 0.9)})
    optimizer.param_groups[1]["lr"] = 0.01
    optimizer.zero_grad()
    gradients(m, 1)
    optimizer.step()
    optimisers.append(optimizer)
assert all((p - q).abs().max().item() <= 1e-15 for p, q in zip(whole.parameters(), net.parameters(), strict=True))
assert [g["lr"] for g in optimisers[1].param_groups] == [0.1, 0.01, 0.3]
assert "lr: 0.01" in repr(optimisers[1])

# With DistributedDataParallel ranks with a part of the batch do what one process does with all of it.
for kind, options, most in (
    (optim.SGD, {"momentum": 0.9}, 1e-6),
    (optim.AdamW, {}, 2e-5),
):
    norch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(9, 64), nn.Tanh(), nn.Linear(64, 1))
    net = nn.parallel.DistributedDataParallel(deepcopy(whole))
    one = kind(whole.parameters(), lr=0.01, **options)
    all_ = ZeroRedundancyOptimizer(net.parameters(), kind, lr=0.01, **options)
    for _ in range(5):
        x = norch.randn(4 * size, 9)
        for m, optimizer, part in ((whole, one, x), (net, all_, x[4 * rank : 4 * rank + 4])):
            optimizer.zero_grad()
            m(part).square().mean().backward()
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            optimizer.step()
    far = max((p - q).abs().max().item() for p, q in zip(whole.parameters(), net.parameters(), strict=True))
    assert far <= most, (kind, far)
    agree(net)
    states = [get_optimizer_state_dict(m, o, options=FULL) for m, o in ((whole, one), (net, all_))]
    assert states[0]["state"].keys() == states[1]["state"].keys() == dict(whole.named_parameters()).keys()
    assert states[0]["param_groups"] == states[1]["param_groups"]

for wrong, text in (
    (lambda: ZeroRedundancyOptimizer(net.parameters(), optim.LBFGS), "LBFGS looks at more than one element"),
    (lambda: ZeroRedundancyOptimizer(net.parameters(), optim.SparseAdam), "SparseAdam looks at more than one"),
    (lambda: ZeroRedundancyOptimizer(net.parameters(), optim.SGD, lr=-1.0), "lr|learning rate"),
    (lambda: optimisers[1].state_dict(), "consolidate_state_dict"),
    (lambda: ZeroRedundancyOptimizer([], optim.SGD), "empty"),
):
    try:
        wrong()
    except (ValueError, RuntimeError) as error:
        assert any(t in str(error) for t in text.split("|")), error
    else:
        raise AssertionError(text)

print(f"rank {rank} of {size}: all right\n", end="")
dist.destroy_process_group()
