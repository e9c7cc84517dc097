"""What scripts are told of the engine that is in the place of PyTorch's."""

from __future__ import annotations

from types import SimpleNamespace

from norch.distributed import get_backend, world


def test_an_engine_has_the_name_that_was_asked_for(monkeypatch):
    """Programs choose reductions by it: they never ask "gloo" for averages."""
    engines = {
        "mpi": SimpleNamespace(name="mpi", device_types={"cpu"}),
        "nccl": SimpleNamespace(name="nccl", device_types={"cuda"}),
    }
    monkeypatch.setattr(world.engines, "installed", lambda: list(engines.values()))
    monkeypatch.setattr(world.engines, "find", engines.__getitem__)
    monkeypatch.setattr(world, "_asked_for", {})
    monkeypatch.setattr(world, "resolve", lambda group: SimpleNamespace(name=lambda: "mpi,nccl"))
    world._chosen("mpi")
    assert get_backend() == "mpi,nccl"
    assert world._chosen("cpu:gloo,cuda:nccl") == {"cpu": engines["mpi"], "cuda": engines["nccl"]}
    assert get_backend() == "gloo,nccl"
    engines["gloo"] = SimpleNamespace(name="gloo", device_types={"cpu"})
    world._asked_for.clear()
    assert world._chosen("gloo") == {"cpu": engines["gloo"]}
    assert world._asked_for == {}
