"""Damaged, truncated and hostile files: always CheckpointError (or a clear relative), never anything else."""

from __future__ import annotations

import io
import json
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damaged import STATE, framed, saved, signed

import norch
from norch import CheckpointError


def f32(begin: int = 0, end: int = 4, shape: Any = (1,), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def readers(content: bytes, folder: Path) -> list[Callable[[], Any]]:
    path = folder / "file"
    path.write_bytes(content)
    return [
        lambda: norch.load(path),
        lambda: norch.load(path, mmap=True),
        lambda: norch.load_safetensors(path),
        lambda: norch.safe_open(path),
    ]


# --- What is no checkpoint ------------------------------------------------------------------------------------------


def array_file() -> bytes:
    file = io.BytesIO()
    np.save(file, np.ones(3))
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"abc", "only 3 bytes long"),
        (pickle.dumps({"a": 1}, 2), "is a pickle, but none that torch.save wrote"),
        (pickle.dumps({"a": 1}, 5), "is a pickle"),
        (b"sys_info" + bytes(249) + b"ustar" + bytes(250), "is a tar archive"),
        (array_file(), r"is a NumPy array; use norch.from_numpy\(numpy.load"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>not found</html>", "web page"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\0\0\0", "compressed with gzip"),
        (b'{"metadata": {"total_size": 1}}', "is JSON text"),
        (b"\x89HDF\r\n\x1a\n\0\0\0\0\0\0\0\0", "HDF5"),
        (b"just some text that is no checkpoint at all", "not a safetensors file, or damaged: its header would take"),
        (bytes(100), "starts with ''"),
    ],
)
def test_other_files_are_named(content: bytes, message: str, tmp_path: Path) -> None:
    for read in readers(content, tmp_path):
        with pytest.raises(CheckpointError, match=message) as caught:
            read()
        assert str(tmp_path / "file") in str(caught.value)
    with pytest.raises(CheckpointError, match=message):
        norch.load(io.BytesIO(content))


def test_no_pickle_is_ever_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return exec, (f"open({str(tmp_path / 'owned')!r}, 'w')",)

    for content in (pickle.dumps(Evil(), 2), pickle.dumps(Evil(), 5), pickle.dumps(Evil(), 0)):
        for read in readers(content, tmp_path):
            with pytest.raises(CheckpointError):
                read()
    assert not (tmp_path / "owned").exists()


# --- Headers that lie -----------------------------------------------------------------------------------------------

