"""Complex numbers in PyTorch's files, which norch has as pairs: read, written, conjugated."""

from __future__ import annotations

import io
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from pytorch_files import Name, Storage, floats, legacy, torch, zipped

import norch
from norch import CheckpointError, DTypeError


def load(content: bytes) -> Any:
    return norch.load(io.BytesIO(content))


SIX = floats(0, 1, 2, 3, 4, 5)


def test_complex_numbers_are_pairs() -> None:
    storage = Storage(torch("ComplexFloatStorage"), "0", 3)
    build = Name("torch._utils", "_rebuild_tensor_v2")
    whole, row = (storage, 0, (3,), (1,), False, OrderedDict()), (storage, 1, (2, 1), (1, 1), False, OrderedDict())
    parameter = Name("torch._utils", "_rebuild_parameter")(build(*whole), True, OrderedDict())
    found = load(zipped([build(*whole), build(*row), parameter], {"0": SIX}))
    assert [z.dtype for z in found] == [norch.complex64] * 3
    assert [z.tolist() for z in found] == [[1j, 2 + 3j, 4 + 5j], [[2 + 3j], [4 + 5j]], [1j, 2 + 3j, 4 + 5j]]
    assert [z.requires_grad for z in found] == [False, False, True]
    for beyond in ((storage, 1, (3,), (1,)), (storage, 0, (2,), (3,))):
        with pytest.raises(CheckpointError):
            load(zipped(build(*beyond, False, OrderedDict()), {"0": SIX}))
    found = load(legacy([build(*whole), build(*row)], {"0": (3, SIX)}))
    assert [z.tolist() for z in found] == [[1j, 2 + 3j, 4 + 5j], [[2 + 3j], [4 + 5j]]]
    with pytest.raises(CheckpointError):
        load(legacy(build(*whole), {"0": (6, SIX)}))


@pytest.mark.parametrize("bits", [{"conj": True}, {"neg": True}, {"conj": True, "neg": True}, {}, {"conj": False}])
def test_conjugates_and_negatives_are_what_they_say(bits: dict[str, bool]) -> None:
    storage = Storage(torch("ComplexFloatStorage"), "0", 3)
    build = Name("torch._utils", "_rebuild_tensor_v2")(storage, 0, (3,), (1,), False, OrderedDict(), bits)
    expected = norch.tensor([1j, 2 + 3j, 4 + 5j])
    expected = expected.conj() if bits.get("conj") else expected
    expected = -expected if bits.get("neg") else expected
    assert load(zipped(build, {"0": SIX})).tolist() == expected.tolist()
    if any(bits.values()):
        with pytest.raises(CheckpointError, match="a conjugate, which is read from zip files only"):
            load(legacy(build, {"0": (3, SIX)}))


def test_complex_numbers_on_bytes() -> None:
    storage = Storage(Name("torch.storage", "UntypedStorage"), "0", 24)
    build = Name("torch._utils", "_rebuild_tensor_v3")
    args = (storage, 1, (2,), (1,), False, OrderedDict())
    found = load(zipped([build(*args, torch("complex64")), torch("complex128")], {"0": SIX}))
    assert found[0].tolist() == [2 + 3j, 4 + 5j]
    assert found[1] is norch.complex128


def complex_state() -> dict[str, Any]:
    z = norch.view_as_complex(norch.arange(12.0).reshape(3, 2, 2))
    w = norch.view_as_complex(norch.arange(4.0, dtype=norch.float64).reshape(2, 2))
    return {
        "z": z, "views": [z[1:], z.t(), z[:, 1]], "again": z, "double": w, "grad": w.clone().requires_grad_(),
        "mixed": [w, norch.view_as_real(w)], "dtypes": [norch.complex64, norch.complex128], "empty": z[:0],
    }  # fmt: skip


def check_complex(found: dict[str, Any]) -> None:
    expected = complex_state()
    for ours, theirs in zip(
        [*expected["views"], *expected["mixed"], expected["z"], expected["grad"]],
        [*found["views"], *found["mixed"], found["z"], found["grad"]],
        strict=True,
    ):
        assert theirs.tolist() == ours.tolist()
        assert tuple(theirs.stride()) == tuple(ours.stride())
        assert str(theirs.dtype).partition(".")[2] == str(ours.dtype).partition(".")[2]
    assert (found["grad"].requires_grad, tuple(found["empty"].shape)) == (True, (0, 2))
    assert [str(dtype).partition(".")[2] for dtype in found["dtypes"]] == ["complex64", "complex128"]


def test_complex_numbers_in_files_for_pytorch(tmp_path: Path) -> None:
    for options in ({}, {"format": "pytorch"}):
        norch.save(complex_state(), tmp_path / "x.pt", **options)
        check_complex(norch.load(tmp_path / "x.pt"))
    z = complex_state()["z"]
    with pytest.raises(DTypeError, match="PyTorch reads no complex numbers of"):
        norch.save(z.to(norch.complex32), io.BytesIO(), format="pytorch")


def test_pytorch_and_norch_read_each_others_complex_numbers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    norch.save(complex_state(), tmp_path / "x.pt", format="pytorch")
    for mmap in (False, True):
        check_complex(torch.load(tmp_path / "x.pt", weights_only=True, mmap=mmap))
    z = torch.tensor([[1 + 2j, 3], [-4j, 0.5]])
    tree = {"z": z, "views": [z[1:], z.t(), z[:, 1]], "double": z.to(torch.complex128)}
    for new in (True, False):
        torch.save(tree, tmp_path / "x", _use_new_zipfile_serialization=new)
        for weights_only in (True, False):
            found = norch.load(tmp_path / "x", weights_only=weights_only)
            for a, b in zip(found["views"], tree["views"], strict=True):
                assert a.tolist() == b.tolist()
            assert [found[key].tolist() for key in ("z", "double")] == [z.tolist()] * 2
    for other in (z.conj(), z.conj().imag):
        torch.save(other, tmp_path / "x")
        assert norch.load(tmp_path / "x").tolist() == other.tolist()
