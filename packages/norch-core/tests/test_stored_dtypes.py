"""Dtypes for storing numbers, uint16 to uint64 and float8: made, cast, moved, written and read, but not computed in."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import norch
from norch import DTypeError
from norch.dispatch.stored import decoded, encoded
from norch.dtype import ALL, DTYPES, STORED

INTEGERS = [d for d in STORED if not d.is_floating_point]
FLOATS = [d for d in STORED if d.is_floating_point]
RANDOM = np.random.default_rng(5)


def ids(dtype: norch.DType) -> str:
    return dtype.name


def bits(x: norch.Tensor) -> list[int]:
    return x.contiguous().view(norch.uint8).cpu().tolist()


def sweep() -> np.ndarray[Any, Any]:
    """float32 of every kind: random bits, one in 65,537, the edges of every format, and common magnitudes."""
    edges = [
        0,
        448,
        464,
        465,
        480,
        57344,
        61439,
        61440,
        65536,
        240,
        247,
        248,
        256,
        2**-9,
        2**-10,
        2**-16,
        2**-17,
        2**-18,
    ]
    around = (lambda v: v, lambda v: -v, lambda v: np.nextafter(v, np.float32(0)), lambda v: v * np.float32(1.0000001))
    edges = [f(np.float32(x)) for x in (*edges, np.inf, np.nan, 1e38) for f in around]
    return np.concatenate(
        [
            RANDOM.integers(0, 2**32, 20000, np.uint64).astype(np.uint32).view(np.float32),
            np.arange(0, 2**32, 65537, np.uint64).astype(np.uint32).view(np.float32),
            (RANDOM.standard_normal(20000) * RANDOM.choice([1e-3, 0.01, 1, 100, 1e4], 20000)).astype(np.float32),
            np.array(edges, np.float32),
        ]
    )


def test_what_they_are() -> None:
    assert [d.itemsize for d in STORED] == [2, 4, 8, 1, 1, 1, 1]
    assert all(d.is_stored for d in STORED)
    assert not any(d.is_stored for d in DTYPES)
    assert not norch.uint16.is_signed
    assert norch.float8_e5m2.is_signed
    assert norch.float8_e5m2.is_floating_point
    assert (norch.iinfo(norch.uint64).max, norch.iinfo(norch.uint16).min) == (2**64 - 1, 0)
    assert [norch.finfo(d).max for d in FLOATS] == [448, 57344, 240, 57344]
    assert [norch.finfo(d).eps for d in FLOATS] == [0.125, 0.25, 0.125, 0.25]
    assert [norch.finfo(d).tiny for d in FLOATS] == [2**-6, 2**-14, 2**-7, 2**-15]
    for dtype in STORED:
        assert pickle.loads(pickle.dumps(dtype)) is dtype
        assert norch.empty(3, dtype=dtype.name).dtype is dtype


@pytest.mark.parametrize("dtype", STORED, ids=ids)
def test_making_and_reading(dtype: norch.DType, device: str) -> None:
    number = float if dtype.is_floating_point else int
    for x in (
        norch.tensor([1, 2, 3], dtype=dtype, device=device),
        norch.tensor([1.0, 2.0, 3.0], device=device).to(dtype),
        norch.arange(1, 4, device=device).to(dtype),
        norch.full((3,), 1, dtype=dtype, device=device).copy_(norch.tensor([1, 2, 3], device=device)),
        norch.from_numpy(np.array([1, 2, 3]).astype(dtype.numpy)).to(device),
    ):
        assert x.dtype is dtype
        assert x.tolist() == [1, 2, 3]
        assert type(x[1].item()) is number
        assert x.cpu().numpy().dtype == dtype.numpy
        assert repr(x.cpu()) == f"tensor([{'1., 2., 3.' if number is float else '1, 2, 3'}], dtype=norch.{dtype.name})"
    assert norch.zeros(2, dtype=dtype, device=device).tolist() == [0, 0]
    assert norch.ones(2, dtype=dtype, device=device).tolist() == [1, 1]
    assert norch.empty(2, 3, dtype=dtype, device=device).fill_(3).tolist() == [[3] * 3] * 2


@pytest.mark.parametrize("dtype", STORED, ids=ids)
def test_moving(dtype: norch.DType, device: str) -> None:
    values = norch.tensor([[0.0, 1, 2, 3], [4, 5, 6, 7], [8, 10, 12, 14]], device=device)
    x, mask = values.to(dtype), values > 5
    at = norch.tensor([2, 0], device=device)
    for move in (
        lambda x: x.clone(), lambda x: x.t().contiguous(), lambda x: x[1:, ::2], lambda x: x[at], lambda x: x[mask],
        lambda x: norch.cat([x, x[:1]]), lambda x: norch.stack([x, x], 1), lambda x: x.index_select(1, at),
        lambda x: x.gather(0, at.reshape(1, 2)), lambda x: x.flip(0), lambda x: x.roll(1, 1), lambda x: x.repeat(2, 1),
        lambda x: norch.where(mask, x, x.flip(1)), lambda x: norch.where(mask, x, 3), lambda x: x.masked_fill(mask, 2),
        lambda x: norch.pad(x, (1, 1)), lambda x: x.expand(2, 3, 4), lambda x: x.tril(),
        lambda x: norch.embedding(at, x), lambda x: x.scatter(0, at.reshape(1, 2), x),
    ):  # fmt: skip
        found = move(x)
        assert found.dtype is dtype
        assert norch.equal(found.to(norch.float32), move(values))
    x[0] = 7
    x[1, 1] = norch.tensor(5.0)
    x[at] = x[:2].clone()
    x.t().copy_(x.t().flip(0))
    assert x.tolist() == [[7, 6, 5, 4], [7, 6, 5, 4], [7, 7, 7, 7]]


@pytest.mark.parametrize("dtype", STORED, ids=ids)
def test_equality(dtype: norch.DType, device: str) -> None:
    x = norch.tensor([1, 2, 3], dtype=dtype, device=device)
    y = norch.tensor([1, 0, 3], dtype=dtype, device=device)
    assert (x == y).tolist() == [True, False, True]
    assert (x != y).tolist() == [False, True, False]
    assert (x == 2).tolist() == [False, True, False]
    assert (x != 2.0).tolist() == [True, False, True]
    assert norch.equal(x, x.clone())
    assert bool(x.any())
    assert not bool(y.all())
    if dtype.is_floating_point:
        special = norch.tensor([0.0, float("nan")], device=device).to(dtype)
        other = norch.tensor([-0.0, float("nan")], device=device).to(dtype)
        assert (special == other).tolist() == [True, False]
        assert special.isnan().tolist() == [False, True]


@pytest.mark.parametrize("dtype", STORED, ids=ids)
def test_arithmetic_is_refused_with_the_way_around(dtype: norch.DType, device: str) -> None:
    x = norch.ones(3, dtype=dtype, device=device)
    for name, compute in {
        "add": lambda: x + x, "mul": lambda: x * 2, "sub": lambda: x - x, "lt": lambda: x < x, "neg": lambda: -x,
        "amax": lambda: x.amax(), "sort": lambda: x.sort(), "matmul": lambda: x @ x, "maximum": lambda: x.clamp(0),
    }.items():  # fmt: skip
        with pytest.raises(DTypeError, match=rf"{name}\(\): norch.{dtype.name} is for storing .*convert first: x.to\("):
            compute()
    with pytest.raises(DTypeError, match="no common dtype; convert one"):
        x + norch.ones(3, dtype=norch.int32, device=device)
    with pytest.raises(DTypeError, match="that ops compute in"):
        norch.set_default_dtype(dtype)


def test_promotion() -> None:
    for stored in STORED:
        assert norch.promote_types(stored, stored) is stored
        for other in ALL:
            if other is stored:
                continue
            if not stored.is_floating_point and other.is_floating_point and not other.is_stored:
                assert norch.promote_types(stored, other) is norch.promote_types(other, stored) is other
            else:
                with pytest.raises(DTypeError, match="no common dtype"):
                    norch.promote_types(stored, other)
    x = norch.tensor([1, 65535], dtype=norch.uint16)
    assert (x + 0.5).tolist() == [1.5, 65535.5]
    assert (x / x).dtype is norch.float32
    assert x.sum().item() == 65536


def test_integers_wrap_and_keep_all_their_bits(device: str) -> None:
    large = norch.tensor([2**64 - 1, 2**63, 1], dtype=norch.uint64, device=device)
    assert large.tolist() == [2**64 - 1, 2**63, 1]
    assert large.to(norch.int64).tolist() == [-1, -(2**63), 1]
    assert large.to(norch.float64).tolist() == [2.0**64, 2.0**63, 1]
    assert large.to(norch.float64)[:1].to(norch.float32).item() == 2.0**64
    assert norch.tensor([2.0**63, 1.5], dtype=norch.float64, device=device).to(norch.uint64).tolist() == [2**63, 1]
    assert norch.tensor([-1, 65537], device=device).to(norch.uint16).tolist() == [65535, 1]
    assert norch.tensor([70000], dtype=norch.uint32, device=device).to(norch.uint16).tolist() == [70000 - 65536]
    assert norch.full((1,), 2**64 - 1, dtype=norch.uint64, device=device).item() == 2**64 - 1
    with pytest.raises(DTypeError, match="65536 is out of range for norch.uint16"):
        norch.tensor([65536], dtype=norch.uint16)


@pytest.mark.parametrize("dtype", FLOATS, ids=ids)
def test_every_float8_as_ml_dtypes_has_it(dtype: norch.DType, device: str) -> None:
    codes = np.arange(256, dtype=np.uint8)
    wanted = codes.view(dtype.numpy).astype(np.float64)
    x = norch.from_numpy(codes.copy()).to(device).view(dtype)
    for wide in (norch.float64, norch.float32, norch.float16, norch.bfloat16):
        found = x.to(wide).to(norch.float64).cpu().numpy()
        np.testing.assert_array_equal(found, wanted)
        assert not np.signbit(found[~np.isnan(wanted)] * np.where(np.signbit(wanted[~np.isnan(wanted)]), -1, 1)).any()
    np.testing.assert_array_equal(np.array(decoded(dtype)), wanted)
    finite = np.isfinite(wanted)
    again = x.to(norch.float32).to(dtype).view(norch.uint8).cpu().numpy()
    np.testing.assert_array_equal(again[finite], codes[finite])


@pytest.mark.parametrize("dtype", FLOATS, ids=ids)
def test_rounding_to_float8(dtype: norch.DType, device: str) -> None:
    values = sweep()
    with np.errstate(all="ignore"):
        wanted = values.astype(dtype.numpy)
    if dtype is norch.float8_e4m3fn:  # PyTorch's saturates
        over = np.abs(values) > 448
        wanted[over] = np.copysign(448, values[over]).astype(dtype.numpy)
    found = norch.from_numpy(values.copy()).to(device).to(dtype).cpu().numpy()
    number = ~np.isnan(wanted.astype(np.float32))
    np.testing.assert_array_equal(found.view(np.uint8)[number], wanted.view(np.uint8)[number])
    assert np.isnan(found[~number].astype(np.float32)).all()
    scalars = [encoded(float(v), dtype) for v in values[-3000:]]
    assert scalars == found.view(np.uint8)[-3000:].tolist()


@pytest.mark.parametrize("source", ALL, ids=ids)
@pytest.mark.parametrize("target", STORED, ids=ids)
def test_the_bits_of_pytorch(source: norch.DType, target: norch.DType) -> None:
    torch = pytest.importorskip("torch")
    kinds = {d: getattr(torch, d.name) for d in (source, target)}
    if source in FLOATS:
        raw = np.tile(np.arange(256, dtype=np.uint8), 2)
    elif source.is_floating_point:
        raw = sweep() if target in FLOATS else (RANDOM.random(4000) * min(2.0 ** (8 * target.itemsize), 6e4))
        raw = torch.from_numpy(raw).to(kinds[source]).view(torch.uint8).numpy()
    elif source is norch.bool:
        raw = RANDOM.integers(0, 2, 64).astype(np.uint8)
    else:
        raw = RANDOM.integers(0, 256, 8 * 4000).astype(np.uint8)
    given = torch.from_numpy(raw.copy()).view(kinds[source])
    if source.is_floating_point and not target.is_floating_point:  # what a C cast leaves open is left open here
        given = torch.where((given.float() >= 0) & (given.float() < 6e4), given, torch.zeros_like(given))
    mine = norch.from_numpy(given.view(torch.uint8).numpy().copy()).view(source)
    wanted = given.to(kinds[target]).view(torch.uint8).numpy()
    np.testing.assert_array_equal(np.array(bits(mine.to(target))), wanted)
    there = given.to(kinds[target])
    finite = torch.isfinite(there.float()).numpy()  # NaN as an integer is left open, its sign in bfloat16 is dropped
    back = np.array(bits(mine.to(target).to(source))).reshape(len(finite), -1)
    wanted = there.to(kinds[source]).view(torch.uint8).numpy().reshape(len(finite), -1)
    np.testing.assert_array_equal(back[finite], wanted[finite])


def test_gradients_pass_through_casts(device: str) -> None:
    x = norch.tensor([1.06, -3.0], device=device, requires_grad=True)
    (x.to(norch.float8_e4m3fn).to(norch.float32) * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]
    parameter = norch.ones(3, device=device).to(norch.float8_e5m2).requires_grad_()
    parameter.to(norch.float32).sum().backward()
    assert parameter.grad.dtype is norch.float8_e5m2


def test_other_layouts_and_sizes(device: str) -> None:
    x = (norch.arange(24.0, device=device) % 8).reshape(2, 3, 4)
    for view in (x.permute(2, 0, 1), x[:, 1:, ::2], x[:0], x[1, 2, 3], x[:, :1].expand(2, 3, 4)):
        for dtype in STORED:
            stored = view.to(dtype)
            assert stored.shape == view.shape
            assert norch.equal(stored.to(norch.float32), view)
            target = norch.zeros(4, 3, 2, dtype=dtype, device=device)
            if view.shape == (2, 3, 4):
                target.permute(2, 1, 0).copy_(view)
                assert norch.equal(target.permute(2, 1, 0).to(norch.float32), view)


@pytest.mark.parametrize("format", ["norch", "safetensors", "pytorch"])
def test_files(tmp_path: Path, format: str) -> None:
    state = {d.name: norch.arange(6).reshape(2, 3).to(d) for d in ALL}
    path = tmp_path / "x"
    if format == "safetensors":
        norch.save_safetensors(state, path)
    else:
        norch.save(state, path, **({"format": "pytorch"} if format == "pytorch" else {}))
    for found in (norch.load(path), norch.load(path, mmap=False)):
        assert {k: v.dtype for k, v in found.items()} == {k: v.dtype for k, v in state.items()}
        assert all(norch.equal(found[k], v) for k, v in state.items())


def test_files_of_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    state = {d.name: torch.arange(6).reshape(2, 3).to(getattr(torch, d.name)).t() for d in ALL}
    torch.save(state, tmp_path / "x.pt")
    found = norch.load(tmp_path / "x.pt")
    for name, value in state.items():
        assert found[name].dtype is getattr(norch, name)
        assert found[name].stride() == value.stride()
        assert found[name].to(norch.float32).tolist() == value.float().tolist()
    norch.save(found, tmp_path / "y.pt", format="pytorch")
    back = torch.load(tmp_path / "y.pt", weights_only=True)
    for name, value in state.items():
        assert back[name].dtype is value.dtype
        assert torch.equal(back[name], value)


def test_pickles_and_dlpack() -> None:
    for dtype in STORED:
        x = norch.tensor([1, 2], dtype=dtype)
        again = pickle.load(io.BytesIO(pickle.dumps(x)))
        assert again.dtype is dtype
        assert norch.equal(again, x)
        there = x if dtype.is_floating_point else np.from_dlpack(x)  # NumPy lacks floats of 8 bits
        back = norch.from_dlpack(there)
        assert back.dtype is dtype
        assert norch.equal(back, x)
    assert norch.from_numpy(np.ones(2, ml_dtypes.float8_e4m3fn)).dtype is norch.float8_e4m3fn
