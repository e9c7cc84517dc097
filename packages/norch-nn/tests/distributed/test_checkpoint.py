"""What a checkpoint says when it is damaged, and that an interrupted save leaves the one before. One process."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import norch
from norch import nn, optim
from norch.distributed import checkpoint as dcp

INDEX = "checkpoint.safetensors.index.json"


def state(seed: int) -> dict[str, Any]:
    norch.manual_seed(seed)
    return {
        "model": {"a": norch.randn(3, 4), "b": norch.randn(5).to(norch.bfloat16), "none": norch.zeros(0, 2)},
        "step": seed,
        "more": {"empty": {}, "list": [1, (2.5, None)], "flag": norch.tensor(seed > 1), "inf": float("inf")},
    }


def loaded(path: Path, into: int = 0) -> dict[str, Any]:
    found = state(into)
    dcp.load(found, checkpoint_id=path)
    return found


def same(a: Any, b: Any) -> bool:
    if isinstance(a, norch.Tensor):
        return bool(a.dtype is b.dtype and a.shape == b.shape and (a == b).all().item())
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return bool(a == b)


def test_a_state_comes_back_in_place(tmp_path: Path) -> None:
    dcp.save(state(1), checkpoint_id=tmp_path / "new" / "one")
    found = state(2)
    a = found["model"]["a"]
    dcp.load(found, checkpoint_id=str(tmp_path / "new" / "one"))
    assert same(found, state(1))
    assert found["model"]["a"] is a


def test_the_index_leads_other_programs_to_whole_tensors(tmp_path: Path) -> None:
    dcp.save(state(1), checkpoint_id=tmp_path)
    index = json.loads((tmp_path / INDEX).read_text())
    found = norch.load_safetensors(tmp_path / index["weight_map"]["model.a"])
    assert same(found["model.a"], state(1)["model"]["a"])


def test_a_model_and_its_optimizer_without_a_group(tmp_path: Path) -> None:
    def make() -> tuple[nn.Module, optim.Optimizer]:
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        return net, optim.Adam([{"params": net[0].parameters()}, {"params": net[1].parameters(), "lr": 0.5}])

    net, optimizer = make()
    net(norch.randn(6, 3)).square().sum().backward()
    optimizer.step()
    model, of_optimizer = dcp.get_state_dict(net, optimizer)
    dcp.save({"model": model, "optimizer": of_optimizer}, checkpoint_id=tmp_path)
    net2, optimizer2 = make()
    model2, of_optimizer2 = dcp.get_state_dict(net2, optimizer2)
    given = {"model": model2, "optimizer": of_optimizer2}
    dcp.load(given, checkpoint_id=tmp_path)
    dcp.set_state_dict(net2, optimizer2, model_state_dict=model2, optim_state_dict=given["optimizer"])
    assert same(net2.state_dict(), net.state_dict())
    assert same(optimizer2.state_dict()["state"], optimizer.state_dict()["state"])
    assert optimizer2.param_groups[1]["lr"] == 0.5


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*/*.safetensors"))


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def change_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-4] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(
    ("damage", "says"), [(Path.unlink, "is missing"), (cut_off, "is damaged"), (change_a_byte, "is damaged")]
)
def test_a_missing_or_damaged_file_is_named(
    tmp_path: Path, damage: Callable[[Path], object], says: str, at: int
) -> None:
    dcp.save(state(1), checkpoint_id=tmp_path)
    file = _files(tmp_path)[at]
    damage(file)
    with pytest.raises(norch.CheckpointError) as caught:
        loaded(tmp_path)
    assert f"{file} {says}" in str(caught.value)


def test_what_is_no_checkpoint_and_what_does_not_fit_says_so(tmp_path: Path) -> None:
    with pytest.raises(norch.CheckpointError, match=f"no checkpoint: there is no .*{INDEX}"):
        loaded(tmp_path)
    dcp.save(state(1), checkpoint_id=tmp_path)
    with pytest.raises(norch.CheckpointError, match="has no 'model.other'"):
        dcp.load({"model": {"other": norch.zeros(1)}}, checkpoint_id=tmp_path)
    with pytest.raises(norch.ShapeError, match=r"model.a has shape \(3, 4\) in the checkpoint .*, and \(4, 3\) here"):
        dcp.load({"model": {"a": norch.zeros(4, 3)}}, checkpoint_id=tmp_path)
    with pytest.raises(ValueError, match="two values of the state have the name 'a.b'"):
        dcp.save({"a": {"b": 1}, "a.b": 2}, checkpoint_id=tmp_path)
    assert same(loaded(tmp_path), state(1))
    kept = _files(tmp_path)
    (tmp_path / INDEX).write_text("{")
    with pytest.raises(norch.CheckpointError, match=f"{INDEX} is damaged"):
        loaded(tmp_path)
    dcp.save(state(2), checkpoint_id=tmp_path)
    assert same(loaded(tmp_path), state(2))
    assert all(file.exists() for file in kept)  # until the next save


class Killed(BaseException):
    """As if the process had ended here."""


def until(left: Iterator[int], real: Callable[..., Any]) -> Callable[..., Any]:
    """`real`, as long as there is something left; then neither this nor what comes after is done."""

    def step(*args: Any, **kwargs: Any) -> Any:
        if next(left, None) is None:
            raise Killed
        return real(*args, **kwargs)

    return step


STEPS = [(os, "mkdir"), (os, "fsync"), (os, "replace"), (shutil, "rmtree")]


def test_a_save_that_is_killed_anywhere_leaves_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dcp.save(state(1), checkpoint_id=tmp_path)
    outcomes = []
    for last in range(100):
        left = iter(range(last))
        with monkeypatch.context() as patch:
            for module, name in STEPS:
                patch.setattr(module, name, until(left, getattr(module, name)))
            try:
                dcp.save(state(2), checkpoint_id=tmp_path)
            except Killed:
                pass
            else:
                break
        found = loaded(tmp_path)
        outcomes.append(found["step"])
        assert same(found, state(found["step"]))
        if outcomes[-1] == 2:  # begin again from the old one
            dcp.save(state(1), checkpoint_id=tmp_path)
    assert outcomes == sorted(outcomes)
    assert {1, 2} == set(outcomes)
    assert len(list(tmp_path.iterdir())) == 2  # nothing is left of those that were killed


class Counter:
    def __init__(self, n: int) -> None:
        self.n = n

    def state_dict(self) -> dict[str, Any]:
        return {"n": self.n}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.n = state_dict["n"]


def trained(seed: int) -> dict[str, Any]:
    norch.manual_seed(seed)
    model = nn.Linear(3, 2)
    optimizer = optim.Adam(model.parameters(), lr=0.1 + seed)
    model(norch.ones(1, 3)).sum().backward()
    optimizer.step()
    return {"model": model, "optimizer": optimizer, "counter": Counter(seed), "step": seed}


def test_objects_take_over_their_states(tmp_path: Path) -> None:
    one, other = trained(1), trained(2)
    assert isinstance(one["counter"], dcp.Stateful)
    dcp.save(one, checkpoint_id=tmp_path)
    model = other["model"]
    dcp.load(other, checkpoint_id=tmp_path)
    assert other["model"] is model
    assert same(model.state_dict(), one["model"].state_dict())
    assert (other["counter"].n, other["step"], other["optimizer"].param_groups[0]["lr"]) == (1, 1, 1.1)
    moments = [s["optimizer"].state[s["model"].weight]["exp_avg"] for s in (one, other)]
    assert norch.equal(*moments)


def test_folders_of_writers_and_readers(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    dcp.save(state(1), storage_writer=dcp.FileSystemWriter(folder))
    found = state(0)
    dcp.load(found, storage_reader=dcp.FileSystemReader(folder))
    assert same(found, state(1))
    dcp.async_save(state(2), checkpoint_id=folder).result()
    assert same(loaded(folder), state(2))
    dcp.save_state_dict(state(3), dcp.FileSystemWriter(folder))
    found = state(0)
    dcp.load_state_dict(found, dcp.FileSystemReader(folder))
    assert same(found, state(3))
    with pytest.raises(norch.DTypeError, match="takes a checkpoint_id"):
        dcp.save(state(1))
    with pytest.raises(norch.DTypeError, match="expected a dict"):
        dcp.async_save([], checkpoint_id=folder).result()  # type: ignore[arg-type]
