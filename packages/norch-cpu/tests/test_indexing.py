"""gather, scatter, scatter_add and what is made of them, against NumPy and loops."""

import numpy as np
import pytest
from indexing_harness import DTYPES, as_float, layouts, numpy_dtype, tensor, values

import norch
from norch.backend import Operand
from norch_cpu.native import native


def key(index, dim):
    """What NumPy indexes with to mean the same as gather's index."""
    grid = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    grid[dim] = index
    return tuple(grid)


def added(out, index, dim, src):
    """In loops, in row-major order."""
    out = out.astype(float)
    for place in np.ndindex(index.shape):
        at = (*place[:dim], int(index[place]), *place[dim + 1 :])
        out[at] += float(src[place])
    return out


@pytest.fixture
def threads():
    before = norch.get_num_threads()
    yield norch.set_num_threads
    norch.set_num_threads(before)


def test_the_kernels_are_native():
    assert {"gather", "scatter", "scatter_add", "embedding", "embedding_grad"} <= set(native.ops())


CASES = [((7,), (5,)), ((1,), (1,)), ((5, 6), (3, 6)), ((4, 6), (4, 9)), ((3, 4, 5), (2, 4, 3)), ((6, 5), (0, 5))]


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shapes", CASES, ids=str)
def test_gather_and_scatter_in_every_layout(name, shapes):
    shape, index_shape = shapes
    x = values(name, *shape)
    for dim in range(len(shape)):
        if any(m > n for d, (n, m) in enumerate(zip(shape, index_shape, strict=True)) if d != dim):
            continue
        rng = np.random.default_rng(dim)
        index = rng.integers(-shape[dim], shape[dim], index_shape)
        src = values(name, *index_shape, seed=2)
        distinct = np.argsort(rng.random(index_shape), dim)
        distinct = distinct if index_shape[dim] <= shape[dim] else None
        want_sum = added(x, index, dim, src)
        want_sum = want_sum != 0 if name == "bool" else want_sum
        for xt, it, st in zip(layouts(x), layouts(index), list(layouts(src))[::-1], strict=True):
            np.testing.assert_array_equal(as_float(xt.gather(dim, it)), x[key(index, dim)].astype(float))
            np.testing.assert_array_equal(as_float(xt.scatter_add(dim, it, st)), want_sum)
            if distinct is not None:
                want = x.copy()
                want[key(distinct, dim)] = src
                got = xt.scatter(dim, tensor(distinct), st)
                np.testing.assert_array_equal(as_float(got), want.astype(float))


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64", "uint8"])
def test_scatter_into_views(name):
    out, index = values(name, 6, 40, 3), np.random.default_rng(1).integers(-40, 40, (5, 30, 3))
    src = values(name, 6, 30, 3, seed=3)
    want = added(out, index, 1, src)
    for view in list(layouts(out)):
        view.scatter_add_(1, tensor(index), tensor(src))
        np.testing.assert_array_equal(as_float(view), want)
    wide = norch.zeros(6, 40, 9, dtype=getattr(norch, name))
    wide[:, :, 3:6].copy_(tensor(out))
    wide[:, :, 3:6].scatter_add_(1, tensor(index), tensor(src))
    np.testing.assert_array_equal(as_float(wide[:, :, 3:6]), want)
    assert (wide[:, :, :3] == 0).all().item()
    assert (wide[:, :, 6:] == 0).all().item()


@pytest.mark.parametrize("name", ["float32", "float16", "int8"])
@pytest.mark.parametrize("shape", [(500, 300), (3, 70_001), (40, 30, 50), (150_001,)], ids=str)
def test_enough_for_several_threads(name, shape, threads):
    x = values(name, *shape)
    for dim in range(len(shape)):
        index = np.random.default_rng(dim).integers(0, shape[dim], shape)
        src = values(name, *shape, seed=1)
        with np.errstate(all="ignore"):
            want = x.astype(np.float64 if name != "int8" else np.int64)
            np.add.at(want, key(index, dim), src.astype(want.dtype))
            want = want.astype(numpy_dtype(name))
        for count in (1, 3):
            threads(count)
            xt, it = norch.from_numpy(x), norch.from_numpy(index)
            assert (xt.gather(dim, it).numpy() == x[key(index, dim)]).all()
            assert (xt.scatter_add(dim, it, norch.from_numpy(src)).numpy() == want).all()


