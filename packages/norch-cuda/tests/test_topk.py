"""topk on the GPU: the start of a stable sort."""

from __future__ import annotations

import numpy as np
import pytest

import norch

RNG = np.random.default_rng(5)


def host(t):
    t = t.detach().to("cpu")
    return (t.float() if t.dtype == norch.bfloat16 else t).numpy()


@pytest.mark.parametrize("dtype", "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split())
@pytest.mark.parametrize(
    ("shape", "dim"), [((3, 32000), 1), ((2049,), 0), ((5000, 7), 0), ((2, 3, 4099), 2), ((70, 9), 1)]
)
def test_topk(cuda, dtype, shape, dim):
    values = RNG.standard_normal(shape) * 50
    if "float" in dtype:
        values.reshape(-1)[:: max(1, values.size // 40)] = np.nan
        values.reshape(-1)[5:40] = np.tile([np.inf, -np.inf, 0.0, -0.0, 1.0], 7)
    kind = getattr(norch, dtype)
    t = (norch.tensor(values) if "float" in dtype else norch.tensor(np.abs(values).astype(np.int64))).to(kind)
    layouts = [t.to(cuda)]
    if len(shape) == 2:
        layouts.append(t.T.contiguous().to(cuda).T)
    for k in (1, 2, 3, 10, 64, 100, 1000, 2048, 2049):
        if k > shape[dim]:
            continue
        for largest in (True, False):
            order = norch.sort(t, dim, descending=largest)
            wanted = [host(part.narrow(dim, 0, k)) for part in order]
            for x in layouts:
                got = norch.topk(x, k, dim, largest)
                np.testing.assert_array_equal(host(got[1]), wanted[1])
                np.testing.assert_array_equal(host(got[0]), wanted[0])


def test_topk_of_equals_and_its_gradient(cuda):
    x = norch.tensor(np.repeat([[1.0, 2.0]], 4000, 0).reshape(1, -1), device=cuda, requires_grad=True)
    values, indices = norch.topk(x, 1500, 1)
    np.testing.assert_array_equal(host(indices)[0], np.arange(1500) * 2 + 1)
    values.sum().backward()
    grad = np.zeros(8000)
    grad[1:3000:2] = 1
    np.testing.assert_array_equal(host(x.grad)[0], grad)


def test_topk_of_many_rows_and_kthvalue(cuda):
    v = RNG.standard_normal((600, 3000)).astype(np.float32)
    t = norch.tensor(v, device=cuda)
    values, indices = norch.topk(t, 10, 1)
    wanted = np.argsort(-v, 1, kind="stable")[:, :10]
    np.testing.assert_array_equal(host(indices), wanted)
    np.testing.assert_array_equal(host(values), np.take_along_axis(v, wanted, 1))
    np.testing.assert_array_equal(host(norch.kthvalue(t, 5, 1)[0]), np.sort(v, 1)[:, 4])
