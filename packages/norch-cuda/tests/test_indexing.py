"""gather, scatter, scatter_add, embedding and its gradient on the GPU, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import norch

FLOATS = (norch.float64, norch.float32, norch.float16, norch.bfloat16)
INTEGERS = (norch.int64, norch.int32, norch.int16, norch.int8, norch.uint8)
TOLERANCE = {norch.float64: 1e-13, norch.float32: 1e-5, norch.float16: 2e-3, norch.bfloat16: 1.6e-2}


def host(x: norch.Tensor) -> Any:
    x = x.detach().to("cpu")
    return (x.to(norch.float32) if x.dtype is norch.bfloat16 else x).numpy()


def given(values: Any, dtype: Any, device: str) -> norch.Tensor:
    return norch.tensor(np.asarray(values)).to(dtype).to(device)


def taken(x: Any, dim: int, index: Any) -> Any:
    x = x[tuple(slice(None) if d == dim else slice(0, n) for d, n in enumerate(index.shape))]
    return np.take_along_axis(x, index, dim)


def added(out: Any, dim: int, index: Any, src: Any) -> Any:
    """In float64; the second: the sum of sizes, which the error is measured by."""
    out = out.astype(np.float64 if out.dtype.kind == "f" else out.dtype)
    size = np.abs(out)
    places = list(np.indices(index.shape))
    places[dim] = index % out.shape[dim]
    source = src[tuple(slice(0, n) for n in index.shape)].astype(out.dtype)
    np.add.at(out, tuple(places), source)
    np.add.at(size, tuple(places), np.abs(source))
    return out, size


def bits_equal(a: norch.Tensor, b: norch.Tensor) -> bool:
    return host(a).tobytes() == host(b).tobytes()


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, norch.bool], ids=str)
@pytest.mark.parametrize(
    ("shape", "dim", "wanted"),
    [((7, 5), 0, (3, 5)), ((7, 5), 1, (4, 9)), ((3, 4, 64), 1, (3, 6, 64)), ((1000,), 0, (5000,)), ((4, 3), 0, (0, 3))],
)
def test_gather(cuda: str, dtype: Any, shape: Any, dim: int, wanted: Any) -> None:
    draw = np.random.default_rng(0)
    x = given(draw.integers(0, 2 if dtype is norch.bool else 100, shape), dtype, cuda)
    index = draw.integers(-shape[dim], shape[dim], wanted)
    out = norch.gather(x, dim, norch.tensor(index, device=cuda))
    assert out.dtype is dtype
    np.testing.assert_array_equal(host(out), taken(host(x), dim, index))


@pytest.mark.parametrize("features", [1, 3, 8, 31, 64, 130, 1024])
@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16, norch.uint8], ids=str)
def test_rows_of_any_width(cuda: str, features: int, dtype: Any) -> None:
    draw = np.random.default_rng(1)
    x = given(draw.integers(0, 200, (50, features)), dtype, cuda)
    index = draw.integers(-50, 50, 77)
    rows = norch.tensor(index, device=cuda)
    np.testing.assert_array_equal(host(norch.index_select(x, 0, rows)), host(x)[index])
    np.testing.assert_array_equal(host(x[rows]), host(x)[index])
    # Rows that start between 16-byte boundaries, and columns of a wider tensor.
    np.testing.assert_array_equal(host(norch.index_select(x[1:], 0, rows.remainder(49))), host(x)[1:][index % 49])
    wide = norch.cat((x, x), 1)[:, 1 : features + 1]
    np.testing.assert_array_equal(host(norch.index_select(wide, 0, rows)), host(wide)[index])
    np.testing.assert_array_equal(host(norch.index_select(x.T, 1, rows)), host(x).T[:, index])


def test_gather_of_strided_operands(cuda: str) -> None:
    draw = np.random.default_rng(2)
    x, index = draw.normal(size=(6, 8, 10)), draw.integers(-8, 8, (10, 4, 6))
    nx, ni = norch.tensor(x, device=cuda), norch.tensor(index, device=cuda).permute(2, 1, 0)
    np.testing.assert_array_equal(host(norch.gather(nx, 1, ni)), taken(x, 1, index.transpose(2, 1, 0)))
    expanded = nx[:1].expand(6, 8, 10)
    np.testing.assert_array_equal(
        host(norch.gather(expanded, 1, ni)), taken(np.broadcast_to(x[:1], x.shape), 1, index.transpose(2, 1, 0))
    )
    every_other = norch.gather(nx[:, ::2, ::2], 2, norch.tensor(index[:6, :4, :5] % 5, device=cuda))
    np.testing.assert_array_equal(host(every_other), taken(x[:, ::2, ::2], 2, index[:6, :4, :5] % 5))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, norch.bool], ids=str)
def test_scatter(cuda: str, dtype: Any) -> None:
    draw = np.random.default_rng(3)
    out = given(draw.integers(0, 2, (40, 33)), dtype, cuda)
    src = given(draw.integers(0, 100, (20, 33)), dtype, cuda)
    index = np.argsort(draw.random((40, 33)), 0)[:20]  # no place twice
    expected = host(out).copy()
    np.put_along_axis(expected, index, host(src), 0)
    np.testing.assert_array_equal(host(norch.scatter(out, 0, norch.tensor(index, device=cuda), src)), expected)
    rows = norch.tensor([5, -1, 0], device=cuda)
    expected = host(out).copy()
    expected[[5, -1, 0]] = host(src)[:3]
    np.testing.assert_array_equal(host(norch.index_copy(out, 0, rows, src[:3])), expected)
    out[rows] = src[:3]
    np.testing.assert_array_equal(host(out), expected)


def test_scatter_keeps_one_of_equal_indices(cuda: str) -> None:
    src = norch.tensor(np.arange(1000), device=cuda)
    out = host(norch.zeros(4, dtype=norch.int64, device=cuda).scatter(0, src % 3, src))
    assert (out[:3] % 3 == np.arange(3)).all()
    assert out[3] == 0


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
@pytest.mark.parametrize(
    ("shape", "dim", "wanted"),
    [
        ((5,), 0, (3000,)),
        ((700, 3), 0, (2000, 3)),
        ((4, 9), 1, (4, 1)),
        ((3, 50, 4), 1, (3, 120, 2)),
        ((2, 2), 0, (0, 2)),
        ((140, 37), 1, (133, 300)),
    ],
)
def test_scatter_add(cuda: str, dtype: Any, shape: Any, dim: int, wanted: Any) -> None:
    draw = np.random.default_rng(4)
    scale = 1 if dtype in INTEGERS else 0.125
    out = given(draw.integers(0, 20, shape) * scale, dtype, cuda)
    src = given(draw.integers(0, 20, wanted) * scale, dtype, cuda)
    index = draw.integers(-shape[dim], shape[dim], wanted)
    places = norch.tensor(index, device=cuda)
    result = norch.scatter_add(out, dim, places, src)
    expected, size = added(host(out), dim, index, host(src))
    if dtype in INTEGERS:
        np.testing.assert_array_equal(host(result), expected)
    else:
        assert (np.abs(host(result) - expected) <= TOLERANCE[dtype] * size).all()
        assert bits_equal(result, norch.scatter_add(out, dim, places, src))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("rows", "features", "count"), [(3, 8, 5000), (500, 37, 1000), (2000, 256, 64), (65, 384, 3000)]
)
def test_rows_that_are_added(cuda: str, dtype: Any, rows: int, features: int, count: int) -> None:
    draw = np.random.default_rng(5)
    out = given(draw.normal(size=(rows, features)), dtype, cuda)
    src = given(draw.normal(size=(count, features)), dtype, cuda)
    index = draw.integers(-rows, rows, count)
    places = norch.tensor(index, device=cuda)
    result = norch.index_add(out, 0, places, src)
    expected, size = added(host(out), 0, np.repeat(index[:, None], features, 1), host(src))
    assert (np.abs(host(result) - expected) <= TOLERANCE[dtype] * size).all()
    assert bits_equal(result, norch.index_add(out, 0, places, src))


@pytest.mark.parametrize("dtype", [*FLOATS, norch.int64, norch.int32, norch.int16], ids=str)
@pytest.mark.parametrize(("shape", "dim", "wanted"), [((7,), 0, (4000,)), ((5, 6), 0, (9, 4)), ((4, 9), 1, (4, 1))])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_scattered_extremes(
    cuda: str, dtype: Any, shape: Any, dim: int, wanted: Any, include_self: bool, reduce: str
) -> None:
    draw = np.random.default_rng(6)
    out, src = given(draw.normal(size=shape) * 20, dtype, cuda), given(draw.normal(size=wanted) * 20, dtype, cuda)
    if not include_self and dtype in FLOATS:
        src.flatten()[:2] = norch.tensor([float("nan"), -0.0], dtype=dtype)
    index = draw.integers(-shape[dim], shape[dim], wanted)
    result = host(out.scatter_reduce(dim, norch.tensor(index, device=cuda), src, reduce, include_self=include_self))
    expected, seen = host(out).copy(), np.zeros(shape, bool)
    combine = np.maximum if reduce == "amax" else np.minimum
    for at in np.ndindex(*wanted):
        to = (*at[:dim], index[at] % shape[dim], *at[dim + 1 :])
        counts = include_self or seen[to]
        expected[to] = combine(expected[to], host(src)[at]) if counts else host(src)[at]
        seen[to] = True
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", [norch.float64, norch.float32, norch.float16], ids=str)
@pytest.mark.parametrize(
    ("shape", "size", "dim"), [((3, 9001), 7, 1), ((1, 50000), 300, 1), ((70000,), 5, 0), ((2, 4096), 3, 1)]
)
def test_scatter_add_of_few_long_lines(cuda: str, dtype: Any, shape: Any, size: int, dim: int) -> None:
    rng = np.random.default_rng(4)
    index, source = rng.integers(-size, size, shape), rng.normal(size=shape)
    index[..., -9:] = size - 1
    to = (*shape[:dim], size, *shape[dim + 1 :])
    out = rng.normal(size=to)
    on_host = [norch.tensor(v).to(dtype).double().numpy() for v in (out, source)]
    wanted = np.moveaxis(on_host[0].copy(), dim, -1).reshape(-1, size)
    places, given = (np.moveaxis(v, dim, -1).reshape(-1, shape[dim]) for v in (index, on_host[1]))
    for line, at, x in zip(wanted, places, given, strict=True):
        np.add.at(line, at, x)
    wanted = np.moveaxis(wanted.reshape(*to[:dim], *to[dim + 1 :], size), -1, dim)
    a, x, i = norch.tensor(out).to(cuda, dtype), norch.tensor(source).to(cuda, dtype), norch.tensor(index, device=cuda)
    found = norch.scatter_add(a, dim, i, x)
    unit = {norch.float64: 1e-13, norch.float32: 1e-6, norch.float16: 2e-3}[dtype]
    np.testing.assert_allclose(found.cpu().double().numpy(), wanted, rtol=unit, atol=unit)
    assert norch.equal(norch.scatter_add(a, dim, i.flip(dim), x.flip(dim)), found)  # in any order


def test_scatter_add_of_few_long_lines_with_what_is_not_finite(cuda: str) -> None:
    index = (norch.arange(40000, device=cuda) % 4).reshape(1, -1)
    source = norch.ones(1, 40000, device=cuda)
    source[0, 0], source[0, 30001] = norch.inf, norch.nan
    source[0, 20002], source[0, 39998] = norch.inf, -norch.inf
    found = norch.zeros(1, 4, device=cuda).scatter_add(1, index, source).cpu().tolist()[0]
    assert found[0] == norch.inf
    assert found[1] != found[1]
    assert found[2] != found[2]
    assert found[3] == 10000
    index[0, 17] = 4
    with pytest.raises(IndexError, match="index 4"):
        norch.zeros(1, 4, device=cuda).scatter_add(1, index, source).cpu()


@pytest.mark.parametrize("dtype", FLOATS)
def test_few_elements_are_sorted_into_a_wide_output(cuda: str, dtype: Any) -> None:
    shape, count = (3000, 8000), 40
    rng = np.random.default_rng(11)
    index, source = rng.integers(-30, 30, (3000, count)), rng.standard_normal((3000, count))
    expected = np.zeros((3000, 60))
    np.add.at(expected, (np.arange(3000)[:, None], (index + 30) % 60), source)
    places, src = norch.tensor(index, device=cuda), given(source, dtype, cuda)
    for zeros in (
        lambda: norch.zeros(shape, dtype=dtype, device=cuda),
        lambda: norch.zeros(shape[::-1], dtype=dtype, device=cuda).T,
    ):
        out = zeros()
        norch.cuda.reset_peak_memory_stats()
        before = norch.cuda.max_memory_allocated()
        out.scatter_add_(1, places, src)
        assert norch.cuda.max_memory_allocated() - before < 100 * src.numel()
        found = np.concatenate([host(out[:, -30:]), host(out[:, :30])], 1)
        np.testing.assert_allclose(found, expected, rtol=TOLERANCE[dtype], atol=8 * TOLERANCE[dtype])
        assert out.count_nonzero().item() == np.count_nonzero(found)
        assert norch.equal(out, zeros().scatter_add_(1, places, src))
    with pytest.raises(IndexError, match=r"index 80\d\d .* size 8000"):
        norch.zeros(shape, dtype=dtype, device=cuda).scatter_add(1, places + 7980, src).cpu()


def test_scatter_add_of_bools_and_into_strided_memory(cuda: str) -> None:
    index = norch.tensor([0, 2, 2], device=cuda)
    x = norch.tensor([False, True, False], device=cuda)
    assert norch.zeros(4, dtype=norch.bool, device=cuda).scatter_add(0, index, x).tolist() == [
        False,
        False,
        True,
        False,
    ]
    wide = norch.zeros(4, 6, device=cuda)
    wide.T[1:3].scatter_add_(1, norch.tensor([[0, 0, 3], [1, 2, 2]], device=cuda), norch.ones(2, 3, device=cuda))
    expected = np.zeros((4, 6))
    expected[0, 1], expected[3, 1], expected[1, 2], expected[2, 2] = 2, 1, 1, 2
    np.testing.assert_array_equal(host(wide), expected)


@pytest.mark.parametrize("dtype", [norch.float64, norch.float32], ids=str)
def test_sums_of_numbers_of_all_sizes(cuda: str, dtype: Any) -> None:
    index = norch.tensor([0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 6], device=cuda)
    inf, nan = float("inf"), float("nan")
    values = [1e30, 1.0, -1e30, 1e-30, 2e-30, inf, 1.0, inf, -inf, nan, 1.0, -inf, 1e38 * 3, 1e38]
    src = norch.tensor(values, dtype=dtype, device=cuda)
    out = host(norch.zeros(8, dtype=dtype, device=cuda).scatter_add(0, index, src))
    assert out[0] in (0.0, 1.0)
    np.testing.assert_allclose(out[1], 3e-30, rtol=1e-6)
    assert out[2] == inf
    assert np.isnan(out[3])
    assert np.isnan(out[4])
    assert out[5] == -inf
    assert out[7] == 0
    assert out[6] == inf if dtype is norch.float32 else out[6] == 4e38
    lines = norch.scatter_add(
        norch.zeros(140, 8, dtype=dtype, device=cuda),
        1,
        index.repeat(10).expand(140, 140),
        norch.cat((src, norch.zeros(126, dtype=dtype, device=cuda))).expand(140, 140),
    )
    np.testing.assert_array_equal(host(lines), np.broadcast_to(out, (140, 8)))
    tiny = norch.full((5,), 5e-324 if dtype is norch.float64 else 1e-45, dtype=dtype, device=cuda)
    total = host(
        norch.zeros(1, dtype=dtype, device=cuda).scatter_add(0, norch.zeros(5, dtype=norch.int64, device=cuda), tiny)
    )
    assert total[0] == 5 * host(tiny)[0]


@pytest.mark.parametrize("kind", [*INTEGERS], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_embedding_and_its_gradient(cuda: str, dtype: Any, kind: Any) -> None:
    draw = np.random.default_rng(6)
    index = draw.integers(0, 65, (9, 50))
    weight = given(draw.normal(size=(65, 24)), dtype, cuda).requires_grad_()
    places = given(index, kind, cuda)
    out = norch.embedding(places, weight)
    np.testing.assert_array_equal(host(out), host(weight)[index])
    np.testing.assert_array_equal(host(norch.embedding(places.T, weight)), host(weight)[index.T])
    factor = given(draw.normal(size=(9, 50, 24)), dtype, cuda)
    out.backward(factor)
    expected, size = added(np.zeros((65, 24)), 0, np.repeat(index.reshape(-1, 1), 24, 1), host(factor).reshape(-1, 24))
    assert (np.abs(host(weight.grad) - expected) <= TOLERANCE[dtype] * size).all()


@pytest.mark.parametrize(
    ("rows", "features", "count"),
    [(65, 384, 16384), (1024, 384, 1024), (5, 3, 10000), (50257, 64, 512), (300, 1000, 7), (10, 4, 0), (1, 1, 4097)],
)
def test_gradient_of_large_tables(cuda: str, rows: int, features: int, count: int) -> None:
    draw = np.random.default_rng(7)
    index, factor = draw.integers(0, rows, count), draw.normal(size=(count, features)).astype(np.float32)
    places, given_factor = norch.tensor(index, device=cuda), norch.tensor(factor, device=cuda)
    grads = []
    for padding in (None, None, 3 % rows):
        weight = norch.zeros(rows, features, device=cuda).requires_grad_()
        norch.embedding(places, weight, padding).backward(given_factor)
        grads.append(weight.grad)
    assert bits_equal(grads[0], grads[1])
    expected, size = added(np.zeros((rows, features)), 0, np.repeat(index[:, None], features, 1), factor)
    assert (np.abs(host(grads[0]) - expected) <= 1e-5 * size).all()
    expected[3 % rows] = 0
    assert (np.abs(host(grads[2]) - expected) <= 1e-5 * size).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("count", "rows", "features"), [(8192, 1000, 64), (20000, 7, 129), (8300, 1, 512), (10001, 50, 1030)]
)
def test_gradient_of_rows_with_many_indices(cuda: str, count: int, rows: int, features: int, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    for index in (
        rng.integers(0, max(1, rows // 100), count),
        rng.integers(0, rows, count),
        np.full(count, rows - 1),
        np.where(np.arange(count) % 3, rng.integers(0, rows, count), rows // 2),
    ):
        grad = given(rng.standard_normal((count, features)), dtype, cuda)
        for padding in (None, int(index[0])):
            table = given(np.zeros((rows, features)), dtype, cuda).requires_grad_()
            norch.embedding(norch.tensor(index, device=cuda), table, padding).backward(grad)
            wanted, size = (np.zeros((rows, features)) for _ in range(2))
            np.add.at(wanted, index, host(grad).astype(np.float64))
            np.add.at(size, index, np.abs(host(grad).astype(np.float64)))
            if padding is not None:
                wanted[padding] = 0
            assert (np.abs(host(table.grad) - wanted) <= TOLERANCE[dtype] * (np.abs(wanted) + 0.01 * size + 1)).all()
            again = given(np.zeros((rows, features)), dtype, cuda).requires_grad_()
            norch.embedding(norch.tensor(index, device=cuda), again, padding).backward(grad)
            assert np.array_equal(host(again.grad), host(table.grad))
        out = given(rng.standard_normal((rows, features)), dtype, cuda)
        places = norch.tensor(index, device=cuda).unsqueeze(1).expand(-1, features)
        wanted, size = added(host(out), 0, np.broadcast_to(index[:, None], (count, features)), host(grad))
        found = host(out.scatter_add(0, places, grad))
        assert (np.abs(found - wanted) <= TOLERANCE[dtype] * (np.abs(wanted) + 0.01 * size + 1)).all()


def test_gradient_of_a_sum_and_of_a_gather(cuda: str) -> None:
    weight = norch.ones(6, 5, device=cuda).requires_grad_()
    (norch.embedding(norch.tensor([1, 1, 4], device=cuda), weight) * 1.0).backward(
        norch.ones(1, 1, device=cuda).expand(3, 5)
    )
    np.testing.assert_array_equal(host(weight.grad), np.array([0, 2, 0, 0, 1, 0])[:, None] * np.ones(5))
    x = norch.ones(4, 3, device=cuda).requires_grad_()
    x.gather(1, norch.tensor([[0], [2], [2], [1]], device=cuda)).backward(norch.ones(4, 1, device=cuda))
    np.testing.assert_array_equal(host(x.grad), np.eye(3)[[0, 2, 2, 1]])


OUT_OF_RANGE = {
    "gather": lambda x, at: norch.gather(x, 0, at),
    "scatter": lambda x, at: norch.scatter(x, 0, at, x[: at.numel()]),
    "scatter_add": lambda x, at: norch.scatter_add(x, 0, at, x[: at.numel()]),
    "embedding": lambda x, at: norch.embedding(at, x.reshape(-1, 1)),
}


@pytest.mark.parametrize("op", OUT_OF_RANGE)
@pytest.mark.parametrize("index", [7, -8])
def test_index_out_of_range(cuda: str, op: str, index: int) -> None:
    x = norch.tensor(np.arange(7.0), device=cuda)
    out = OUT_OF_RANGE[op](x, norch.tensor([1, index, 2], device=cuda))
    with pytest.raises(IndexError, match=rf"{op}\(\): index {index} is out of bounds for a dim of size 7"):
        norch.cuda.synchronize()
    norch.cuda.synchronize()
    assert x.tolist() == list(range(7))
    assert out.shape[0] in (3, 7)
    assert norch.gather(x, 0, norch.tensor([-1], device=cuda)).tolist() == [6]


def test_index_out_of_range_is_raised_where_the_result_is_read(cuda: str) -> None:
    rows = norch.zeros(5, 16, device=cuda)
    with pytest.raises(IndexError, match=r"scatter_add\(\): index 5 .* size 5"):
        norch.index_add(rows, 0, norch.tensor([0, 5], device=cuda), norch.ones(2, 16, device=cuda)).tolist()
    assert rows.tolist() == [[0.0] * 16] * 5


@pytest.mark.parametrize("shape", [(0,), (1,), (1000,), (37, 65)])
def test_two_indices_as_one(cuda, shape):
    v = np.random.default_rng(1).standard_normal((50, 70))
    i, j = (np.random.default_rng(k).integers(-n, n, shape) for k, n in ((2, 50), (3, 70)))
    x, first, second = (norch.tensor(a, device=cuda) for a in (v, i, j))
    np.testing.assert_array_equal(x[first, second].to("cpu").numpy(), v[i, j])
    np.testing.assert_array_equal(x[first[..., :1], second].to("cpu").numpy(), v[i[..., :1], j])
    x.requires_grad = True
    x[first, second].sum().backward()
    wanted = np.zeros_like(v)
    np.add.at(wanted, (np.where(i < 0, i + 50, i), np.where(j < 0, j + 70, j)), 1)
    np.testing.assert_array_equal(x.grad.to("cpu").numpy(), wanted)


def test_two_indices_of_which_one_is_out_of_range(cuda):
    x = norch.zeros(5, 7, device=cuda)
    for i, j in (([0, 5], [0, 0]), ([0, -6], [0, 0]), ([0, 0], [0, 7])):
        with pytest.raises(IndexError):
            x[norch.tensor(i, device=cuda), norch.tensor(j, device=cuda)].sum().item()
            norch.cuda.synchronize()
