"""A job of one process, which needs no engine: against what each collective means for one member, and the kit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import norch
import norch.distributed as dist
from norch import nn
from norch.distributed import DistributedError, engines
from norch.distributed.alone import ALONE
from norch.distributed.conformance.cases import CASES, Kit
from norch.distributed.fsdp import FullyShardedDataParallel
from norch.distributed.spawning import spawn
from norch.distributed.store import HashStore


@pytest.fixture(autouse=True)
def no_engine_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_registered", [])
    monkeypatch.setattr(engines, "_installed", [])
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def job(request: pytest.FixtureRequest) -> Iterator[None]:
    dist.init_process_group(getattr(request, "param", "gloo"), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_the_kit() -> None:
    kit = Kit(ALONE, 0, 1, HashStore(), 5.0)
    for case in CASES.values():
        if case.__name__ != "exchange_alone":  # of two members, one of which waits for the other
            case(kit)


@pytest.mark.parametrize(("job", "name"), [("gloo", "gloo"), ("mpi", "mpi"), (None, "alone")], indirect=["job"])
def test_it_goes_by_the_name_that_was_asked_for(job: None, name: str) -> None:
    assert (dist.get_backend(), dist.get_rank(), dist.get_world_size()) == (name, 0, 1)


def test_collectives_give_back_what_there_is(job: None) -> None:
    x = norch.arange(4.0)
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX):
        dist.all_reduce(x, op)
    half = norch.ones(3, dtype=norch.bfloat16)
    dist.all_reduce(half, group=dist.new_group([0]))
    gathered, one, part, swapped = [norch.zeros(4)], norch.zeros(4), norch.zeros(4), norch.zeros(4)
    dist.all_gather(gathered, x)
    dist.all_gather_into_tensor(one, x)
    dist.reduce_scatter_tensor(part, x)
    dist.all_to_all_single(swapped, x)
    dist.broadcast(x, 0)
    dist.barrier()
    for found in (x, gathered[0], one, part, swapped):
        assert found.tolist() == [0, 1, 2, 3]
    assert half.tolist() == [1, 1, 1]
    objects: list[Any] = [None]
    dist.all_gather_object(objects, {"a": 1})
    assert objects == [{"a": 1}]


def test_a_model_that_is_trained_alone(job: None) -> None:
    net = nn.parallel.DistributedDataParallel(nn.Linear(3, 2))
    net(norch.ones(4, 3)).sum().backward()
    assert net.module.weight.grad.tolist() == [[4, 4, 4], [4, 4, 4]]


def test_several_processes_need_an_engine() -> None:
    for backend in ("gloo", "mpi", None):
        with pytest.raises(DistributedError, match="engine"):
            engines.chosen(backend, 2)
    with pytest.raises(DistributedError, match="engine 'nccl' cannot be used"):
        engines.chosen("nccl", 1)
    with pytest.raises(DistributedError, match="for one process, not 2"):
        ALONE.connect([0, 1], 0, HashStore(), 1.0)


def test_captured_steps_are_told_of_collectives(job: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one process they are nothing; of several a replay would leave them out."""

    def step(x: norch.Tensor) -> norch.Tensor:
        y = x * 2
        dist.all_reduce(y)
        return y + 1

    group = dist.group.WORLD
    for size, replayed in ((1, 5), (2, 0)):
        monkeypatch.setattr(type(group), "size", lambda self, size=size: size)
        captured = norch.capture(step)
        for i in range(8):
            assert captured(norch.full((3,), float(i))).tolist() == [2.0 * i + 1] * 3
        report = captured.report()
        assert report.replayed == replayed, str(report)
    assert "all_reduce(sum) of float32 (3,) gives the device work" in str(report), str(report)


def test_a_group_ends_with_the_process_that_spawn_started() -> None:
    def work(rank: int) -> None:
        dist.init_process_group("gloo", rank=rank, world_size=1)

    for _ in range(2):
        spawn(work, nprocs=1)
        assert not dist.is_initialized()
    dist.init_process_group("gloo", rank=0, world_size=1)
    spawn(lambda rank: None, nprocs=1)
    assert dist.is_initialized()
    dist.destroy_process_group()


def test_a_sharded_module_has_the_attributes_of_the_one_within(job: None) -> None:
    within = nn.Linear(2, 2)
    within.note = "kept"
    module = FullyShardedDataParallel(within)
    assert module.note == "kept"
    with pytest.raises(AttributeError, match="nothing"):
        _ = module.nothing