HEADERS = {
    "length beyond the file": ((10**6).to_bytes(8, "little") + b"{}", "cut off"),
    "length beyond the limit": ((10**8 + 1).to_bytes(8, "little") + b"{}", "the limit is 100,000,000"),
    "largest length": (b"\xff" * 8 + b"{}", "18,446,744,073,709,551,615"),
    "no header": (framed(b""), "starts with"),
    "no object": (framed("[1]"), "starts with"),
    "no JSON": (framed("{'a': 1}"), "damaged"),
    "text behind": (framed("{}{}"), "damaged"),
    "not UTF-8": (framed(b'{"\xff": 1}'), "utf-8"),
    "a NaN": (framed('{"a": NaN}'), "NaN"),
    "deep": (framed('{"a":' + "[" * 100_000), "nested too deeply"),
    "a key twice": (framed('{"a": 1, "a": 2}'), "'a' comes twice"),
    "a key twice within": (framed('{"a": {"dtype": "F32", "dtype": "F32"}}'), "'dtype' comes twice"),
    "a huge number": (framed('{"a": ' + "1" * 5000 + "}"), "damaged"),
    "metadata of numbers": (framed({"__metadata__": {"a": 1}}), "strings"),
    "metadata in a list": (framed({"__metadata__": []}), "strings"),
    "no dict": (framed({"a": 1}), "expected dtype, shape and data_offsets"),
    "a field missing": (framed({"a": {"dtype": "F32", "shape": [1]}}), "expected dtype"),
    "a field too many": (framed({"a": {**f32(), "x": 1}}), "expected dtype"),
    "unknown dtype": (framed({"a": f32(dtype="F99")}, bytes(4)), "unknown dtype 'F99'"),
    "dtype of a wrong type": (framed({"a": f32(dtype=["F32"])}, bytes(4)), "unknown dtype"),
    "lone surrogate": (framed('{"\\ud800": 1}'), "not valid text"),
    "shape of floats": (framed({"a": f32(shape=[1.0])}, bytes(4)), "not a shape"),
    "shape of bools": (framed({"a": f32(shape=[True])}, bytes(4)), "not a shape"),
    "negative shape": (framed({"a": f32(shape=[-1, -1])}, bytes(4)), "not a shape"),
    "overflowing shape": (framed({"a": f32(shape=[2**32, 2**32])}, bytes(4)), "not a shape"),
    "overflow to nothing": (framed({"a": f32(0, 0, [2**62, 2**62, 0])}), "not a shape"),
    "many dims": (framed({"a": f32(shape=[1] * 65)}, bytes(4)), "not a shape"),
    "shape and bytes differ": (framed({"a": f32(shape=[2])}, bytes(4)), "does not take the 4 bytes"),
    "offsets of one": (framed({"a": {**f32(), "data_offsets": [0]}}, bytes(4)), "not offsets"),
    "offsets backwards": (framed({"a": f32(4, 0)}, bytes(4)), "not offsets"),
    "negative offsets": (framed({"a": f32(-4, 0)}, bytes(4)), "not offsets"),
    "beyond the file": (framed({"a": f32(0, 400, [100])}, bytes(4)), "only 4 bytes follow"),
    "far beyond the file": (framed({"a": f32(0, 2**40, [2**38])}, bytes(4)), "only 4 bytes follow"),
    "overlap": (framed({"a": f32(0, 8, [2]), "b": f32(4, 8)}, bytes(8)), "'b' at bytes 4 to 8 overlaps"),
    "the same bytes": (framed({"a": f32(), "b": f32()}, bytes(4)), "overlaps"),
    "gap": (framed({"a": f32(4, 8)}, bytes(8)), "gap"),
    "bytes left over": (framed({"a": f32()}, bytes(5)), "5 bytes follow the header, its tensors take 4"),
    "hidden behind nothing": (framed({"a": f32(), "b": f32(9, 9, [0])}, bytes(9)), "its tensors take 4"),
    "cut off": (framed({"a": f32()}, bytes(3)), "cut off"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_lie(name: str, tmp_path: Path) -> None:
    content, message = HEADERS[name]
    tracemalloc.start()
    try:
        for read in readers(content, tmp_path):
            with pytest.raises(CheckpointError, match=message):
                read()
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


ENTRY = json.dumps(f32(0, 0, [0]))
MANY = {
    "keys twice": ("{" + ",".join(['"a":1'] * 20_000 + [f'"{i}":1' for i in range(20_000)]) + "}", "'a' comes twice"),
    "a list of lists": ('{"a":[' + ",".join(["[]"] * 400_000) + "]}", 'got \'"a":'),
    "a shape of lists": (f'{{"b":{ENTRY},"a":{{"shape":[' + ",".join(["[]"] * 400_000) + "]}}", 'got \'"a":'),
    "objects": ('{"a":' + '{"b":' * 300_000, 'got \'"a":'),
    "lists in names": ('{"' + "[" * 1_000_000 + '":1}', "got '\"\\["),
    "metadata of lists": ('{"__metadata__":{"a":[' + ",".join(["[]"] * 400_000) + "]}}", "got '\"__metadata__"),
}


@pytest.mark.parametrize("name", MANY)
def test_much_that_lies_is_refused_before_it_costs_memory(name: str, tmp_path: Path) -> None:
    text, message = MANY[name]
    for read in readers(framed(text), tmp_path):
        tracemalloc.start()
        try:
            with pytest.raises(CheckpointError, match=message):
                read()
            assert tracemalloc.get_traced_memory()[1] < 20 * len(text)  # the lists alone would take 40 times as much
        finally:
            tracemalloc.stop()


@pytest.mark.slow
def test_a_long_header_of_honest_tensors_is_read(tmp_path: Path) -> None:
    names = ['a "quoted" [name]', "{", *map(str, range(20_000))]
    entries = ",".join([f"{json.dumps(name)}: {ENTRY} " for name in names])
    metadata = json.dumps({"note": '[[{"', "other": "x" * 1_000})
    content = framed(f'{{"__metadata__" : {metadata} , {entries}}}  ')
    for read in readers(content, tmp_path)[:3]:
        assert list(read()) == names
    with norch.safe_open(tmp_path / "file") as file:
        assert file.keys() == names


def test_a_structure_of_too_many_lists_is_neither_written_nor_read(monkeypatch: pytest.MonkeyPatch) -> None:
    state: list[Any] = [[]] * 5000
    content = saved(state)
    assert norch.load(io.BytesIO(content)) == state
    monkeypatch.setattr("norch.serialization.header.MAX_CONTAINERS", 4000)
    with pytest.raises(CheckpointError, match="more than 4,000 lists"):
        saved(state)
    with pytest.raises(CheckpointError, match="more than 4,000 lists"):
        norch.load(io.BytesIO(content))


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


STRUCTURES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no dict": lambda s: [],
    "no version": lambda s: s.pop("version") and None,
    "version as text": lambda s: s.update(version="1"),
    "no tensors": lambda s: s.pop("tensors") and None,
    "tensors no list": lambda s: s.update(tensors={}),
    "arrays of nothing": lambda s: s.update(arrays=["none"]),
    "arrays of numbers": lambda s: s.update(arrays=[[1]]),
    "data no dict": lambda s: s.update(data=[]),
    "data lack one": lambda s: s["data"].popitem() and None,
    "data too many": lambda s: s["data"].update(x=["00000000"]),
    "a place of numbers": lambda s: s["data"].update({"views.0": [1]}),
    "a place of nothing": lambda s: s["data"].update({"views.0": []}),
    "another checksum": lambda s: s["data"].update({"views.0": ["00000000"]}),
    "no device": lambda s: s["data"].update({"views.0": [s["data"]["views.0"][0], "a b"]}),
    "a long device": lambda s: s["data"].update({"views.0": [s["data"]["views.0"][0], "cuda:" + "9" * 6000]}),
    "tensor no dict": lambda s: s["tensors"].append(3),
    "tensor without data": lambda s: s["tensors"].append({}),
    "tensor of no data": lambda s: s["tensors"].append({"data": "none"}),
    "tensor of a list": lambda s: s["tensors"].append({"data": ["views.0"]}),
    "tensor of an array": lambda s: s["tensors"].append({"data": "numpy"}),
    "tensor with more": lambda s: s["tensors"].append({"data": "views.0", "hook": "os.system"}),
    "shape too large": lambda s: s["tensors"].append({"data": "views.0", "shape": [4]}),
    "shape huge": lambda s: s["tensors"].append({"data": "views.0", "shape": [2**59, 2**59], "strides": [0, 0]}),
    "shape negative": lambda s: s["tensors"].append({"data": "views.0", "shape": [-1]}),
    "shape of text": lambda s: s["tensors"].append({"data": "views.0", "shape": "abc"}),
    "strides too many": lambda s: s["tensors"].append({"data": "views.0", "strides": [1, 1]}),
    "strides negative": lambda s: s["tensors"].append({"data": "views.0", "strides": [-1]}),
    "strides too large": lambda s: s["tensors"].append({"data": "views.0", "strides": [2]}),
    "offset too large": lambda s: s["tensors"].append({"data": "views.0", "offset": 1}),
    "offset negative": lambda s: s["tensors"].append({"data": "views.0", "offset": -1}),
    "offset a float": lambda s: s["tensors"].append({"data": "views.0", "offset": 0.0}),
    "gradient of ints": lambda s: s["tensors"].append({"data": "views.0", "requires_grad": True}),
    "gradient no bool": lambda s: s["tensors"].append({"data": "model.fc.weight", "requires_grad": 1}),
    "no such tensor": lambda s: s.update(object={"$tensor": 99}),
    "tensor -1": lambda s: s.update(object={"$tensor": -1}),
    "tensor true": lambda s: s.update(object={"$tensor": True}),
    "no such array": lambda s: s.update(object={"$array": 1}),
    "a class": lambda s: s.update(object={"$os.system": ["true"]}),
    "unknown kind": lambda s: s.update(object={"$object": []}),
    "deep": lambda s: s.update(object=nested(150)),
    "deeper": lambda s: s.update(object=nested(300)),
    "deep tuples": lambda s: s.update(object={"$tuple": [{"$tuple": [nested(99)]}]}),
    "pairs of one": lambda s: s.update(object={"$dict": [[1]]}),
    "pairs of text": lambda s: s.update(object={"$dict": "ab"}),
    "unhashable key": lambda s: s.update(object={"$dict": [[[1], 2]]}),
    "a key twice": lambda s: s.update(object={"$dict": [[1, 2], [1, 3]]}),
    "unhashable in a set": lambda s: s.update(object={"$set": [[1]]}),
    "tuple of a dict": lambda s: s.update(object={"$tuple": {"a": 1}}),
    "counter of one": lambda s: s.update(object={"$Counter": [1]}),
    "size of text": lambda s: s.update(object={"$Size": ["a"]}),
    "bytes no base64": lambda s: s.update(object={"$bytes": "?"}),
    "bytes of a list": lambda s: s.update(object={"$bytes": [1]}),
    "float of text": lambda s: s.update(object={"$float": "abc"}),
    "int of text": lambda s: s.update(object={"$int": "xyz"}),
    "complex of one": lambda s: s.update(object={"$complex": [1]}),
    "complex of dicts": lambda s: s.update(object={"$complex": [{}, {"a": 1}]}),
    "complex too large": lambda s: s.update(object={"$complex": [10**400, 0]}),
    "scalar too short": lambda s: s.update(object={"$scalar": ["F32", "00"]}),
    "scalar of no dtype": lambda s: s.update(object={"$scalar": ["O", "00"]}),
    "scalar of no hex": lambda s: s.update(object={"$scalar": ["U8", "zz"]}),
    "no dtype": lambda s: s.update(object={"$dtype": "object"}),
    "no device in it": lambda s: s.update(object={"$device": "cuda"}),
    "device of numbers": lambda s: s.update(object={"$device": 3}),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_that_lie(name: str) -> None:
    content = signed(saved(), STRUCTURES[name])
    with pytest.raises(CheckpointError, match=r"load\(\): the file"):
        norch.load(io.BytesIO(content))


def test_signed_without_a_change() -> None:
    assert list(norch.load(io.BytesIO(signed(saved(), lambda s: None)))) == list(STATE)
    with pytest.raises(CheckpointError, match="version 2 of the format, this norch reads 1: upgrade"):
        norch.load(io.BytesIO(signed(saved(), lambda s: s.update(version=2))))


def test_a_structure_without_its_mark() -> None:
    content = saved()
    rewritten = signed(content, lambda s: None).replace(b'"norch.header"', b'"another.one."')
    with pytest.raises(CheckpointError, match="norch.load_safetensors still reads its tensors"):
        norch.load(io.BytesIO(rewritten))
    with pytest.raises(CheckpointError, match="checksum"):
        norch.load(io.BytesIO(content.replace(b'"norch":', b'"other":')))


def test_errors_are_of_the_kinds_that_pytorch_raises(tmp_path):
    """Programs that go on where they stopped catch EOFError or RuntimeError of a file that was not written whole."""
    path = tmp_path / "state.pt"
    path.touch()
    with pytest.raises(EOFError, match="is empty"):
        norch.load(path)
    norch.save({"a": norch.ones(100)}, path, format="pytorch")
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(RuntimeError, match="cut off"):
        norch.load(path)