def test_sums_do_not_depend_on_threads(threads):
    rng = np.random.default_rng(0)
    src, index = rng.standard_normal((4000, 300)).astype(np.float32), rng.integers(0, 20, 4000)
    want = np.zeros((20, 300), np.float32)
    np.add.at(want, index, src)  # one after the other, as the kernel
    for count in (1, 2, 5):
        threads(count)
        got = norch.zeros(20, 300).index_add(0, norch.from_numpy(index), norch.from_numpy(src))
        assert (got.numpy() == want).all()


@pytest.mark.parametrize("longest", [1, 2, 9, 5000])
def test_sums_over_an_index_with_runs(longest):
    rng = np.random.default_rng(longest)
    runs = rng.integers(-7, 7, 2000)
    index = np.repeat(runs, rng.integers(1, longest + 1, 2000))[:3001]
    src = rng.standard_normal((2, index.size)).astype(np.float32)
    start = rng.standard_normal((2, 7)).astype(np.float32)
    want = start.copy()
    np.add.at(want, (slice(None), index), src)
    spread = norch.from_numpy(index).expand(2, -1)
    got = norch.from_numpy(start).scatter_add(1, spread, norch.from_numpy(src))
    assert (got.numpy() == want).all()


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("dim", [0, 1])
def test_one_index_for_all_rows(name, dim, threads):
    """Which is expanded: along the rows, or across them."""
    shape, count = [3, 3], 40
    shape[1 - dim] = 500
    index = np.random.default_rng(dim).integers(-3, 3, count)
    src = values(name, *[count if d == dim else n for d, n in enumerate(shape)])
    want, last = np.zeros(shape), np.zeros(shape)
    np.add.at(want, (slice(None),) * dim + (index,), src.astype(float))
    last[(slice(None),) * dim + (index,)] = src.astype(float)
    spread = norch.from_numpy(index).reshape(*[-1 if d == dim else 1 for d in range(2)]).expand(src.shape)
    for several in (1, 4):
        threads(several)
        for given in layouts(src):
            out = norch.zeros(shape, dtype=getattr(norch, name))
            np.testing.assert_array_equal(as_float(out.scatter_add(dim, spread, given)), want)
            np.testing.assert_array_equal(as_float(out.scatter(dim, spread, given)), last)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_16_bit_sums_are_rounded_once(name):
    dtype = getattr(norch, name)
    tenth = norch.full((1000, 3), 0.1, dtype=dtype)
    out = norch.ones(2, 3, dtype=dtype)
    index = norch.zeros(1000, dtype=norch.int64)
    total = 1 + 1000 * tenth[0, 0].item()
    want = norch.tensor(total, dtype=dtype).item()
    assert out.index_add(0, index, tenth).tolist() == [[want] * 3, [1.0] * 3]
    assert out.t().contiguous().index_add(1, index, tenth.t()).tolist() == [[want, 1.0]] * 3
    weight = norch.ones(2, 3, dtype=dtype, requires_grad=True)
    norch.embedding(index, weight).backward(tenth)
    assert weight.grad.tolist() == [[norch.tensor(total - 1, dtype=dtype).item()] * 3, [0.0] * 3]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize(("size", "count", "columns"), [(3000, 40, 70), (70, 90, 1100), (9, 33, 16), (5000, 5000, 24)])
def test_rows_of_16_bit_floats_are_added_up_in_float32(name, size, count, columns, threads):
    rng = np.random.default_rng(0)
    index = rng.integers(-size, size, count)
    index[::3] = index[0]
    out, src = values(name, 2, size, columns), values(name, 2, count, columns, seed=1)
    want = out.astype(np.float32)
    np.add.at(want, (slice(None), index), src.astype(np.float32))
    for view in list(layouts(out)):
        view.scatter_add_(1, tensor(index)[:, None].expand(2, -1, columns), tensor(src))
        np.testing.assert_array_equal(as_float(view), want.astype(out.dtype).astype(float))


