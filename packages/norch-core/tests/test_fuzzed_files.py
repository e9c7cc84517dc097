"""Thousands of damaged files, by seed: each is found to be damaged, or what was damaged did not matter."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damaged import saved, signed
from pytorch_files import repickled, state, unpickled

import norch
from norch import CheckpointError, DeviceError, DTypeError


def same(a: Any, b: Any) -> bool:
    if isinstance(a, norch.Tensor):
        return isinstance(b, norch.Tensor) and a.dtype is b.dtype and a.tolist() == b.tolist()
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.tolist() == b.tolist()
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and a == b


def test_every_flipped_bit_is_found() -> None:
    content = bytearray(saved({"a": norch.arange(5.0), "b": [norch.tensor([True]), 1], "c": norch.arange(3)}))
    whole = norch.load(io.BytesIO(content))
    length = 8 + int.from_bytes(content[:8], "little")
    for at in range(len(content)):
        for bit in range(8) if at >= length or at < 8 else (random.Random(at).randrange(8),):
            content[at] ^= 1 << bit
            with pytest.raises(CheckpointError) as caught:
                norch.load(io.BytesIO(content))
            if at >= length:
                assert "tensor '" in str(caught.value)
            content[at] ^= 1 << bit
    assert same(norch.load(io.BytesIO(content)), whole)


def test_every_truncation_is_found(tmp_path: Path) -> None:
    content, path = saved(), tmp_path / "cut"
    for size in range(len(content)):
        with pytest.raises(CheckpointError):
            norch.load(io.BytesIO(content[:size]))
    for size in random.Random(0).sample(range(len(content)), 100):
        path.write_bytes(content[:size])
        with pytest.raises(CheckpointError):
            norch.load(path, mmap=True)
        with pytest.raises(CheckpointError):
            norch.load_safetensors(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(CheckpointError, match="bytes follow"):
        norch.load(path)


def mutated(content: bytes, chance: random.Random) -> bytes:
    """`content` damaged in one of the ways that disks, networks and fools have."""
    data = bytearray(content)
    size, kind = len(data), chance.randrange(8)
    at, count = chance.randrange(size), chance.randrange(1, 40)
    if kind == 0:
        for _ in range(count):
            data[chance.randrange(size)] = chance.randrange(256)
    elif kind == 1:
        del data[at : at + count]
    elif kind == 2:
        data[at:at] = chance.randbytes(count)
    elif kind == 3:
        data[at : at + count] = bytes(count)
    elif kind == 4:
        other = chance.randrange(size)
        data[at : at + count] = data[other : other + count]
    elif kind == 5:
        data[:8] = chance.choice((0, 1, 7, 8, size, size - 8, 2**31, 2**63, chance.randrange(size))).to_bytes(
            8, "little"
        )
    elif kind == 6:  # numbers and punctuation of the header
        places = [i for i in range(8, size) if chr(data[i]) in '0123456789{}[]",:$']
        for _ in range(chance.randrange(1, 4)):
            data[chance.choice(places)] = ord(chance.choice('0123456789{}[]",:$- e.'))
    else:
        data = data[: at + 1]
    return bytes(data)


def test_thousands_of_mutations_of_a_checkpoint() -> None:
    content, chance = saved(), random.Random(1)
    whole, unharmed = norch.load(io.BytesIO(content)), 0
    for _ in range(10_000):
        damaged = mutated(content, chance)
        try:
            found = norch.load(io.BytesIO(damaged))
        except CheckpointError:
            continue
        assert same(found, whole)  # only what changed nothing, or was put behind the end, goes through
        unharmed += 1
    assert unharmed < 300


STRANGE: list[Any] = [
    None, True, -1, 0, 7, 2**70, 0.5, "", "views.0", "$tensor", [], {}, [[]], {"$tensor": 0}, {"$array": 0},
    {"$dict": [[{"$tuple": []}, 1]]}, {"$set": [1]}, {"$int": "0x7"}, {"data": "views.0", "shape": [9]},
]  # fmt: skip


def test_thousands_of_mutations_of_the_structure() -> None:
    """Signed anew, so that they reach what builds the objects."""
    content, chance, passed = saved(), random.Random(2), 0

    def damage(node: Any) -> Any:
        if chance.random() < 0.03:
            return chance.choice(
                [
                    None,
                    True,
                    -1,
                    0,
                    7,
                    2**70,
                    0.5,
                    "",
                    "views.0",
                    "$tensor",
                    [],
                    {},
                    [[]],
                    {"$tensor": 0},
                    {"$array": 0},
                ]
                + [{"$dict": [[{"$tuple": []}, 1]]}, {"$set": [1]}, {"$int": "0x7"}, {"data": "views.0", "shape": [9]}]
            )
        if isinstance(node, dict):
            return {chance.choice((k, k, k, k, k, k, k, "$tuple", "$dict", "x")): damage(v) for k, v in node.items()}
        return [damage(v) for v in node] if isinstance(node, list) else node

    for _ in range(2000):
        try:
            norch.load(io.BytesIO(signed(content, damage)))
            passed += 1
        except CheckpointError:
            pass
    assert 0 < passed < 1900


def test_thousands_of_mutations_of_a_foreign_file(tmp_path: Path) -> None:
    path, chance = tmp_path / "x", random.Random(3)
    norch.save_safetensors({"a": norch.ones(3, 2), "b": norch.arange(4), "c": norch.tensor([True, False])}, path)
    content = path.read_bytes()
    for i in range(2000):
        damaged = mutated(content, chance)
        try:
            if i % 2:
                path.write_bytes(damaged)
                found = norch.load_safetensors(path)
            else:
                found = norch.load(io.BytesIO(damaged))
        except (CheckpointError, DTypeError):
            continue
        assert sum(t.nbytes for t in found.values()) <= len(damaged)
        assert all(t.tolist() is not None for t in found.values())


def test_damage_is_judged_as_the_package_safetensors_does(tmp_path: Path) -> None:
    package = pytest.importorskip("safetensors")
    path, chance = tmp_path / "x", random.Random(4)
    norch.save_safetensors({"a": norch.ones(3, 2), "b": norch.arange(4)}, path, {"format": "pt"})
    content, accepted = path.read_bytes(), 0
    for _ in range(1500):
        damaged = mutated(content, chance)
        path.write_bytes(damaged)
        try:
            found = norch.load_safetensors(path, mmap=False)
        except (CheckpointError, DTypeError):
            continue
        theirs = dict(package.deserialize(damaged))
        assert {n: t.numpy().tobytes() for n, t in found.items()} == {n: bytes(t["data"]) for n, t in theirs.items()}
        accepted += 1
    assert accepted > 10


# --- PyTorch's ------------------------------------------------------------------------------------------------------


def test_every_flipped_bit_of_an_archive_is_found_or_does_not_matter() -> None:
    content = bytearray(state())
    whole, found = norch.load(io.BytesIO(content)), 0
    for at in range(len(content)):
        bit = 1 << random.Random(at).randrange(8)
        content[at] ^= bit
        try:
            assert same(norch.load(io.BytesIO(content)), whole)
        except (CheckpointError, DTypeError):
            found += 1
        content[at] ^= bit
    assert found > len(content) / 2


@pytest.mark.parametrize("kind", ["zip", "legacy"])
def test_thousands_of_mutations_of_pytorchs_files(kind: str, tmp_path: Path) -> None:
    content, chance, path, passed = state(kind), random.Random(5), tmp_path / "x", 0
    for i in range(3000):
        damaged = mutated(content, chance)
        try:
            if i % 3 == 0 and kind == "zip":
                path.write_bytes(damaged)
                norch.load(path, mmap=True)
            else:
                norch.load(io.BytesIO(damaged))
            passed += 1
        except (CheckpointError, DTypeError, DeviceError):
            pass
    assert 0 < passed < 1500


def test_every_truncation_of_pytorchs_files_is_found() -> None:
    for content in (state("zip"), state("legacy")):
        for size in range(len(content)):
            with pytest.raises(CheckpointError):
                norch.load(io.BytesIO(content[:size]))


def test_thousands_of_mutations_of_a_pickle() -> None:
    """Zipped anew, so that they reach what builds the objects."""
    content, chance, passed = state(), random.Random(6), 0
    for _ in range(3000):
        try:
            norch.load(io.BytesIO(repickled(content, lambda data: unpickled(data, chance))))
            passed += 1
        except (CheckpointError, DTypeError, DeviceError):
            pass
    assert 0 < passed < 2000
