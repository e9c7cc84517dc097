"""Checkpoints from which a run goes on with the same bits."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import ray.train
from ray.train import Checkpoint, CheckpointConsistencyMode

import norch

STATE, OWN = "state.norch", "worker-{}.norch"


def report(
    metrics: Mapping[str, Any],
    state: Mapping[str, Any] | None = None,
    *,
    own: Mapping[str, Any] | None = None,
    wait: bool = True,
) -> None:
    """Reports metrics to Ray Train, and with `state` a checkpoint. All workers call it.

    state: by name what a resumed run needs: objects with a `state_dict` (model, optimiser, scheduler), numbers,
        tensors. Worker 0's is kept; the random numbers of Python, NumPy and norch are, in each worker.
    own: the same for what differs between workers.
    wait: returns when Ray has the checkpoint, so that no more than what comes after it can be lost. That takes up to
        RAY_TRAIN_HEALTH_CHECK_INTERVAL_S, 2 seconds; without it two checkpoints may be on their way.
    """
    if state is None:
        ray.train.report(dict(metrics))
        return
    rank = ray.train.get_context().get_world_rank()
    with tempfile.TemporaryDirectory() as folder:
        if rank == 0:
            norch.save(_kept(state), os.path.join(folder, STATE))
        norch.save({"own": _kept(own or {}), "random": _random_state()}, os.path.join(folder, OWN.format(rank)))
        ray.train.report(dict(metrics), checkpoint=Checkpoint.from_directory(folder))
    if wait:
        ray.train.get_all_reported_checkpoints(CheckpointConsistencyMode.COMMITTED)


def resume(state: Mapping[str, Any] | None = None, *, own: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What the last checkpoint of this run holds; nothing where there is none.

    Objects in `state` and `own` that have a `load_state_dict` are loaded and left out of what is returned. Random
    numbers go on where they were: call it last, before the first step.
    """
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return {}
    with checkpoint.as_directory() as folder:
        kept = norch.load(os.path.join(folder, STATE))
        path = os.path.join(folder, OWN.format(ray.train.get_context().get_world_rank()))
        mine = norch.load(path) if os.path.exists(path) else None  # the run may have fewer workers than before
    left = _load(kept, state or {})
    if mine is not None:
        left |= _load(mine["own"], own or {})
        _set_random_state(mine["random"])
    return left


def _kept(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.state_dict() if hasattr(value, "state_dict") else value for name, value in state.items()}


def _load(kept: dict[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in state.items():
        if hasattr(value, "load_state_dict"):
            value.load_state_dict(kept.pop(name))
    return kept


def _random_state() -> dict[str, Any]:
    return {"norch": norch.get_rng_state(), "python": random.getstate(), "numpy": np.random.get_state()}


def _set_random_state(state: dict[str, Any]) -> None:
    norch.set_rng_state(state["norch"])
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
