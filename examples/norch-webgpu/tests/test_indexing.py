"""gather, scatter, embedding and sort: lines of any length, against NumPy."""

import subprocess
import sys

import numpy as np
import pytest

import norch

LENGTHS = (1, 7, 33, 300, 2000)
DTYPES = (np.float32, np.float16, np.int32, np.int64, np.uint8)


def there(values):
    return norch.tensor(values, device="webgpu")


@pytest.mark.parametrize("n", [1, 5, 255, 256, 257, 1000, 5000])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_is_stable_and_nan_is_largest(n, descending):
    for dtype in DTYPES:
        a = np.random.default_rng(n).integers(0, 50, (3, n)).astype(dtype)
        if np.issubdtype(dtype, np.floating):
            a[0, n // 2], a[1, 0] = np.nan, -np.inf
        key = np.where(np.isnan(a.astype(float)), 1e9, a.astype(float))
        order = np.argsort(-key if descending else key, axis=1, kind="stable")
        values, indices = there(a).sort(dim=1, descending=descending, stable=True)
        assert (indices.cpu().numpy() == order).all()
        np.testing.assert_array_equal(values.cpu().numpy(), np.take_along_axis(a, order, 1))
        assert (there(np.ascontiguousarray(a.T)).argsort(0, descending, stable=True).cpu().numpy() == order.T).all()


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_scattered_to_one_place(n, dim, dtype):
    draw = np.random.default_rng(n)
    src, index, start = draw.integers(0, 4, (n, 4)), draw.integers(-9, 9, (n, 4)), draw.integers(0, 4, (9, 4))
    added, last = start.copy(), start.copy()
    for i, j in np.ndindex(n, 4):
        added[index[i, j], j] += src[i, j]
        last[index[i, j], j] = src[i, j]
    turn = (lambda a: a) if dim == 0 else (lambda a: np.ascontiguousarray(a.T))
    out, p, x = there(turn(start.astype(dtype))), there(turn(index)), there(turn(src.astype(dtype)))
    with np.errstate(over="ignore"):
        assert (out.scatter_add(dim, p, x).cpu().numpy() == turn(added.astype(dtype))).all()
    assert (out.scatter(dim, p, x).cpu().numpy() == turn(last.astype(dtype))).all()
    picked = np.take_along_axis(start, index % 9, 0)
    assert (out.gather(dim, p).cpu().numpy() == turn(picked.astype(dtype))).all()


def test_sums_of_16_bits_are_rounded_once():
    ones = norch.ones(3000, dtype=norch.bfloat16, device="webgpu")  # in bfloat16 256 + 1 is 256
    assert norch.zeros(1, dtype=norch.bfloat16, device="webgpu").index_add(0, there([0] * 3000), ones).item() == 3008


def test_an_embedding_and_its_gradient():
    draw = np.random.default_rng(0)
    table, index, g = draw.standard_normal((50, 6)), draw.integers(0, 50, (4, 500)), draw.standard_normal((4, 500, 6))
    expected = np.zeros((50, 6))
    np.add.at(expected, index, g)
    for dtype in (np.int64, np.int32, np.uint8):
        weight = there(table.astype(np.float32)).requires_grad_()
        out = norch.embedding(there(index.astype(dtype)), weight)
        assert (out.detach().cpu().numpy() == table.astype(np.float32)[index]).all()
        out.backward(there(g.astype(np.float32)))
        np.testing.assert_allclose(weight.grad.cpu().numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("wrong", [-51, 50, 1 << 32, -(1 << 40)])
def test_a_wrong_index_is_reported_late_and_by_its_number(wrong):
    weight = norch.zeros(50, 2, device="webgpu")
    weight.sum().item()
    weight.gather(0, there([[3, 3], [wrong, 3]]))
    with pytest.raises(IndexError, match=rf"gather\(\): index {wrong} .* size 50"):
        norch.webgpu.synchronize()
    assert weight.sum().item() == 0


def test_an_embedding_has_no_negative_index():
    weight = norch.zeros(50, 2, device="webgpu")
    for index in (there([3, -1]), there(-1)):
        norch.embedding(index, weight)
        with pytest.raises(IndexError, match=r"embedding\(\): index -1 .* size 50"):
            norch.webgpu.synchronize()
    assert norch.embedding(there(49), weight + 1).tolist() == [1, 1]


def test_a_wrong_index_leaves_the_output_as_it_was():
    for n in (2, 100):
        out, index = norch.zeros(5, device="webgpu"), [0] * n
        out.scatter_add_(0, there([*index, 5]), norch.ones(n + 1, device="webgpu"))
        with pytest.raises(IndexError, match=r"scatter_add\(\): index 5 .* size 5"):
            norch.webgpu.synchronize()
        assert out.tolist() == [0] * 5


WITHOUT = """
import norch_webgpu.devices
norch_webgpu.devices.USED = ()
import numpy as np, norch
a = np.random.default_rng(0).standard_normal((40, 3000)).astype(np.float32)
x = norch.tensor(a, device="webgpu")
assert np.allclose(x.sum(1).cpu().numpy(), a.astype(float).sum(1), atol=1e-3)
assert (x.argmax(1).cpu().numpy() == a.argmax(1)).all()
assert (x.sort(1)[1].cpu().numpy() == np.argsort(a, 1, kind="stable")).all()
assert np.allclose(x.softmax(1).sum(1).cpu().numpy(), 1)
weight, index = norch.ones(50, 3000, device="webgpu", requires_grad=True), norch.tensor([3] * 40, device="webgpu")
loss = norch.cross_entropy(norch.embedding(index, weight) * x, index)
loss.backward()
assert weight.grad[3].abs().sum().item() > 0 and weight.grad[4].abs().sum().item() == 0
"""


def test_an_adapter_without_subgroups_and_int64():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
