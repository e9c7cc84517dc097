"""save and load: what comes back, what is shared, where it goes, and what is refused."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import threading
from collections import Counter, OrderedDict, defaultdict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import norch
from norch import CheckpointError, DeviceError, DTypeError, Tensor
from norch.backend.registry import unregister
from norch.dtype import DTYPES
from norch.testing.strict import strict_device


def again(obj: Any, **options: Any) -> Any:
    """What comes back from a file in memory."""
    file = io.BytesIO()
    norch.save(obj, file)
    file.seek(0)
    return norch.load(file, **options)


def header_of(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return found


def same_bytes(a: Tensor, b: Tensor) -> bool:
    return (a.dtype, a.shape) == (b.dtype, b.shape) and a.detach().numpy().tobytes() == b.detach().numpy().tobytes()


PLAIN = {
    "none": None,
    "bools": [True, False],
    "ints": [0, -1, 2**63, -(2**200), 10**400, -(2**20000)],
    "floats": [0.1, -0.0, 1e308, 5e-324, float("inf"), -float("inf")],
    "complex": [1 + 2j, complex(0.1, float("inf"))],
    "strings": ["", "ü", "\0", "\ud800", '"}', "$tensor"],
    "bytes": [b"", bytes(range(256)), bytearray(b"abc")],
    "tuples": [(), (1, (2, [3]))],
    "sets": [set(), {1, "a", (2,)}, frozenset({1})],
    "dicts": {"": 1, "$a": {"$b": {}}, "a.b": {"c": []}, "one": {"$tensor": 0}},
    "keys": {1: "int", True + 1: "two", 2.5: "float", None: "none", (1, 2): "tuple", b"k": "bytes", "1": "string"},
    "ordered": OrderedDict([("b", 1), ("a", 2), (3, OrderedDict())]),
    "counter": Counter({30: 2, "x": 1}),
    "dtypes": list(DTYPES),
    "devices": [norch.device("cpu"), norch.device("cuda:3")],
    "size": norch.Size((2, 3)),
    "betas": {"lr": 1e-3, "betas": (0.9, 0.999), "foreach": None},
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_objects(name: str) -> None:
    def check(a: Any, b: Any) -> None:
        assert type(a) is type(b)
        if isinstance(a, dict):
            assert list(a) == list(b)
            for key in a:
                check(a[key], b[key])
        elif isinstance(a, list | tuple):
            assert len(a) == len(b)
            for x, y in zip(a, b, strict=True):
                check(x, y)
        else:
            assert a == b
            assert not isinstance(a, float) or str(a) == str(b)  # -0.0

    check(again(PLAIN[name]), PLAIN[name])


def test_nan() -> None:
    (value,) = again([float("nan")])
    assert value != value


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_tensors_of_every_dtype(dtype: norch.dtype, mmap: bool, tmp_path: Path) -> None:
    values = norch.tensor([[0, 1, 2], [3, 127, 1]]).to(dtype)
    tensors = {"2d": values, "0d": values[0, 1], "empty": values[:0], "one": values[:1, :1], "t": values.t()}
    norch.save(tensors, tmp_path / "x.pt")
    found = norch.load(tmp_path / "x.pt", mmap=mmap)
    assert list(found) == list(tensors)
    for name, tensor in tensors.items():
        assert same_bytes(found[name], tensor)
        assert str(found[name].device) == "cpu"
    found["2d"].fill_(0)  # not the file's
    for name, tensor in norch.load(tmp_path / "x.pt").items():
        assert same_bytes(tensor, tensors[name])


def test_a_tensor_alone_and_special_values() -> None:
    x = norch.tensor([float("nan"), float("inf"), -0.0, 1e-45])
    assert same_bytes(again(x), x)
    assert again(norch.tensor(2.5)).item() == 2.5
    assert again({}) == {}


def test_requires_grad_and_results_of_ops() -> None:
    leaf = norch.ones(2, requires_grad=True)
    found = again([leaf, leaf * 2, leaf.detach()])
    assert [t.requires_grad for t in found] == [True, True, False]
    assert all(t.is_leaf for t in found)
    assert found[0].grad is None
    found[0].sum().backward()
    assert found[0].grad.tolist() == [1, 1]


def test_arrays_and_numpy_numbers() -> None:
    array = np.arange(6, dtype=np.uint32).reshape(2, 3)
    values = [
        array, array, array.T, np.array(2.5), np.zeros((0, 2)), np.array([1, 2], ">i4"), np.array([True]),
        np.ones(2, "u8"), np.ones(2, "c8"), np.float64(0.1), np.float32(0.1), np.int8(-3), np.bool_(True),
        np.uint64(2**64 - 1),
    ]  # fmt: skip
    found = again(values)
    for a, b in zip(found, values, strict=True):
        assert type(a) is type(b)
        assert a.dtype == b.dtype.newbyteorder("=")
        np.testing.assert_array_equal(a, b)
    assert found[0] is found[1]
    found[0][0, 0] = 9
    state = np.random.RandomState(3).get_state()
    np.random.RandomState().set_state(again(state))


# --- Shared memory --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mmap", [False, True])
def test_tied_tensors_stay_tied(mmap: bool, tmp_path: Path) -> None:
    weight = norch.randn(4, 3)
    path = tmp_path / "tied.pt"
    norch.save({"emb.weight": weight, "head.weight": weight.detach(), "again": weight, "other": weight.clone()}, path)
    assert path.stat().st_size < 3 * weight.nbytes + 1024
    found = norch.load(path, mmap=mmap)
    assert found["again"] is found["emb.weight"]
    assert found["head.weight"] is not found["emb.weight"]
    found["head.weight"].fill_(7)
    assert found["emb.weight"].tolist() == [[7.0] * 3] * 4
    assert same_bytes(found["other"], weight)
    assert sorted(header_of(path.read_bytes())) == ["__metadata__", "emb.weight", "other"]


def test_views_of_one_buffer() -> None:
    base = norch.arange(24).reshape(4, 6)
    views = [base[1:], base, base.t(), base[:, ::2], base[2], base.reshape(-1)[5:], base.expand(2, 4, 6)]
    found = again(views)
    for a, b in zip(found, views, strict=True):
        assert same_bytes(a, b)
        assert a.stride() == b.stride()
    found[1][2, 2] = -1
    base[2, 2] = -1
    for a, b in zip(found, views, strict=True):
        assert same_bytes(a, b)


def test_overlapping_views_without_their_base() -> None:
    base = norch.arange(100)
    left, right = base[10:30], base[20:50:3]
    file = io.BytesIO()
    norch.save([left, right], file)
    (entry,) = (v for k, v in header_of(file.getvalue()).items() if k != "__metadata__")
    assert entry["shape"] == [38]  # 10 to 48, and not the 100 of the buffer
    a, b = again([left, right])
    assert (a.tolist(), b.tolist()) == (left.tolist(), right.tolist())
    a[10] = -5
    assert b[0].item() == -5


def test_a_small_part_of_a_large_buffer() -> None:
    base = norch.zeros(1_000_000)
    file = io.BytesIO()
    norch.save([base[3:5], base[100:200:2]], file)
    norch.save(base.reshape(1000, 1000)[:, 0], file)
    assert file.tell() < 10_000
    assert [tuple(t.shape) for t in again([base[3:5], base[::100_000]])] == [(2,), (10,)]


def test_expanded_tensors_stay_small() -> None:
    x = norch.ones(1).expand(10**12)
    found = again({"x": x})["x"]
    assert (found.shape, found.stride()) == (x.shape, (0,))


def test_arrays_on_one_memory_tie_their_tensors() -> None:
    array = np.arange(10)
    whole, tail, head = norch.from_numpy(array), norch.from_numpy(array[4:]), norch.from_numpy(array[:6])
    a, b = again([tail, whole])
    b[4] = -1
    assert a[0].item() == -1
    a, b = again([tail, head])
    assert (a.tolist(), b.tolist()) == (list(range(4, 10)), list(range(6)))
    b[5] = -1
    assert a.tolist() == [4, -1, 6, 7, 8, 9]


def test_memory_seen_as_two_dtypes_is_refused() -> None:
    array = np.arange(10)
    with pytest.raises(DTypeError, match=r"'ints', 'halves' share memory as different dtypes \(int64, int32\)"):
        norch.save({"ints": norch.from_numpy(array), "halves": norch.from_numpy(array.view(np.int32))}, io.BytesIO())


# --- Names and the file ---------------------------------------------------------------------------------------------


def test_a_state_dict_keeps_its_names_in_the_file() -> None:
    x = norch.ones(1)
    file = io.BytesIO()
    norch.save({"fc.weight": x, "fc": {"weight": x + 1, 3: [x + 2]}, "": x + 3, "__metadata__": x + 4}, file)
    names = [n for n in header_of(file.getvalue()) if n != "__metadata__"]
    assert names == ["fc.weight", "fc.weight#2", "fc.3.0", "tensor", "__metadata__#2"]
    assert again({"\ud800": x})["\ud800"].item() == 1


def test_the_data_are_aligned() -> None:
    file = io.BytesIO()
    tensors = [norch.ones(3, dtype=d) for d in DTYPES]
    norch.save(tensors, file)
    assert (8 + int.from_bytes(file.getvalue()[:8], "little")) % 64 == 0
    for name, entry in header_of(file.getvalue()).items():
        if name != "__metadata__":
            assert entry["data_offsets"][0] % tensors[int(name)].itemsize == 0


def test_file_objects(tmp_path: Path) -> None:
    file = io.BytesIO()
    file.write(b"before")
    norch.save([1, norch.ones(2)], file)
    norch.save([2, norch.zeros(2)], file)
    file.write(b"after")
    file.seek(6)
    assert norch.load(file)[0] == 1
    assert norch.load(file)[1].tolist() == [0, 0]
    assert file.read() == b"after"
    with open(tmp_path / "a", "wb") as out:
        norch.save(norch.ones(2), out)
    with open(tmp_path / "a", "rb") as back:
        assert norch.load(back).tolist() == [1, 1]
    for bad in (io.StringIO(), 3, None):
        with pytest.raises(DTypeError, match=r"save\(\)"):
            norch.save(1, bad)
        with pytest.raises(DTypeError, match=r"load\(\)"):
            norch.load(bad)
    with pytest.raises(ValueError, match="mmap"):
        norch.load(io.BytesIO(file.getvalue()[6:]), mmap=True)


def test_pipes_and_devices(tmp_path: Path) -> None:
    norch.save({"x": norch.ones(3)}, os.devnull)
    assert not os.path.isfile(os.devnull)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=norch.save, args=(norch.ones(3), fifo))
    writer.start()
    assert norch.load(fifo).tolist() == [1, 1, 1]
    writer.join()
    with pytest.raises(CheckpointError, match="not a regular file"):
        norch.load(os.devnull)


def test_names_of_pytorch_are_accepted(tmp_path: Path) -> None:
    norch.save(norch.ones(1), str(tmp_path / "x"))
    for weights_only in (True, False, None):
        assert norch.load(tmp_path / "x", "cpu", weights_only=weights_only).item() == 1
    norch.save(norch.ones(1), tmp_path / "x", pickle_protocol=4, _use_new_zipfile_serialization=False)
    with pytest.raises(ValueError, match="pickle_module"):
        norch.load(tmp_path / "x", pickle_module=pickle, weights_only=True)
    with pytest.raises(FileNotFoundError):
        norch.load(tmp_path / "none")


# --- Where it goes --------------------------------------------------------------------------------------------------


def test_map_location() -> None:
    device = norch.device(strict_device())
    here, there = norch.ones(2), norch.arange(3.0).to(device)
    file = io.BytesIO()
    norch.save({"here": here, "there": there, "tied": there.detach()}, file)

    def load(*location: Any) -> dict[str, Tensor]:
        file.seek(0)
        found: dict[str, Tensor] = norch.load(file, *location)
        assert found["here"].tolist() == [1, 1]
        assert found["there"].tolist() == [0, 1, 2]
        found["tied"].fill_(4)
        assert found["there"].tolist() == [4, 4, 4]
        return found

    def devices(*location: Any) -> list[str]:
        return [t.device.type for t in load(*location).values()]

    assert devices() == devices(None) == ["cpu", "strict", "strict"]
    assert devices("cpu") == devices(norch.device("cpu")) == ["cpu"] * 3
    assert devices("strict") == ["strict"] * 3
    assert devices({"strict:0": "cpu"}) == ["cpu"] * 3
    assert devices({"cpu": "strict"}) == ["strict"] * 3
    assert devices(lambda storage, location: storage) == ["cpu"] * 3
    assert devices(lambda storage, location: None) == ["cpu", "strict", "strict"]
    seen = []
    assert devices(lambda storage, location: seen.append(location) or storage.to("strict")) == ["strict"] * 3
    assert sorted(seen) == ["cpu", "strict:0"]
    for wrong in (3, lambda s, l: 3, lambda s, l: s[:1]):
        file.seek(0)
        with pytest.raises(DTypeError, match="map_location"):
            norch.load(file, wrong)
    file.seek(0)
    with pytest.raises(DeviceError):
        norch.load(file, "nowhere")


def test_a_device_that_is_not_here() -> None:
    device = norch.device(strict_device())
    file = io.BytesIO()
    norch.save({"weight": norch.ones(2).to(device)}, file)
    unregister("strict")
    try:
        file.seek(0)
        with pytest.raises(DeviceError, match=r"'weight' was saved on strict:0, .* map_location='cpu'"):
            norch.load(file)
        file.seek(0)
        assert norch.load(file, "cpu")["weight"].tolist() == [1, 1]
    finally:
        strict_device()


# --- What is refused ------------------------------------------------------------------------------------------------


class Model:
    def state_dict(self) -> dict[str, Any]:
        return {}


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (Model(), r"state_dict\(\)"),
        (norch.Generator(), r"get_state\(\)"),
        (Pair(1, 2), "_asdict"),
        (defaultdict(list), r"dict\(it\)"),
        (type("Kind", (list,), {})(), r"list\(it\)"),
        (type("Name", (str,), {})("a"), r"str\(it\)"),
        (np.str_("a"), r"str\(it\)"),
        (np.zeros(2).view(np.recarray), r"numpy.asarray\(it\)"),
        (type("Options", (), {"__init__": lambda self: setattr(self, "a", 1)})(), r"vars\(it\)"),
        (len, "functions"),
        (Model, "classes"),
        (np.array(["a"]), "array of <U1"),
        (np.array([None]), "array of object"),
        (object(), "save a list"),
        ({norch.ones(1): 1}, "Tensor as a key"),
    ],
)
def test_what_no_state_can_hold_is_refused_by_name(value: Any, advice: str, tmp_path: Path) -> None:
    with pytest.raises(DTypeError, match=advice) as caught:
        norch.save({"run": [0, {"x": value}]}, tmp_path / "x.pt", format="pytorch")
    assert str(caught.value).startswith("save(): the object['run']['1']['x'] ")
    assert list(tmp_path.iterdir()) == []


def test_cycles_and_depth() -> None:
    cycle: list[Any] = []
    cycle.append({"again": cycle})
    with pytest.raises(CheckpointError, match="contains itself"):
        norch.save(cycle, io.BytesIO())
    deep: Any = 1
    for _ in range(99):
        deep = (deep,)
    assert again(deep) == deep
    deep = [[deep]]
    with pytest.raises(CheckpointError, match="100 deep"):
        norch.save(deep, io.BytesIO())


def test_a_structure_too_long_for_the_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norch.serialization.header, "MAX_HEADER", 1000)
    with pytest.raises(CheckpointError, match="the limit of the format is 1,000"):
        norch.save(["x" * 1000], tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_import_norch_loads_none_of_it() -> None:
    code = (
        "import sys, norch; assert not {'json', 'mmap', 'zlib', 'base64', 'norch.serialization'} & set(sys.modules); "
        "from norch import save; assert norch.load.__module__ == 'norch.serialization.checkpoint'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
