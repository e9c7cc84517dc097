"""Safetensors files of any origin. The bytes are made here by hand, and by the package safetensors."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import norch
from norch import CheckpointError, DTypeError, Tensor
from norch.dtype import DTYPES

NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64",
    "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
}  # fmt: skip


def by_hand(tensors: dict[str, tuple[str, np.ndarray]], metadata: dict[str, str] | None = None, pad: int = 0) -> bytes:
    """A file as the format's description says, written without norch."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    data = b""
    for name, (dtype, array) in tensors.items():
        raw = array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode() + b" " * pad
    return len(text).to_bytes(8, "little") + text + data


def arrays() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    found = {}
    for dtype in DTYPES:
        values = random.integers(0, 2 if dtype.name == "bool" else 100, (3, 5))
        found[dtype.name] = values.astype(dtype.numpy)
        found[f"{dtype.name}.0d"] = np.array(values[0, 0], dtype.numpy)
        found[f"{dtype.name}.empty"] = values[:0].astype(dtype.numpy)
    return found


def check(tensors: dict[str, Tensor], expected: dict[str, np.ndarray]) -> None:
    assert set(tensors) == set(expected)
    for name, array in expected.items():
        tensor = tensors[name]
        assert (tensor.dtype.numpy, tuple(tensor.shape)) == (array.dtype, array.shape)
        assert tensor.numpy().tobytes() == array.tobytes()


@pytest.mark.parametrize("pad", range(4))
@pytest.mark.parametrize("mmap", [True, False])
def test_reading_what_others_wrote(pad: int, mmap: bool, tmp_path: Path) -> None:
    expected = arrays()
    path = tmp_path / "model.safetensors"
    content = by_hand({n: (NAMES[n.partition(".")[0]], a) for n, a in expected.items()}, {"format": "pt"}, pad)
    path.write_bytes(content)
    found = norch.load_safetensors(path, mmap=mmap)
    assert list(found) == list(expected)
    check(found, expected)
    check(norch.load(path), expected)
    check(norch.load(path, mmap=True), expected)
    for tensor in found.values():
        tensor.fill_(0)  # a copy of the page
    assert path.read_bytes() == content
    check(norch.load_safetensors(path), expected)