def test_the_last_of_equal_indices_is_kept():
    index = np.random.default_rng(0).integers(0, 7, (3, 5000))
    src = np.arange(15000.0).reshape(3, 5000)
    want = np.zeros((3, 7))
    for i, j in np.ndindex(3, 5000):
        want[i, index[i, j]] = src[i, j]
    zeros, it, st = norch.zeros(3, 7, dtype=norch.float64), norch.from_numpy(index), norch.from_numpy(src)
    assert (zeros.scatter(1, it, st).numpy() == want).all()
    assert (zeros.t().scatter(0, it.t(), st.t()).numpy() == want.T).all()


def test_nan_and_infinities_pass():
    x = norch.tensor([np.nan, np.inf, -np.inf, -0.0])
    index = norch.tensor([3, 2, 1, 0])
    assert str(x.gather(0, index).tolist()) == "[-0.0, -inf, inf, nan]"
    assert str(norch.zeros(4).scatter_add(0, index, x).tolist()) == "[0.0, -inf, inf, nan]"


@pytest.mark.parametrize("wrong", [3, -4, 2**40, -(2**63)])
@pytest.mark.parametrize("name", ["float32", "bfloat16", "bool"])
def test_nothing_is_written_before_an_error(wrong, name):
    out = norch.zeros(3, 4, dtype=getattr(norch, name))
    index = norch.zeros(2000, 4, dtype=norch.int64)
    index[1500, 2] = wrong
    index[1600, 0] = -77
    src = norch.ones(2000, 4, dtype=out.dtype)
    for op in (out.scatter_, out.scatter_add_):
        with pytest.raises(norch.IndexError, match=rf"index {wrong} is out of bounds for a dim of size 3"):
            op(0, index, src)
    with pytest.raises(norch.IndexError, match=rf"index {wrong} "):
        out.gather(0, index)
    with pytest.raises(norch.IndexError, match="index -77 "):  # the first in row-major order
        out.t().gather(1, index.t())
    assert not out.any().item()


def test_empty_and_0d():
    none = norch.zeros(0, 3, dtype=norch.int64)
    assert norch.ones(4, 3).gather(0, none).shape == (0, 3)
    assert norch.ones(4, 3).scatter_add(0, none, norch.ones(0, 3)).tolist() == [[1.0] * 3] * 4
    assert norch.tensor(2.5).gather(0, norch.tensor(0)).item() == 2.5
    assert norch.tensor(2.5).gather(0, norch.tensor(-1)).item() == 2.5
    one, zero = Operand(norch.float32, (), ()), Operand(norch.int64, (), ())
    kernel = native.compile("scatter_add", (one, zero, one), {"dim": 0})
    out, at, src = np.array(2.5, np.float32), np.array(-1), np.array(1.0, np.float32)
    buffers = [native.from_host(memoryview(a.reshape(1).view(np.uint8))) for a in (out, at, src)]
    kernel(buffers[0], 0, buffers[1], 0, buffers[2], 0)
    assert out == 3.5


# --- Through the public functions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DTYPES)
def test_indexing(name):
    x = values(name, 30, 20, 6)
    rows, mask = np.random.default_rng(0).integers(-30, 30, 50), np.random.default_rng(1).random((30, 20)) < 0.4
    for t in layouts(x):
        np.testing.assert_array_equal(as_float(t[tensor(rows)]), x[rows].astype(float))
        np.testing.assert_array_equal(as_float(t[:, tensor(rows % 20)]), x[:, rows % 20].astype(float))
        np.testing.assert_array_equal(as_float(t[tensor(mask)]), x[mask].astype(float))
        np.testing.assert_array_equal(as_float(t[tensor(rows), 3]), x[rows, 3].astype(float))
        for dim in range(3):
            at = rows % x.shape[dim]
            np.testing.assert_array_equal(as_float(t.index_select(dim, tensor(at))), x.take(at, dim).astype(float))
        np.testing.assert_array_equal(as_float(norch.take(t, tensor(rows))), x.reshape(-1)[rows].astype(float))


def test_one_hot_and_cross_entropy():
    target = np.random.default_rng(0).integers(0, 9, 40)
    assert (norch.one_hot(tensor(target), 9).numpy() == np.eye(9)[target]).all()
    logits = np.random.default_rng(1).standard_normal((40, 9))
    x = norch.from_numpy(logits).requires_grad_()
    loss = norch.cross_entropy(x, tensor(target))
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(loss.item(), -np.log(p[np.arange(40), target]).mean())
    loss.backward()
    np.testing.assert_allclose(x.grad.numpy(), (p - np.eye(9)[target]) / 40, atol=1e-12)


