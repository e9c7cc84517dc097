"""Pickles, archives and files that were made to do harm: refused early, with little memory, and nothing is run."""

from __future__ import annotations

import io
import pickle
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytorch_files import Call, Name, Storage, floats, legacy, pickled, tensor, torch, zipped

import norch
from norch import CheckpointError


def load(content: bytes, *args: Any, **kwargs: Any) -> Any:
    return norch.load(io.BytesIO(content), *args, **kwargs)


def op(name: str, argument: bytes = b"") -> bytes:
    return getattr(pickle, name) + argument


PROTO, STOP = b"\x80\x02", b"."
ENCODE = b"c_codecs\nencode\n"
LATIN = op("SHORT_BINUNICODE", b"\6latin1")


def repeated(what: bytes, count: int = 100_000) -> bytes:
    return PROTO + b"](" + what * count + b"e."


PICKLES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "damaged"),
    "no end": (PROTO + b"]", "damaged"),
    "nothing": (PROTO + STOP, "does not end with one object"),
    "two things": (PROTO + b"]]" + STOP, "does not end with one object"),
    "an open mark": (PROTO + b"(" + STOP, "damaged"),
    "no memo": (PROTO + b"h\5" + STOP, "damaged"),
    "marks without end": (PROTO + b"e" + STOP, "damaged"),
    "a huge memo index": (PROTO + b"]r\xff\xff\xff\xff" + STOP, ""),
    "a text of 4 GB": (PROTO + b"X\xff\xff\xff\xffabc" + STOP, "damaged"),
    "bytes of 2**63": (PROTO + b"\x8e" + b"\xff" * 7 + b"\x7f" + STOP, "damaged"),
    "an int of 2 GB": (PROTO + b"\x8b\xff\xff\xff\x7f" + STOP, "damaged"),
    "a long decimal": (PROTO + b"L" + b"9" * 100_000 + b"L\n" + STOP, "damaged"),
    "an extension": (PROTO + b"\x82\1" + STOP, "uses EXT1"),
    "an instance": (PROTO + b"(ios\nsystem\n" + STOP, "uses INST"),
    "a buffer": (PROTO + b"\x97" + STOP, "uses NEXT_BUFFER"),
    "copies of a text": (
        PROTO
        + op("SHORT_BINUNICODE", b"\xff" + b"a" * 255)
        + b"q\0"
        + LATIN
        + b"q\1"
        + (ENCODE + b"h\0h\1\x86R") * 20_000
        + STOP,
        "far more memory",
    ),
    "copies of a list": (
        PROTO + b"](" + b"K\1" * 50_000 + b"eq\0" + b"(" + b"c__builtin__\nset\nh\0\x85R" * 1000 + b"t" + STOP,
        "far more",
    ),
    "copies of a tuple": (
        PROTO + b"(" + b"K\1" * 50_000 + b"tq\0" + b"(" + b"ctorch\nSize\nh\0\x85R" * 1000 + b"t.",
        "far",
    ),
    "a key of doubling tuples": (PROTO + b"})" + b"2\x86" * 60 + b"K\1s" + STOP, "key of too many parts"),
    "a deep key": (PROTO + b"})" + b"\x85" * 100_000 + b"K\1s" + STOP, "key of too many parts"),
    "members that collide": (
        PROTO
        + b"\x8f("
        + b"".join(b"\x8a\x0c" + ((2**61 - 1) * n).to_bytes(12, "little") for n in range(1, 20_000))
        + b"\x90.",
        "more than 10,000 keys",
    ),
    "keys that collide": (
        PROTO
        + b"}("
        + b"".join(b"\x8a\x0c" + ((2**61 - 1) * n).to_bytes(12, "little") + b"N" for n in range(1, 20_000))
        + b"u.",
        "more than 10,000 keys",
    ),
    "a list as a key": (PROTO + b"}]K\1s" + STOP, "damaged"),
    "items of a list": (PROTO + b"]K\1K\1s" + STOP, "sets items of a list"),
    "appended to a dict": (PROTO + b"}K\1a" + STOP, "appends to a dict"),
    "the state of a class": (PROTO + b"ctorch\nSize\n}X\1\0\0\0aK\1sb" + STOP, "state of a type"),
    "the state of a list": (PROTO + b"]}b" + STOP, "state of a list"),
    "a call of a number": (PROTO + b"K\1)R" + STOP, "calls a int"),
    "a call of a class": (PROTO + b"ctorch\nTensor\n)R" + STOP, "calls a type"),
    "arguments of a number": (PROTO + b"ctorch\nSize\nK\1R" + STOP, "arguments are no tuple"),
    "a name of numbers": (PROTO + b"K\1K\1\x93" + STOP, "no text"),
    "a name by its parts": (PROTO + LATIN + LATIN + b"\x93" + STOP, "holds latin1.latin1"),
    "something outside": (PROTO + b"K\1Q" + STOP, "damaged"),
    "a module outside": (PROTO + b"(X\6\0\0\0moduleNNNtQ" + STOP, "damaged"),
}


