"""Weights that are neither norch's nor torch.save's: TorchScript archives and GGUF files."""

from __future__ import annotations

import io
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytorch_files import Call, Name, floats, tensor, zipped

import norch
from norch import CheckpointError


def load(content: bytes, *args: Any, **kwargs: Any) -> Any:
    return norch.load(io.BytesIO(content), *args, **kwargs)


SIX = floats(0, 1, 2, 3, 4, 5)

# --- TorchScript ----------------------------------------------------------------------------------------------------

CODE = b"""class Net(Module):
  __parameters__ = ["weight", ]
  __buffers__ = ["mean", ]
  weight : Tensor
"""


def script() -> bytes:
    child = Call(Name("__torch__.parts", "Part"), (), {"bias": tensor("0", 6, (2,), (1,), 4), "training": False})
    net = Call(
        Name("__torch__", "Net"),
        (),
        {
            "weight": tensor("0", 6, (2, 3)), "mean": tensor("0", 6, (1,)), "constant": tensor("0", 6, (6,)),
            "sizes": Name("torch.jit._pickle", "build_intlist")([1, 2]), "0": child, "again": child,
        },
    )  # fmt: skip
    return zipped(net, {"0": SIX}, {"code/__torch__.py": CODE})


def test_torchscript_archives_give_up_their_weights() -> None:
    found = load(script())
    assert {name: value.tolist() for name, value in found.items()} == {
        "weight": [[0, 1, 2], [3, 4, 5]], "mean": [0], "0.bias": [4, 5], "again.bias": [4, 5],
    }  # fmt: skip
    frozen = zipped(Call(Name("__torch__", "Net"), (), {}), {}, {"code/x.py": b"", "constants/0": b""})
    with pytest.raises(CheckpointError, match="frozen into its code"):
        load(frozen)


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_torchscript_of_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.ReLU()))
    torch.jit.trace(model.eval(), torch.ones(2, 2)).save(tmp_path / "x")
    found, state = norch.load(tmp_path / "x"), model.state_dict()
    assert list(found) == list(state)
    assert [v.tolist() for v in found.values()] == [v.tolist() for v in state.values()]


# --- GGUF -----------------------------------------------------------------------------------------------------------


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(
    tensors: dict[str, tuple[int, tuple[int, ...], bytes]], pairs: bytes = b"", count: int = 0, version: int = 3
) -> bytes:
    """tensors: type, shape and bytes of each. pairs: `count` pieces of metadata."""
    head, data = b"GGUF" + struct.pack("<IQQ", version, len(tensors), count) + pairs, b""
    for name, (kind, shape, content) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += struct.pack("<IQ", kind, len(data))
        data += content + bytes(-len(content) % 32)
    return head + bytes(-len(head) % 32) + data


PLAIN = {
    "float": (0, (2, 3), SIX), "half": (1, (2,), b"\0\x3c\0\x40"), "brain": (30, (1, 2), b"\x80\x3f\0\x40"),
    "int": (26, (1,), b"\5\0\0\0"),
}  # fmt: skip
PAIRS = [
    text("general.name") + struct.pack("<I", 8) + text("é"), text("n") + struct.pack("<II", 4, 7),
    text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc"),
    text("scores") + struct.pack("<IIQ2d", 9, 12, 2, 0.5, 1), text("flag") + struct.pack("<IB", 7, 1),
]  # fmt: skip


def test_gguf_files_are_read(tmp_path: Path) -> None:
    content = gguf(PLAIN, b"".join(PAIRS), len(PAIRS))
    (tmp_path / "x.gguf").write_bytes(content)
    for found in (load(content), norch.load(tmp_path / "x.gguf", "cpu"), norch.load(tmp_path / "x.gguf", mmap=True)):
        assert {name: value.tolist() for name, value in found.items()} == {
            "float": [[0, 1, 2], [3, 4, 5]], "half": [1, 2], "brain": [[1, 2]], "int": [5],
        }  # fmt: skip
        assert [value.dtype for value in found.values()] == [norch.float32, norch.float16, norch.bfloat16, norch.int32]


EIGHT = struct.pack("<e32b", 0.5, *range(32))


