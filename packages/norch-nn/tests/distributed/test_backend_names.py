"""What scripts are told of the engine that is in the place of PyTorch's."""

from __future__ import annotations

from types import SimpleNamespace

from norch.distributed import engines, get_backend, world


def test_an_engine_has_the_name_that_was_asked_for(monkeypatch):
    """Programs choose reductions by it: they never ask "gloo" for averages."""
    found = {
        "mpi": SimpleNamespace(name="mpi", device_types={"cpu"}),
        "nccl": SimpleNamespace(name="nccl", device_types={"cuda"}),
    }
    monkeypatch.setattr(engines, "installed", lambda: list(found.values()))
    monkeypatch.setattr(engines, "find", found.__getitem__)
    monkeypatch.setattr(engines, "asked_for", {})
    monkeypatch.setattr(world, "resolve", lambda group: SimpleNamespace(name=lambda: "mpi,nccl"))
    engines.chosen("mpi")
    assert get_backend() == "mpi,nccl"
    assert engines.chosen("cpu:gloo,cuda:nccl") == {"cpu": found["mpi"], "cuda": found["nccl"]}
    assert get_backend() == "gloo,nccl"
    found["gloo"] = SimpleNamespace(name="gloo", device_types={"cpu"})
    engines.asked_for.clear()
    assert engines.chosen("gloo") == {"cpu": found["gloo"]}
    assert engines.asked_for == {}
