"""Attributes that a program set on tensors, tensors of classes of its own, and storages, in files."""

from __future__ import annotations

import io
from collections import OrderedDict
from typing import Any

import pytest
from pytorch_files import Name, Storage, floats, legacy, tensor, torch, zipped

import norch
from norch import CheckpointError, DTypeError

SIX = floats(0, 1, 2, 3, 4, 5)


class Marked(norch.Tensor):
    pass


class Counted(norch.Tensor):
    def __setstate__(self, state: Any) -> None:
        self.given = state


def written(kind: Name, state: Any) -> Any:
    """As PyTorch pickles a tensor that has attributes."""
    place = Storage(torch("FloatStorage"), "0", 6), 0, (2, 3), (3, 1), False, OrderedDict()
    function = Name("torch._utils", "_rebuild_tensor_v2")
    return Name("torch._tensor", "_rebuild_from_type_v2")(function, kind, place, state)


def load(content: bytes, **kwargs: Any) -> Any:
    return norch.load(io.BytesIO(content), **kwargs)


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("state", [{"name": "w", "more": [1, 2]}, (None, {"name": "w", "more": [1, 2]})])
def test_attributes_of_a_tensor_of_pytorchs(state: Any, weights_only: bool) -> None:
    tree = written(torch("Tensor"), state)
    for content in (zipped(tree, {"0": SIX}), legacy(tree, {"0": (6, SIX)})):
        found = load(content, weights_only=weights_only)
        assert (type(found), found.tolist(), found.name, found.more) == (
            norch.Tensor, [[0, 1, 2], [3, 4, 5]], "w", [1, 2],
        )  # fmt: skip


def test_attributes_take_no_place_of_the_classs_own() -> None:
    found = load(zipped(written(torch("Tensor"), {"backward": 3, "mine": 4}), {"0": SIX}))
    assert callable(found.backward)
    assert found.mine == 4
    with pytest.raises(CheckpointError, match="attributes of a tensor have no names"):
        load(zipped(written(torch("Tensor"), {1: 2}), {"0": SIX}))


def test_attributes_of_a_parameter_of_pytorchs() -> None:
    rebuild = Name("torch._utils", "_rebuild_parameter_with_state")
    tree = rebuild(tensor("0", 6, (6,)), True, OrderedDict(), {"tag": "x"})
    for weights_only in (True, False):
        found = load(zipped(tree, {"0": SIX}), weights_only=weights_only)
        assert (found.requires_grad, found.tag) == (True, "x")


def test_a_class_is_made_where_it_is_declared_or_the_file_is_trusted() -> None:
    content = zipped(written(Name(__name__, "Marked"), {"name": "w"}), {"0": SIX})
    with pytest.raises(CheckpointError, match="Marked"):
        load(content)
    with norch.serialization.safe_globals([Marked]):
        declared = load(content)
    for found in (declared, load(content, weights_only=False)):
        assert (type(found), found.name, found.tolist()) == (Marked, "w", [[0, 1, 2], [3, 4, 5]])
    own = load(zipped(written(Name(__name__, "Counted"), {"a": 1}), {"0": SIX}), weights_only=False)
    assert own.given == {"a": 1}


@pytest.mark.parametrize("format", ["safetensors", "pytorch"])
def test_attributes_are_saved(format: str) -> None:
    other = norch.arange(2.0)
    x = norch.ones(3, requires_grad=True)
    x.tag, x.other = "x", {"beside": other}  # type: ignore[attr-defined]
    file = io.BytesIO()
    norch.save({"x": x, "again": x, "other": other}, file, format=format)
    found = load(file.getvalue())
    assert (found["x"].tag, found["x"].requires_grad) == ("x", True)
    assert found["again"] is found["x"]
    assert found["x"].other["beside"] is found["other"]
    assert vars(found["other"]) == {}


def test_a_tensor_that_holds_itself() -> None:
    x = norch.ones(2)
    x.me = [x]  # type: ignore[attr-defined]
    file = io.BytesIO()
    norch.save(x, file)
    found = load(file.getvalue())
    assert found.me[0] is found
    with pytest.raises(DTypeError, match="holds that tensor"):
        norch.save(x, io.BytesIO(), format="pytorch")


def test_a_state_keeps_classes_where_norch_stands_in_for_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    x = norch.ones(2).as_subclass(Marked)
    x.name = "w"  # type: ignore[attr-defined]
    file = io.BytesIO()
    norch.save([x], file)
    assert type(load(file.getvalue())[0]) is norch.Tensor
    monkeypatch.setattr("norch.shown.root", "torch")
    file = io.BytesIO()
    norch.save([x], file)
    with pytest.raises(CheckpointError, match="Marked"):
        load(file.getvalue())
    with norch.serialization.safe_globals([Marked]):
        declared = load(file.getvalue())
    for (found,) in (declared, load(file.getvalue(), weights_only=False)):
        assert (type(found), found.name, found.tolist()) == (Marked, "w", [1, 1])


def test_pytorch_reads_attributes() -> None:
    real = pytest.importorskip("torch")
    x = norch.ones(3, requires_grad=True)
    x.tag = ["x", 1]  # type: ignore[attr-defined]
    file = io.BytesIO()
    norch.save({"x": x}, file, format="pytorch")
    for weights_only in (True, False):
        file.seek(0)
        found = real.load(file, weights_only=weights_only)["x"]
        assert (found.tag, found.requires_grad, found.tolist()) == (["x", 1], True, [1, 1, 1])


@pytest.mark.parametrize("weights_only", [True, False])
def test_storages_of_pytorch(weights_only: bool) -> None:
    kept = Storage(torch("FloatStorage"), "0", 6)
    raw = Storage(Name("torch.storage", "UntypedStorage"), "1", 4)
    tree = {"memory": kept, "row": tensor("0", 6, (3,)), "bytes": raw}
    parts = {"0": SIX, "1": bytes([1, 2, 3, 4])}
    for content in (zipped(tree, parts), legacy(tree, {"0": (6, SIX), "1": (4, parts["1"])})):
        found = load(content, weights_only=weights_only)
        assert type(found["memory"]) is type(found["bytes"]) is norch.TypedStorage
        assert (found["memory"].tolist(), found["bytes"].tolist()) == ([0, 1, 2, 3, 4, 5], [1, 2, 3, 4])
        assert found["memory"].data_ptr() == found["row"].data_ptr()


@pytest.mark.parametrize("format", ["safetensors", "pytorch"])
def test_storages_are_saved(format: str) -> None:
    x = norch.arange(6.0)
    file = io.BytesIO()
    other = norch.ones(2, dtype=norch.int16).untyped_storage()
    norch.save({"x": x[2:], "memory": x.storage(), "bytes": other}, file, format=format)
    found = load(file.getvalue())
    assert (found["memory"].tolist(), found["bytes"].tolist()) == (x.tolist(), [1, 0, 1, 0])
    found["memory"][2] = 9.0
    assert found["x"].tolist() == [9, 3, 4, 5]
    with pytest.raises(DTypeError, match="different dtypes"):
        norch.save([x, x.untyped_storage()], io.BytesIO(), format=format)


@pytest.mark.parametrize("format", ["safetensors", "pytorch"])
def test_what_says_of_which_ranks_a_piece_is_stays(format: str) -> None:
    piece = norch.ones(2)
    piece.shard = type("Shard", (), {"__module__": "norch.distributed.shard"})()  # type: ignore[attr-defined]
    file = io.BytesIO()
    norch.save({"piece": piece}, file, format=format)
    assert vars(load(file.getvalue())["piece"]) == {}
