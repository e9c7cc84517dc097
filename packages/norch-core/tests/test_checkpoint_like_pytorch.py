"""What a script sees after save and load is what it sees with PyTorch, where that is installed."""

from __future__ import annotations

import importlib
import io
from collections import Counter, OrderedDict
from typing import Any

import numpy as np
import pytest

import norch


def state(t: Any) -> dict[str, Any]:
    base, weight = t.arange(24).reshape(4, 6), t.ones(3, 2, requires_grad=True)
    return {
        "views": [base[1:], base[:, ::2], base.t(), base[2, 3], base.reshape(-1)[5:9], base.clone()],
        "tied": {"a": weight, "b": weight.detach(), "c": weight, "d": weight * 2},
        "expanded": t.ones(1).expand(5),
        "dtypes": [t.tensor([1, 0, 2]).to(getattr(t, n)) for n in "bool uint8 int16 float16 bfloat16 float64".split()],
        "optimizer": {
            "state": {0: {"step": 3, "m": t.zeros(2)}},
            "param_groups": [{"betas": (0.9, 0.99), "params": [0]}],
        },
        "more": OrderedDict(a=None, b=Counter([3, 3]), c={1, 2}, d=b"x", e=float("inf"), f=1 + 2j),
        "kinds": [weight.shape, t.float16, t.device("cpu")],
        "empty": t.empty(0, 3),
    }


def report(found: dict[str, Any]) -> list[Any]:
    """What a script could tell about it."""
    tied, views = found["tied"], found["views"]
    seen: list[Any] = [list(found), [v.requires_grad for v in tied.values()], [v.is_leaf for v in tied.values()]]
    seen.append([a is b for a in tied.values() for b in tied.values()])
    seen += [[v.stride() for v in views], found["expanded"].stride(), found["empty"].shape == (0, 3)]
    for i, view in enumerate(views):
        view.fill_(-i)
        seen.append([v.tolist() for v in views])
    tied["b"].fill_(5)
    seen += [[v.tolist() for v in tied.values()], [v.tolist() for v in found["dtypes"]], found["expanded"].tolist()]
    seen += [str(v.dtype).partition(".")[2] for v in found["dtypes"]]
    optimizer = found["optimizer"]
    seen += [optimizer["param_groups"], optimizer["state"][0]["step"], optimizer["state"][0]["m"].tolist()]
    seen += [found["more"], type(found["more"]).__name__, [type(v).__name__ for v in found["more"].values()]]
    seen += [tuple(found["kinds"][0]), [str(v).partition(".")[2] for v in found["kinds"][:2]], found["kinds"][2].type]
    return seen


def round_trip(t: Any) -> list[Any]:
    file = io.BytesIO()
    t.save(state(t), file)
    file.seek(0)
    return report(t.load(file, weights_only=False))


def test_the_same_is_seen_after_loading() -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = round_trip(norch), round_trip(torch)
    for a, b in zip(ours, theirs, strict=True):
        assert a == b


def test_signatures() -> None:
    """A script's calls by keyword and position fit."""
    file = io.BytesIO()
    norch.save(obj={"a": 1}, f=file)
    file.seek(0)
    assert norch.load(f=file, map_location="cpu", weights_only=True, mmap=False) == {"a": 1}
    assert importlib.import_module("norch").save is norch.save
    assert {"save", "load"} <= set(dir(norch))


def test_in_the_place_of_pytorch_a_state_is_saved_as_pytorch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("norch.shown.root", "torch")
    file = io.BytesIO()
    norch.save(state(norch), file)
    assert file.getvalue()[:2] == b"PK"
    assert norch.load(io.BytesIO(file.getvalue()))["expanded"].stride() == (0,)
    for only_ours in (np.ones(2), [frozenset({1})]):
        other = io.BytesIO()
        norch.save(only_ours, other)
        assert repr(norch.load(io.BytesIO(other.getvalue()), weights_only=False)) == repr(only_ours)
    torch = pytest.importorskip("torch")
    found = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    assert found["optimizer"]["param_groups"] == [{"betas": (0.9, 0.99), "params": [0]}]
    assert found["tied"]["a"] is found["tied"]["c"]