def test_writing_for_others(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    x = norch.arange(6.0).reshape(2, 3)
    norch.save_safetensors({"a": x.t(), "b": x, "c": x[:, 1].bfloat16()}, path, {"format": "pt"})
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    got = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        kind = {"F32": np.dtype(np.float32), "BF16": np.dtype(ml_dtypes.bfloat16)}[entry["dtype"]]
        got[name] = np.frombuffer(raw[8 + length + begin : 8 + length + end], kind).reshape(entry["shape"])
    np.testing.assert_array_equal(got["a"], np.arange(6.0).reshape(2, 3).T)
    np.testing.assert_array_equal(got["b"], np.arange(6.0).reshape(2, 3))
    assert got["c"].tolist() == [1, 4]
    for wrong in ([x], {"a": 1}, {1: x}, {"__metadata__": x}, {"\ud800": x}):
        with pytest.raises(DTypeError, match="save_safetensors"):
            norch.save_safetensors(wrong, path)
    with pytest.raises(DTypeError, match="metadata"):
        norch.save_safetensors({}, path, {"epoch": 3})
    assert path.read_bytes() == raw
    norch.save_safetensors({}, path)
    assert norch.load_safetensors(path) == {}


def test_against_the_package(tmp_path: Path) -> None:
    package = pytest.importorskip("safetensors")
    from safetensors.numpy import load_file, save_file

    expected = arrays()
    tensors = {name: norch.from_numpy(np.array(array)) for name, array in expected.items()}
    tensors["transposed"] = tensors["float32"].t()
    expected["transposed"] = np.ascontiguousarray(expected["float32"].T)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    norch.save_safetensors(tensors, ours, {"by": "norch"})
    for name, array in load_file(ours).items():
        assert (array.dtype, array.shape) == (expected[name].dtype, expected[name].shape)
        assert array.tobytes() == expected[name].tobytes()
    with package.safe_open(ours, "np") as file:
        assert file.metadata() == {"by": "norch"}
    save_file(expected, theirs, {"by": "them"})
    check(norch.load_safetensors(theirs), expected)
    with norch.safe_open(theirs) as file:
        assert file.metadata() == {"by": "them"}
        assert sorted(file.keys()) == sorted(expected)
    norch.save({"model": {"w": tensors["float16"]}, "step": 3}, ours)
    assert load_file(ours)["model.w"].tobytes() == expected["float16"].tobytes()


def test_one_tensor_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    x = norch.arange(12.0).reshape(3, 4)
    norch.save_safetensors({"x": x, "y": x[0]}, path)
    with norch.safe_open(path, framework="pt", device="cpu") as file:
        assert file.keys() == ["x", "y"]
        assert file.metadata() is None
        assert file.get_tensor("y").tolist() == [0, 1, 2, 3]
        part = file.get_slice("x")
        assert (part.get_shape(), part.get_dtype()) == ([3, 4], "F32")
        assert part[1:, :2].tolist() == [[4, 5], [8, 9]]
        with pytest.raises(KeyError, match="no tensor 'z'; it has x, y"):
            file.get_tensor("z")
    with pytest.raises(ValueError, match="closed"):
        norch.load(path, mmap=True) and file._source.read("y", norch.device("cpu"))


def test_devices_and_dtypes(tmp_path: Path) -> None:
    from norch.testing.strict import strict_device

    device = strict_device()
    path = tmp_path / "x.safetensors"
    norch.save_safetensors({"x": norch.ones(3).half(), "i": norch.arange(3)}, path)
    found = norch.load_safetensors(path, device, norch.float32)
    assert [(t.device.type, t.dtype) for t in found.values()] == [("strict", norch.int64), ("strict", norch.float32)]
    assert found["x"].tolist() == [1, 1, 1]
    assert norch.load_safetensors(path, dtype="float64")["x"].dtype is norch.float64
    with pytest.raises(DTypeError, match="must be floating"):
        norch.load_safetensors(path, dtype=norch.int64)


@pytest.mark.parametrize("mmap", [True, False])
def test_complex_numbers_are_pairs(mmap: bool, tmp_path: Path) -> None:
    path, array = tmp_path / "x.safetensors", np.array([[1 + 2j, 3], [-4j, 0.5]], "<c8")
    path.write_bytes(by_hand({"z": ("C64", array), "none": ("C64", array[:0]), "r": ("F32", np.ones(2, "f4"))}))
    for found in (norch.load_safetensors(path, mmap=mmap), norch.load(path)):
        assert found["z"].dtype is norch.complex64
        assert found["z"].tolist() == array.tolist()
        assert (found["none"].shape, found["r"].tolist()) == ((0, 2), [1, 1])
    z = norch.load_safetensors(path)["z"]
    assert norch.load_safetensors(path, dtype=norch.float64)["z"].dtype is norch.complex64
    norch.save_safetensors({"z": z, "t": z.t()}, path)
    with norch.safe_open(path) as file:
        assert file.get_tensor("t").tolist() == array.T.tolist()
        assert file.get_slice("z")[1].tolist() == array[1].tolist()
    with pytest.raises(DTypeError, match="'z' is norch.complex128, of which the format has only"):
        norch.save_safetensors({"z": z.to(norch.complex128)}, path)


@pytest.mark.parametrize("name", ["F8_E8M0"])
def test_dtypes_that_norch_lacks(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    array = np.array([1.5, 2, 0.5, 256]).astype(ml_dtypes.float8_e8m0fnu)
    path.write_bytes(by_hand({"good": ("F32", np.ones(2, "f4")), "bad": (name, array)}))
    for read in (norch.load_safetensors, norch.load):
        with pytest.raises(DTypeError, match=f"tensor 'bad' is {name}, which norch has no dtype for"):
            read(path)
    with norch.safe_open(path) as file:
        assert file.get_tensor("good").tolist() == [1, 1]
        assert file.get_slice("bad").get_dtype() == name
    assert norch.load_safetensors(path, dtype=norch.bfloat16)["bad"].tolist() == [2, 2, 0.5, 256]


def test_bools_are_0_and_1(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(by_hand({"mask": ("BOOL", np.array([0, 1, 2], np.uint8))}))
    for mmap in (True, False):
        with pytest.raises(CheckpointError, match="'mask' is BOOL, but holds bytes other than 0 and 1"):
            norch.load_safetensors(path, mmap=mmap)


def test_tensors_keep_their_mapping(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    norch.save_safetensors({"x": norch.arange(1000.0), "y": norch.ones(3)}, path)
    x = norch.load_safetensors(path)["x"][500:]
    gc.collect()
    norch.save_safetensors({"x": norch.zeros(1)}, path)  # another file in its place
    assert x.tolist() == list(range(500, 1000))
    y = norch.load_safetensors(path)["x"].requires_grad_()
    (y * y).sum().backward()
    assert y.grad.tolist() == [0]


def test_a_version_counter_for_each_tensor(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    norch.save_safetensors({"x": norch.ones(3), "y": norch.ones(3)}, path)
    found = norch.load_safetensors(path)
    x = found["x"].requires_grad_()
    loss = (x * x).sum()
    found["y"].add_(1)
    loss.backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_a_large_file_is_mapped_not_read(tmp_path: Path) -> None:
    """In a process of its own: 1 GiB takes neither time nor memory until it is touched. The file is mostly a hole."""
    path = tmp_path / "large.safetensors"
    size = 1 << 30
    header = json.dumps({"x": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)
    code = f"""
import resource, time, norch
norch.ones(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
x = norch.load_safetensors({os.fspath(path)!r})["x"]
took = time.process_time() - start
x[-1] = 1
assert x[-1].item() == 1 and x[0].item() == 0
print(took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    start = time.perf_counter()
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert float(out[0]) < 0.5
    assert int(out[1]) < 100_000  # KiB
    assert time.perf_counter() - start < 20
