"""Sparse tensors in files: norch's, and those that PyTorch reads."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

import norch
from norch import CheckpointError

COO = norch.sparse_coo_tensor(norch.tensor([[0, 1, 1], [2, 0, 0]]), norch.tensor([1.0, 2.0, 3.0]), (2, 3))
MADE = {
    "coo": COO, "coalesced": COO.coalesce(), "csr": COO.to_dense().to_sparse_csr(),
    "csc": COO.to_dense().to_sparse_csc(), "hybrid": norch.ones(2, 3, 2).to_sparse(2),
    "empty": norch.zeros(2, 2).to_sparse(),
}  # fmt: skip


@pytest.mark.parametrize("format", ["safetensors", "pytorch"])
def test_sparse_tensors_are_saved(tmp_path: Any, format: str) -> None:
    dense = norch.arange(3.0)
    norch.save({"made": MADE, "again": [MADE["csr"]], "dense": dense}, tmp_path / "x", format=format)
    found = norch.load(tmp_path / "x")
    assert found["dense"].tolist() == dense.tolist()
    for name, x in [*MADE.items(), ("csr", found["again"][0])]:
        got = found["made"][name]
        assert (got.layout, got.shape, got.dtype) == (x.layout, x.shape, x.dtype)
        assert got.to_dense().tolist() == x.to_dense().tolist()
    assert [found["made"][name].is_coalesced() for name in ("coo", "coalesced")] == [False, True]


@pytest.mark.filterwarnings("ignore")
def test_pytorch_reads_them(tmp_path: Any) -> None:
    torch = pytest.importorskip("torch")
    norch.save(MADE, tmp_path / "x.pt", format="pytorch")
    for name, got in torch.load(tmp_path / "x.pt", weights_only=True).items():
        assert str(got.layout) == str(MADE[name].layout).replace("norch", "torch")
        assert got.to_dense().tolist() == MADE[name].to_dense().tolist()
        assert got.layout != torch.sparse_coo or got.is_coalesced() == MADE[name].is_coalesced()


@pytest.mark.parametrize("damage", [("sparse_coo", "sparse_bsr"), ("[2,3]", "[2,1]"), ("[2,3]", "7"), ("true", "[]")])
def test_damaged_ones_are_refused(damage: tuple[str, str]) -> None:
    from norch.serialization.tree import Decoder, Encoder

    encoder = Encoder()
    text = json.dumps(encoder.encode(COO.coalesce()), separators=(",", ":"))
    assert damage[0] in text
    node = json.loads(text.replace(*damage))
    decoder = Decoder([tensor for _, tensor in encoder.tensors], [], CheckpointError)
    if damage[0] == "true":
        assert not decoder.decode(node).is_coalesced()
        return
    with pytest.raises((CheckpointError, norch.NorchError, IndexError)):
        decoder.decode(node)


class Sink:
    """A file that can do no more than it must."""

    def __init__(self, data: bytes = b"") -> None:
        self.file = io.BytesIO(data)

    def write(self, data: Any) -> int:
        return self.file.write(data)

    def read(self, count: int = -1) -> bytes:
        return self.file.read(count)


@pytest.mark.parametrize("format", ["safetensors", "pytorch"])
def test_files_need_no_more_than_to_write_and_read(format: str) -> None:
    sink = Sink()
    norch.save([norch.ones(2)], sink, format=format)
    assert norch.load(Sink(sink.file.getvalue()))[0].tolist() == [1, 1]
