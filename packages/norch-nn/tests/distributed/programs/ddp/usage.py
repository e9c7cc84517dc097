"""Models and buffers that ranks share, uneven inputs, scaled gradients, copies, groups and threads."""

from __future__ import annotations

import copy
import os

from harness import alike, gathered, promise, raises, rank, size

import norch
import norch.distributed as dist
from norch import nn
from norch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from norch.nn.parallel import DistributedDataParallel as DDP


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
