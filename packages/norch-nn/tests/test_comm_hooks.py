"""Hooks of DistributedDataParallel by their names."""

from __future__ import annotations

from typing import Any

from norch.distributed.algorithms.ddp_comm_hooks import DDPCommHookType, default, register_ddp_comm_hook


class Model:
    def register_comm_hook(self, state: Any, hook: Any) -> None:
        self.given = state, hook.func


def test_hooks_by_name() -> None:
    model = Model()
    register_ddp_comm_hook(DDPCommHookType.FP16_COMPRESS, model)
    assert model.given == (None, default.fp16_compress_hook)
    register_ddp_comm_hook(DDPCommHookType["ALLREDUCE"], model, state="group")
    assert model.given == ("group", default.allreduce_hook)