@pytest.mark.parametrize("name", PICKLES)
def test_pickles(name: str) -> None:
    content, message = PICKLES[name]
    for file in (zipped(content), legacy(content)):
        tracemalloc.start()
        start = time.process_time()
        try:
            if message:
                with pytest.raises(CheckpointError, match=rf"load\(\): .*({message}|cut off)"):
                    load(file)
            else:
                load(file)
            assert tracemalloc.get_traced_memory()[1] < 60_000_000
            assert time.process_time() - start < 20  # most of it tracemalloc's
        finally:
            tracemalloc.stop()


def test_deep_and_recursive_lists_are_read() -> None:
    deep = load(zipped(PROTO + b"]" * 50_000 + b"a" * 49_999 + STOP))
    depth = 0
    while deep:
        deep, depth = deep[0], depth + 1
    assert depth == 49_999
    found = load(zipped(PROTO + b"]q\0h\0a" + STOP))
    assert found[0] is found


def test_too_many_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("norch.serialization.pytorch.machine.MAX_CONTAINERS", 4000)
    with pytest.raises(CheckpointError, match="more than 4,000 containers"):
        load(zipped(repeated(b"]", 5000)))


# --- Tensors that do not lie within their storage -------------------------------------------------------------------

SIX = floats(0, 1, 2, 3, 4, 5)
STORAGE = Storage(torch("FloatStorage"), "0", 6)
REBUILD, V3 = Name("torch._utils", "_rebuild_tensor_v2"), Name("torch._utils", "_rebuild_tensor_v3")
TENSORS: dict[str, Any] = {
    "beyond": tensor("0", 6, (7,)),
    "behind": tensor("0", 6, (6,), (1,), 1),
    "far behind": tensor("0", 6, (1,), (1,), 2**62),
    "before": tensor("0", 6, (1,), (1,), -1),
    "backwards": tensor("0", 6, (2,), (-1,), 3),
    "wide strides": tensor("0", 6, (2, 2), (4, 2)),
    "overflow": tensor("0", 6, (2**40, 2**40), (0, 0)),
    "overflowing strides": tensor("0", 6, (3,), (2**62,)),
    "negative": tensor("0", 6, (-1,)),
    "text": REBUILD(STORAGE, 0, "a", "b"),
    "floats": REBUILD(STORAGE, 0, (1.0,), (1,)),
    "bools": REBUILD(STORAGE, 0, (True,), (1,)),
    "more strides": REBUILD(STORAGE, 0, (1,), (1, 1)),
    "many dims": tensor("0", 6, (1,) * 65),
    "no storage": REBUILD([1], 0, (1,), (1,)),
    "too few": REBUILD(STORAGE),
    "a view as a storage": REBUILD(tensor("0", 6, (2, 3)), 0, (6,), (1,)),
    "an offset of text": REBUILD(STORAGE, "0", (1,), (1,)),
    "strided as a storage": REBUILD(tensor("0", 6, (3,), (2,)), 0, (6,), (1,)),
    "wider": V3(STORAGE, 0, (6,), (1,), False, {}, torch("float64")),
    "no dtype": V3(STORAGE, 0, (6,), (1,), False, {}, 3),
    "a gradient of ints": tensor("0", 3, (3,), kind="LongStorage", grad=True),
    "a gradient of text": REBUILD(STORAGE, 0, (1,), (1,), "yes"),
    "more elements": tensor("0", 7, (1,)),
    "very many": tensor("0", 2**62, (1,)),
    "fewer than none": tensor("0", -1, (0,)),
    "another file": tensor("../1", 6, (6,)),
    "a kind of text": REBUILD(STORAGE._replace(kind="float"), 0, (6,), (1,)),
    "a place of numbers": REBUILD(STORAGE._replace(location=3), 0, (6,), (1,)),
    "no place": REBUILD(STORAGE._replace(location="a b"), 0, (6,), (1,)),
    "a parameter of a list": Name("torch._utils", "_rebuild_parameter")([1], True, {}),
    "another function": Name("torch._tensor", "_rebuild_from_type_v2")(
        Name("_codecs", "encode"), torch("Tensor"), ("a",), {}
    ),
    "a device of numbers": torch("device")(3),
    "no device": torch("device")("a b"),
    "many devices": torch("device")("cuda", 10**9),
    "sizes of text": torch("Size")("abc"),
    "too large an array": Call(
        Name("numpy.core.multiarray", "_reconstruct"),
        (Name("numpy", "ndarray"), (0,), b"b"),
        (1, (2**40,), Name("numpy", "dtype")("f8"), False, b""),
    ),
    "an array of no dtype": Call(
        Name("numpy.core.multiarray", "_reconstruct"),
        (Name("numpy", "ndarray"), (0,), b"b"),
        (1, (1,), "O", False, b""),
    ),
    "an array of a list": Name("numpy.core.multiarray", "_reconstruct")(Name("__builtin__", "list"), (0,), b"b"),
    "a number of too few": Name("numpy.core.multiarray", "scalar")(Name("numpy", "dtype")("f8"), b"abc"),
    "a dtype of many": Name("numpy", "dtype")("2f8"),
    "a dtype's state": Call(Name("numpy", "dtype"), ("f8",), (3, "O", None)),
    "an int of text": Name("__builtin__", "int")("9" * 4000),
    "a range of text": Name("__builtin__", "range")("a"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_that_lie(name: str, tmp_path: Path) -> None:
    tree = {"a": [TENSORS[name]]}
    (tmp_path / "x").write_bytes(zipped(tree, {"0": SIX}))
    for read in (lambda: norch.load(tmp_path / "x"), lambda: norch.load(tmp_path / "x", mmap=True)):
        with pytest.raises(CheckpointError, match="damaged|NumPy array of"):
            read()
    with pytest.raises(CheckpointError, match="damaged|NumPy array of"):
        load(legacy(tree, {"0": (6, SIX)}))


# --- Archives -------------------------------------------------------------------------------------------------------


def two_of(name: str) -> bytes:
    file = io.BytesIO(zipped([], {"0": SIX}))
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(file, "a") as archive:
        archive.writestr(name, b"other")
    return file.getvalue()


def patched(find: bytes, by: bytes, content: bytes | None = None) -> bytes:
    content = zipped(tensor("0", 6, (6,)), {"0": SIX}) if content is None else content
    assert find in content
    return content.replace(find, by, 1)


def overlapping() -> bytes:
    """Many members on the same bytes: what a zip bomb does."""
    whole = zipped(tensor("0", 6, (6,)), {"0": SIX, "1": SIX})
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        first, second = (archive.getinfo(f"m/data/{i}").header_offset for i in range(2))
    at = whole.rindex(b"m/data/1") - 4
    assert whole[at : at + 4] == struct.pack("<I", second)
    return whole[:at] + struct.pack("<I", first) + whole[at + 4 :]


def _plain_zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("readme.txt", b"hello")
    return file.getvalue()


def _two_pickles() -> bytes:
    file = io.BytesIO(zipped([]))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("n/data.pkl", pickled([]))
    return file.getvalue()


ARCHIVES: dict[str, tuple[Callable[[], bytes], str]] = {
    "only a head": (lambda: b"PK\3\4" + bytes(40), "cut off, or a damaged zip archive"),
    "cut off": (lambda: zipped(tensor("0", 6, (6,)), {"0": SIX})[:-30], "cut off, or a damaged zip archive"),
    "another archive": (_plain_zip, "is a zip archive, but not one that PyTorch wrote"),
    "a name twice": (lambda: two_of("m/data/0"), "comes twice"),
    "two pickles": (_two_pickles, "not one that PyTorch wrote"),
    "no storage": (lambda: zipped(tensor("0", 6, (6,))), "has no 'data/0'"),
    "compressed": (
        lambda: zipped(tensor("0", 6, (6,)), {"0": SIX}, method=zipfile.ZIP_DEFLATED),
        "is compressed by another",
    ),
    "a bomb": (
        lambda: zipped(tensor("0", 2**24, (1,)), {"0": bytes(2**26)}, method=zipfile.ZIP_DEFLATED),
        "is compressed",
    ),
    "damaged data": (lambda: patched(SIX, floats(9, 1, 2, 3, 4, 5)), "storage '0' is damaged"),
    "a damaged pickle": (lambda: patched(b"_rebuild_tensor_v2", b"_rebuild_tensor_v3"), "does not have the checksum"),
    "overlapping": (overlapping, "overlaps"),
    "bools of 7": (lambda: zipped(tensor("0", 2, (2,), kind="BoolStorage"), {"0": b"\1\7"}), "other than 0 and 1"),
    "code of zeros": (
        lambda: zipped(
            Call(Name("__torch__.a", "Net"), (), {}), {}, {"code/__torch__/a.py": bytes(2**28)}, zipfile.ZIP_DEFLATED
        ),
        "compressed by another",
    ),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives(name: str, tmp_path: Path) -> None:
    make, message = ARCHIVES[name]
    content = make()
    (tmp_path / "x").write_bytes(content)
    tracemalloc.start()
    try:
        for read in (lambda: load(content), lambda: norch.load(tmp_path / "x")):
            with pytest.raises(CheckpointError, match=message):
                read()
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


def test_archives_whose_checksums_were_left_out_are_read() -> None:
    content = zipped(tensor("0", 6, (6,)), {"0": SIX})
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for info in archive.infolist():
            content = content.replace(struct.pack("<I", info.CRC), bytes(4))
    assert load(content).tolist() == [0, 1, 2, 3, 4, 5]


LEGACY: dict[str, tuple[Callable[[], bytes], str]] = {
    "only a head": (lambda: legacy([])[:15], "cut off or damaged"),
    "another version": (lambda: legacy([]).replace(b"M\xe9\x03", b"M\xe8\x03", 1), "of another version"),
    "cut off": (lambda: legacy(tensor("0", 6, (6,)), {"0": (6, SIX)})[:-1], "more than the file"),
    "something behind": (lambda: legacy(tensor("0", 6, (6,)), {"0": (6, SIX)}) + b"x", "1 bytes follow"),
    "another count": (lambda: legacy(tensor("0", 6, (6,)), {"0": (5, SIX)}), "cut off or damaged at storage '0'"),
    "a storage too many": (lambda: legacy([], {"0": (6, SIX)}), "nothing lies on its storage"),
    "a storage too few": (lambda: legacy(tensor("0", 6, (6,))), "storage is not in the file"),
    "names among numbers": (
        lambda: legacy([]).replace(pickle.dumps([], 2), PROTO + b"cos\nsystem\n."),
        "numbers should be",
    ),
    "text without end": (lambda: legacy([])[:15] + PROTO + b"X\xff\xff\xff\xff", "cut off or damaged"),
}


@pytest.mark.parametrize("name", LEGACY)
def test_files_of_the_older_format(name: str, tmp_path: Path) -> None:
    make, message = LEGACY[name]
    (tmp_path / "x").write_bytes(make())
    with pytest.raises(CheckpointError, match=message):
        norch.load(tmp_path / "x")