# --- embedding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("layout", ["vectors", "strided", "outer", "transposed"])
def test_several_index_tensors_name_one_element_each(dims, layout):
    array = np.arange(2 * 700 * 9 * 5, dtype=np.float32).reshape(700, 9, 10)
    rng = np.random.default_rng(0)
    index = [rng.integers(-n, n, (40, 60)) for n in array.shape[:dims]]
    if layout == "vectors":
        index = [i.reshape(-1) for i in index]
    elif layout == "strided":
        index = [i[::2, 1::3] for i in index]
    elif layout == "outer":
        index = [i[:, :1] if d % 2 else i[:1] for d, i in enumerate(index)]
    else:
        index = [i.T if d % 2 else i.reshape(60, 40) for d, i in enumerate(index)]
    given = tuple(norch.tensor(i) for i in index)
    x = norch.tensor(array)
    np.testing.assert_array_equal(x[given].numpy(), array[tuple(index)])
    np.testing.assert_array_equal(
        x.swapaxes(0, 1)[given[::-1]].numpy() if dims == 2 else x[given].numpy(), array[tuple(index)]
    )
    written, expected = x.clone(), array.copy()
    written[given] = -1.0
    expected[tuple(index)] = -1
    np.testing.assert_array_equal(written.numpy(), expected)


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("wrong", [-5, 4])
def test_several_index_tensors_are_checked_before_anything_is_read(at, wrong):
    index = [norch.zeros(5000, dtype=norch.int64) for _ in range(2)]
    index[at][4321] = wrong
    with pytest.raises(norch.IndexError, match=f"index {wrong} is out of bounds for a dim of size 4"):
        norch.ones(4, 4)[tuple(index)]
    with pytest.raises(norch.IndexError, match="do not broadcast"):
        norch.ones(4, 4)[norch.zeros(2, dtype=norch.int64), norch.zeros(3, dtype=norch.int64)]


@pytest.mark.parametrize("name", ["float64", "float32", "int64", "float16", "uint8"])
@pytest.mark.parametrize("reduce", ["amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("is_expanded", [False, True])
def test_extremes_are_those_of_all_that_is_scattered_to_a_place(name, reduce, include_self, dim, is_expanded):
    rng = np.random.default_rng(0)
    x, src = (rng.integers(0, 50, (30, 40)).astype(numpy_dtype(name)) for _ in range(2))
    if is_expanded:
        index = np.broadcast_to(rng.integers(-8, 8, (30, 1) if dim == 0 else (1, 40)), (30, 40))
    else:
        index = rng.integers(-8, 8, (30, 40))
    if name.startswith("float"):
        src[3, 4] = np.nan
    best, expected, touched = np.maximum if reduce == "amax" else np.minimum, x.copy(), np.zeros(x.shape, bool)
    for i, j in np.ndindex(src.shape):
        at = (index[i, j], j) if dim == 0 else (i, index[i, j])
        expected[at] = best(expected[at], src[i, j]) if include_self or touched[at] else src[i, j]
        touched[at] = True
    found = norch.tensor(x).scatter_reduce(
        dim, norch.tensor(index), norch.tensor(src), reduce, include_self=include_self
    )
    np.testing.assert_array_equal(found.numpy(), expected)


def test_a_mean_over_an_expanded_index_counts_each_row_once():
    rng = np.random.default_rng(0)
    x, src, rows = rng.standard_normal((9, 5)), rng.standard_normal((40, 5)), rng.integers(0, 7, 40)
    index = norch.tensor(rows)[:, None].expand(40, 5)
    for include_self in (True, False):
        found = norch.tensor(x).scatter_reduce(0, index, norch.tensor(src), "mean", include_self=include_self)
        for row in range(9):
            given = src[rows == row]
            kept = np.concatenate([x[row : row + 1], given]) if include_self or not len(given) else given
            np.testing.assert_allclose(found[row].numpy(), kept.mean(0), atol=1e-12)
