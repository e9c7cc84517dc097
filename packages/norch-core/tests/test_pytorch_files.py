"""Checkpoints of PyTorch: what is read of them, and that nothing in them is run."""

from __future__ import annotations

import argparse
import io
import pickle
import struct
import sys
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytorch_files import Call, Name, Storage, floats, legacy, state, tensor, torch, zipped

import norch
from norch import CheckpointError, DeviceError, DTypeError
from norch.testing.strict import strict_device


def load(content: bytes, *args: Any, **kwargs: Any) -> Any:
    return norch.load(io.BytesIO(content), *args, **kwargs)


SIX = floats(0, 1, 2, 3, 4, 5)


# --- What is read ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["zip", "legacy"])
def test_a_state_is_read(kind: str, tmp_path: Path) -> None:
    (tmp_path / "x.pth").write_bytes(state(kind))
    for found in (norch.load(tmp_path / "x.pth"), load(state(kind), weights_only=True), load(state(kind), None)):
        model = found["model"]
        assert type(model) is OrderedDict
        assert model["fc.weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert model["fc.weight"].requires_grad
        assert model["tied"] is model["fc.weight"]
        assert model["fc.t"].stride() == (1, 3)
        model["fc.t"].fill_(7)
        assert model["fc.weight"].tolist() == [[7] * 3] * 2
        assert (found["half"].dtype, found["half"].tolist()) == (norch.bfloat16, [1, 2, 3])
        more = [None, 1.5, "text", (1, 2), norch.float16, norch.Size((2, 3)), b"\0\xff", {4, 5}, 2**70]
        assert found["more"] == more
        assert [type(a) for a in found["more"]] == [type(b) for b in more]


KINDS = {
    "DoubleStorage": ("d", norch.float64), "FloatStorage": ("f", norch.float32), "HalfStorage": ("e", norch.float16),
    "LongStorage": ("q", norch.int64), "IntStorage": ("i", norch.int32), "ShortStorage": ("h", norch.int16),
    "CharStorage": ("b", norch.int8), "ByteStorage": ("B", norch.uint8), "BoolStorage": ("?", norch.bool),
}  # fmt: skip


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("kind", KINDS)
def test_each_dtype_in_each_byte_order(kind: str, order: str) -> None:
    code, dtype = KINDS[kind]
    data, big = struct.pack(f"{order}3{code}", 0, 1, 1), order == ">"
    members = {"byteorder": b"big" if big else b"little"}
    for content in (
        zipped(tensor("0", 3, (3,), kind=kind), {"0": data}, members),
        legacy(tensor("0", 3, (3,), kind=kind), {"0": (3, data)}, little=not big),
    ):
        found = load(content)
        assert (found.dtype, found.tolist()) == (dtype, [0, 1, 1])


def test_strides_offsets_and_sizes_without_elements() -> None:
    tree = {
        "row": tensor("0", 6, (3,), (1,), 3), "column": tensor("0", 6, (2,), (3,), 1),
        "number": tensor("0", 6, (), (), 5), "beyond": tensor("0", 6, (0,), (1,), 6),
        "expanded": tensor("0", 6, (4, 2), (0, 1)), "none": tensor("1", 0, (0, 3)),
    }  # fmt: skip
    found = load(zipped(tree, {"0": SIX, "1": b""}))
    assert {name: value.tolist() for name, value in found.items()} == {
        "row": [3, 4, 5], "column": [1, 4], "number": 5, "beyond": [], "expanded": [[0, 1]] * 4, "none": [],
    }  # fmt: skip


def test_parameters_and_containers() -> None:
    data = tensor("0", 6, (6,))
    tree = [
        Name("torch._utils", "_rebuild_parameter")(data, True, OrderedDict()),
        Name("torch._utils", "_rebuild_parameter")(data, False, OrderedDict()),
        Name("torch._tensor", "_rebuild_from_type_v2")(
            Name("torch._utils", "_rebuild_tensor_v2"), torch("Tensor"), data.args, {"note": 1}
        ),
        Name("collections", "Counter")({1: 2}),
        Name("collections", "defaultdict")(Name("__builtin__", "list")),
        Name("torch", "device")("cuda", 1),
        Name("torch", "device")("cpu"),
        Name("torch.serialization", "_get_layout")("torch.strided"),
        Name("__builtin__", "set")([1, 2]),
        Name("__builtin__", "complex")(1.0, 2.0),
        Name("__builtin__", "bytearray")(b"x"),
        Name("collections", "OrderedDict")([["a", 1]]),
    ]
    found = load(zipped(tree, {"0": SIX}))
    assert [t.requires_grad for t in found[:3]] == [True, False, False]
    assert [t.tolist() for t in found[:3]] == [[0, 1, 2, 3, 4, 5]] * 3
    assert found[3:] == [
        Counter({1: 2}), defaultdict(list), norch.device("cuda:1"), norch.device("cpu"), norch.strided, {1, 2}, 1 + 2j,
        bytearray(b"x"), OrderedDict(a=1),
    ]  # fmt: skip
    assert found[4].default_factory is list


def test_a_state_dict_keeps_its_metadata() -> None:
    tree = Call(Name("collections", "OrderedDict"), (), {"_metadata": {"": {"version": 1}}, "items": 3})
    found = load(zipped(tree))
    assert found._metadata == {"": {"version": 1}}
    assert list(found.items()) == []


@pytest.mark.parametrize("core", ["numpy.core", "numpy._core"])
def test_numpy_arrays_and_numbers(core: str) -> None:
    dtype = Call(Name("numpy", "dtype"), ("f8", False, True), (3, "<", None, None, None, -1, -1, 0))
    big = Call(Name("numpy", "dtype"), ("i2", False, True), (3, ">", None, None, None, -1, -1, 0))
    new = Name(f"{core}.multiarray", "_reconstruct")
    array = Call(new, (Name("numpy", "ndarray"), (0,), b"b"), (1, (2, 1), dtype, False, struct.pack("<2d", 1, 2)))
    other = Call(new, (Name("numpy", "ndarray"), (0,), b"b"), (1, (2,), big, True, struct.pack(">2h", 3, 4)))
    number = Name(f"{core}.multiarray", "scalar")(dtype, struct.pack("<d", 0.5))
    found = load(zipped([array, array, other, number]))
    assert found[0] is found[1]
    assert found[0].dtype == np.float64
    assert [found[0].tolist(), found[2].tolist()] == [[[1], [2]], [3, 4]]
    assert (type(found[3]), found[3]) == (np.float64, 0.5)


def test_map_location() -> None:
    device = norch.device(strict_device())
    tree = {"a": tensor("0", 6, (6,), location="strict:0"), "b": tensor("0", 6, (2,), (1,), 4, location="strict:0")}
    for content in (zipped(tree, {"0": SIX}), legacy(tree, {"0": (6, SIX)})):
        assert load(content)["a"].device is device
        for location in ("cpu", {"strict:0": "cpu"}, lambda storage, location: storage.cpu()):
            found = load(content, location)
            assert (found["a"].device.type, found["a"].tolist()) == ("cpu", [0, 1, 2, 3, 4, 5])
            found["b"].fill_(0)
            assert found["a"].tolist() == [0, 1, 2, 3, 0, 0]
        assert load(content, lambda storage, location: None)["b"].tolist() == [4, 5]
    with pytest.raises(DeviceError, match="was saved on nowhere:0.*map_location='cpu'"):
        load(zipped(tensor("0", 6, (6,), location="nowhere"), {"0": SIX}))


def test_mmap(tmp_path: Path) -> None:
    path = tmp_path / "x"
    norch.save({"w": norch.arange(6.0), "b": norch.tensor([True])}, path, format="pytorch")
    found = norch.load(path, mmap=True)
    assert found["w"].tolist() == [0, 1, 2, 3, 4, 5]
    found["w"].fill_(3)
    assert norch.load(path)["w"].tolist() == [0, 1, 2, 3, 4, 5]
    path.write_bytes(legacy(tensor("0", 6, (6,)), {"0": (6, SIX)}))
    with pytest.raises(ValueError, match="mmap=True needs a zip file"):
        norch.load(path, mmap=True)


def test_a_file_object_is_read_from_where_it_stands() -> None:
    for content in (state("zip"), state("legacy")):
        file = io.BytesIO(b"before" + content)
        file.seek(6)
        assert norch.load(file)["step"] == 3
    file = io.BytesIO(state("legacy") + b"after")
    norch.load(file)
    assert file.read() == b"after"


# --- What is refused ------------------------------------------------------------------------------------------------

REFUSED = {
    "argparse": (Name("argparse", "Namespace")(), "holds argparse.Namespace.*weights_only=False.*safe_globals"),
    "eval": (Name("__builtin__", "eval")("1"), "holds builtins.eval"),
    "system": (Name("os", "system")("true"), "holds os.system"),
    "getattr": (Name("__builtin__", "getattr")([], "append"), "holds builtins.getattr"),
    "module": (Name("torch.nn.modules.linear", "Linear")(), "holds torch.nn.modules.linear.Linear"),
    "quantised": (Name("torch._utils", "_rebuild_qtensor")(), r"holds a quantised tensor; .* dequantize\(\)"),
    "sparse by blocks": (
        Name("torch.serialization", "_get_layout")("torch.sparse_bsr"),
        r"layout 'torch.sparse_bsr'; .* to_dense\(\)",
    ),
    "nothing sparse": (Name("torch._utils", "_rebuild_sparse_tensor")(None, (1, 2, ())), "damaged|zip files only"),
    "objects in NumPy": (Name("numpy", "dtype")("O8", False, True), "NumPy array of 'O8'"),
    "a class as a factory": (Name("collections", "defaultdict")(Name("numpy", "dtype")), "damaged"),
}


@pytest.mark.parametrize("whole", [False, True])
def test_negatives_of_the_old_format_are_refused_where_it_is_trusted(whole: bool) -> None:
    storage = Storage(torch("FloatStorage"), "0", 6)
    build = Name("torch._utils", "_rebuild_tensor_v2")(storage, 0, (3,), (1,), False, OrderedDict(), {"neg": True})
    with pytest.raises(CheckpointError, match="read from zip files only"):
        norch.load(io.BytesIO(legacy(build, {"0": (6, SIX)})), weights_only=not whole)


@pytest.mark.parametrize("name", REFUSED)
def test_other_objects_are_refused_by_name(name: str) -> None:
    obj, message = REFUSED[name]
    for content in (zipped({"a": [obj]}), legacy({"a": [obj]})):
        with pytest.raises(CheckpointError, match=message):
            load(content)


@pytest.mark.parametrize("dtype", ["float8_e8m0fnu", "float4_e2m1fn_x2"])
def test_dtypes_that_norch_lacks_are_refused_by_name(dtype: str) -> None:
    storage = Storage(Name("torch.storage", "UntypedStorage"), "0", 24)
    args = (storage, 0, (6,), (1,), False, OrderedDict(), torch(dtype))
    with pytest.raises(DTypeError, match=f"holds a tensor of {dtype}, of which norch has none; .*save its"):
        load(zipped(Name("torch._utils", "_rebuild_tensor_v3")(*args), {"0": SIX}))
    known = (*args[:6], torch("float32"))
    assert load(zipped(Name("torch._utils", "_rebuild_tensor_v3")(*known), {"0": SIX})).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_pickle_runs_nothing(tmp_path: Path) -> None:
    owned = tmp_path / "owned"
    for content in (zipped, legacy):
        for call in (Name("builtins", "exec"), Name("__builtin__", "exec"), Name("posix", "system")):
            with pytest.raises(CheckpointError):
                load(content(call(f"open({str(owned)!r}, 'w')")))
    assert not owned.exists()


# --- What the user declares safe, or trusts -------------------------------------------------------------------------


class Options:
    def __init__(self, width: int = 0) -> None:
        self.width = width


def test_declared_classes_are_made() -> None:
    tree = {"options": Call(Name(__name__, "Options"), (1,), {"width": 5}), "w": tensor("0", 6, (6,))}
    content = zipped(tree, {"0": SIX})
    serialization = norch.serialization
    with pytest.raises(CheckpointError, match="Options"):
        load(content)
    with pytest.raises(pickle.UnpicklingError, match="Options"):  # which PyTorch raises
        load(content)
    with serialization.safe_globals([Options]):
        assert load(content)["options"].width == 5
        assert serialization.get_safe_globals() == [Options]
    with pytest.raises(CheckpointError, match="Options"):
        load(content)
    serialization.add_safe_globals([(Options, f"{__name__}.Options")])
    try:
        assert load(content)["options"].width == 5
    finally:
        serialization.clear_safe_globals()
    assert serialization.get_safe_globals() == []
    for wrong in ([3], [eval], [(Options, 3)]):
        with pytest.raises(DTypeError, match="safe_globals"):
            serialization.add_safe_globals(wrong)


def test_trusted_objects_of_pytorch() -> None:
    tree = {
        "args": Call(Name("argparse", "Namespace"), (), {"lr": 0.1}),
        "w": Name("torch._utils", "_rebuild_parameter")(tensor("0", 6, (6,)), True, OrderedDict()),
        "dtype": torch("float32"),
        "device": torch("device")("cpu"),
        "size": torch("Size")((2,)),
    }
    for content in (zipped(tree, {"0": SIX}), legacy(tree, {"0": (6, SIX)})):
        found = load(content, weights_only=False)
        assert found["args"] == argparse.Namespace(lr=0.1)
        assert found["w"].tolist() == [0, 1, 2, 3, 4, 5]
        assert found["w"].requires_grad
        assert (found["dtype"], found["device"], found["size"]) == (norch.float32, norch.device("cpu"), (2,))
    for name, message in {
        ("nowhere.at.all", "Thing"): "holds nowhere.at.all.Thing, which is not found here",
        ("torch.nn.modules.nowhere", "Thing"): r"Thing, which norch lacks; .*state_dict\(\)",
    }.items():
        with pytest.raises(CheckpointError, match=message):
            load(zipped(Name(*name)()), weights_only=False)


def test_whole_objects_are_saved_and_loaded_on_trust(tmp_path: Path) -> None:
    weight = norch.ones(2, 3, requires_grad=True)
    options = Options()
    options.weight, options.rows = weight, [weight.detach()[0], weight.detach()[1:]]
    options.array, options.function = np.arange(3), norch.relu
    norch.save({"options": options, "w": weight}, tmp_path / "x")
    with pytest.raises(CheckpointError, match=r"Options, .*weights_only=False"):
        norch.load(tmp_path / "x")
    for mmap in (False, True):
        found = norch.load(tmp_path / "x", weights_only=False, mmap=mmap)
        again = found["options"]
        assert type(again) is Options
        assert found["w"] is again.weight
        assert again.weight.requires_grad
        assert again.function is norch.relu
        again.rows[1].fill_(4)
        assert again.weight.tolist() == [[1] * 3, [4] * 3]
    options.bad = lambda: 0
    before = (tmp_path / "x").read_bytes()
    with pytest.raises(DTypeError, match="is a .*Options, which a state cannot hold.*Nor can it be pickled"):
        norch.save(options, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == before


@pytest.mark.parametrize("names", [
    np.array(["a", "bc"]), np.array(["a", None, 3], object), np.array([b"a"]), np.array([1j, 2]),
    np.array(["2020-01-01"], "datetime64[D]"), np.array([(1, 2.0)], [("i", "i4"), ("x", "f8")]), np.array([], object),
], ids=lambda names: str(names.dtype)[:9])  # fmt: skip
def test_arrays_of_other_things_than_numbers_are_pickled(names: np.ndarray, tmp_path: Path) -> None:
    norch.save({"model_state_dict": {"w": norch.ones(2)}, "var_names": names}, tmp_path / "model.pt")
    found = norch.load(tmp_path / "model.pt", weights_only=False)
    assert found["model_state_dict"]["w"].tolist() == [1, 1]
    assert found["var_names"].dtype == names.dtype
    assert found["var_names"].tolist() == names.tolist()


def test_tensors_may_be_keys_of_what_is_pickled(tmp_path: Path) -> None:
    weight = norch.ones(2)
    norch.save({"order": {weight: 1}, "weight": weight}, tmp_path / "x")
    found = norch.load(tmp_path / "x", weights_only=False)
    assert found["order"][found["weight"]] == 1


def test_classes_on_pytorch_itself_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    base = type("Module", (), {"__module__": "torch.nn.modules.module"})
    monkeypatch.setattr(sys.modules[__name__], "Theirs", type("Theirs", (base,), {}), raising=False)
    monkeypatch.setitem(sys.modules, "torch", type(sys)("torch"))
    with pytest.raises(CheckpointError, match="import norch in place of torch"):
        load(zipped(Name(__name__, "Theirs")()), weights_only=False)


# --- What is written ------------------------------------------------------------------------------------------------


def everything() -> dict[str, Any]:
    base = norch.arange(6.0).reshape(2, 3)
    return {
        "state": OrderedDict(w=base, t=base.t(), row=base[1, 1:], again=base),
        "grad": norch.ones(2, requires_grad=True),
        "dtypes": [norch.ones(2, dtype=d) for d in (norch.bool, norch.uint8, norch.bfloat16, norch.float64)],
        "empty": norch.empty(0, 3), "expanded": norch.ones(1).expand(5),
        "values": [None, True, -1, 2**31, -(2**40), 2**70, 0.5, float("inf"), "é", b"\0\xff", bytearray(b"x"), 1 + 2j],
        "more": ((1, [2]), {3}, Counter([3, 3]), {1: 2, "a": {}}, norch.float16, norch.device("cpu"), base.shape),
    }  # fmt: skip


def test_a_file_for_pytorch_is_read_by_norch() -> None:
    file = io.BytesIO()
    norch.save(everything(), file, format="pytorch")
    found, whole = load(file.getvalue()), everything()
    assert (found["values"], found["more"]) == (whole["values"], whole["more"])
    assert [type(v) for v in found["more"]] == [type(v) for v in whole["more"]]
    assert found["state"]["again"] is found["state"]["w"]
    found["state"]["t"].fill_(9)
    assert found["state"]["row"].tolist() == [9, 9]
    assert [t.tolist() for t in found["dtypes"]] == [t.tolist() for t in whole["dtypes"]]
    assert found["expanded"].stride() == (0,)
    for wrong in (np.ones(2), np.float32(1), frozenset(), 1 << 3000):
        with pytest.raises(DTypeError, match="PyTorch"):
            norch.save([wrong], io.BytesIO(), format="pytorch")
    with pytest.raises(ValueError, match="format must be"):
        norch.save([], io.BytesIO(), format="pickle")


def test_pytorch_reads_what_is_written_for_it(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    norch.save(everything(), tmp_path / "x.pt", format="pytorch")
    for mmap in (False, True):
        found, whole = torch.load(tmp_path / "x.pt", weights_only=True, mmap=mmap), everything()
        assert found["values"] == whole["values"]
        assert found["more"][:4] == whole["more"][:4]
        assert found["more"][4:] == (torch.float16, torch.device("cpu"), torch.Size([2, 3]))
        assert found["state"]["again"] is found["state"]["w"]
        assert found["grad"].requires_grad
        assert found["empty"].shape == (0, 3)
        assert [str(t.dtype)[6:] for t in found["dtypes"]] == [t.dtype.name for t in whole["dtypes"]]
        found["state"]["t"].fill_(9)
        assert found["state"]["row"].tolist() == [9, 9]


def test_what_pytorch_writes_is_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    base = torch.randn(4, 6)
    tree = {
        "views": [base, base[1:], base[:, ::2], base.t(), base[2, 3], base.expand(2, 4, 6)],
        "dtypes": [
            torch.tensor([1, 0, 2]).to(getattr(torch, d.name)) for d in (norch.bool, norch.int16, norch.bfloat16)
        ],
        "channels_last": torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "more": [defaultdict(list, {1: [2]}), np.arange(3.0), np.float32(0.5), {1, 2}, b"x", 2**80, torch.Size([1])],
        "model": torch.nn.Linear(2, 3).state_dict(),
    }
    for new in (True, False):
        torch.save(tree, tmp_path / "x", _use_new_zipfile_serialization=new)
        found = norch.load(tmp_path / "x")
        for ours, theirs in [
            *zip(found["views"], tree["views"], strict=True), *zip(found["dtypes"], tree["dtypes"], strict=True),
            (found["channels_last"], tree["channels_last"]), (found["parameter"], tree["parameter"]),
            *zip(found["model"].values(), tree["model"].values(), strict=True),
        ]:  # fmt: skip
            assert ours.tolist() == theirs.tolist()
            assert ours.stride() == theirs.stride()
            assert ours.requires_grad == theirs.requires_grad
        assert list(found["model"]) == list(tree["model"])
        assert found["model"]._metadata == tree["model"]._metadata
        assert found["more"][0] == tree["more"][0]
        assert found["more"][1].tolist() == [0, 1, 2]
        assert found["more"][2:6] == tree["more"][2:6]
        found["views"][0].fill_(1)
        assert all(bool((view == 1).all()) for view in found["views"])
