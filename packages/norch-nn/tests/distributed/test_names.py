"""Names that programs import of norch.distributed without processes."""

from __future__ import annotations

import pytest

import norch.distributed as dist
from norch.distributed.fsdp import OffloadPolicy
from norch.distributed.nn import all_gather, all_reduce
from norch.distributed.tensor import DeviceMesh, init_device_mesh


def test_what_hooks_are_annotated_with() -> None:
    def hook(state: object, bucket: dist.GradBucket) -> None: ...

    assert hook.__annotations__["bucket"] in (dist.GradBucket, "dist.GradBucket")
    assert dist.GradBucket is __import__("norch").distributed.data_parallel.buckets.GradBucket
    assert init_device_mesh is dist.init_device_mesh
    assert dist.DeviceMesh is DeviceMesh
    assert OffloadPolicy() == OffloadPolicy()
    assert all_gather.__module__ == all_reduce.__module__ == "norch.distributed.nn.functional"


def test_debug_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "info")
    dist.set_debug_level_from_env()
    assert dist.get_debug_level() is dist.DebugLevel.INFO
    dist.set_debug_level(dist.DebugLevel.OFF)
    assert dist.get_debug_level() is dist.DebugLevel.OFF
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "loud")
    with pytest.raises(ValueError, match="OFF, INFO or DETAIL"):
        dist.set_debug_level_from_env()


def test_names_of_before() -> None:
    assert dist.reduce_op.SUM is dist.ReduceOp.SUM
    assert dist._all_gather_base is dist.all_gather_into_tensor
    assert dist._reduce_scatter_base is dist.reduce_scatter_tensor
    with pytest.raises(AttributeError):
        _ = dist.reduce_op.NOTHING
    with pytest.raises(ValueError, match="each rank is in one list"):
        dist.new_subgroups_by_enumeration([[0, 1], [1]])