def test_quantised_tensors_become_float32() -> None:
    pytest.importorskip("gguf")
    found = load(gguf({"w": (8, (2, 32), EIGHT + EIGHT)}))["w"]
    assert found.dtype is norch.float32
    assert found.tolist() == [[n / 2 for n in range(32)]] * 2


def test_each_quantisation_is_as_the_package_reads_it(tmp_path: Path) -> None:
    package = pytest.importorskip("gguf")
    chance, path, tensors, expected = np.random.default_rng(0), tmp_path / "x", {}, {}
    for kind, (block, size) in package.GGML_QUANT_SIZES.items():
        raw = chance.integers(0, 60, (3, 512 // block * size), np.uint8)  # small: no exponent of infinity among them
        try:
            expected[kind.name] = package.quants.dequantize(raw, kind) if block > 1 else None
        except NotImplementedError:
            with pytest.raises(norch.DTypeError, match=f"{kind.name}, which the package gguf does not dequantise"):
                load(gguf({"w": (int(kind), (3, 512), raw.tobytes())}))
            continue
        if block > 1:
            tensors[kind.name] = (int(kind), (3, 512), raw.tobytes())
    path.write_bytes(gguf(tensors))
    assert len(tensors) > 15
    for name, found in norch.load(path).items():
        assert np.array_equal(found.numpy(), expected[name], equal_nan=True), name


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ImportError, match=r"pip install norch-core\[gguf\]"):
        load(gguf({"w": (8, (2, 32), EIGHT + EIGHT)}))
    assert load(gguf(PLAIN))["int"].tolist() == [5]


GGUF = {
    "no header": (b"GGUF\3\0\0\0", "cut off or damaged"),
    "version": (gguf({}, version=9), "of version 9"),
    "big-endian": (b"GGUF\0\0\0\3" + bytes(16), "big-endian"),
    "cut off": (gguf(PLAIN)[:-40], "reaches beyond the end"),
    "many tensors": (b"GGUF" + struct.pack("<IQQ", 3, 2**62, 0), "cut off or damaged"),
    "many pairs": (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**62), "cut off or damaged"),
    "many texts": (gguf({}, text("a") + struct.pack("<IIQ", 9, 8, 2**62), 1), "cut off or damaged"),
    "a long array": (gguf({}, text("a") + struct.pack("<IIQ", 9, 12, 2**62), 1), "cut off or damaged"),
    "a long text": (gguf({}, struct.pack("<Q", 2**63), 1), "cut off or damaged"),
    "arrays of arrays": (gguf({}, text("a") + struct.pack("<IIQ", 9, 9, 1), 1), "metadata of type 9"),
    "alignment": (gguf({}, text("general.alignment") + struct.pack("<II", 4, 3), 1), "alignment of 3"),
    "many dims": (gguf({"a": (0, (1,) * 40, SIX)}), "has 40 dims"),
    "huge": (gguf({"a": (0, (2**40, 2**40), SIX)}), "reaches beyond the end"),
    "huge and empty": (gguf({"a": (0, (2**62, 2**62, 0), b"")}), "cannot have shape"),
    "twice": (gguf({"a": (0, (6,), SIX)}).replace(struct.pack("<QQ", 1, 0), struct.pack("<QQ", 2, 0), 1), "damaged"),
    "not text": (gguf({"a": (0, (6,), SIX)}).replace(b"a", b"\xff", 1), "damaged"),
}


@pytest.mark.parametrize("name", GGUF)
def test_gguf_files_that_lie(name: str) -> None:
    content, message = GGUF[name]
    with pytest.raises(CheckpointError, match=message):
        load(content)


def test_tensors_of_gguf_that_overlap() -> None:
    content = gguf({"a": (0, (6,), SIX), "b": (0, (6,), SIX)})
    at = content.index(b"b") + 1 + 4 + 8 + 4
    assert content[at] == 32
    with pytest.raises(CheckpointError, match="tensor 'b' overlaps another"):
        load(content[:at] + b"\x10" + content[at + 1 :])


@pytest.mark.parametrize(("content", "kind"), [(script(), "a checkpoint of PyTorch"), (gguf(PLAIN), "a GGUF file")])
def test_who_asks_for_safetensors_is_told_of_load(content: bytes, kind: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    for read in (norch.load_safetensors, norch.safe_open):
        with pytest.raises(CheckpointError, match=f"x is {kind}, whose tensors norch.load reads"):
            read(tmp_path / "x")
