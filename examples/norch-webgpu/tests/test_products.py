"""Products in tiles, convolution, pooling and attention against NumPy in float64, for sizes that the kit has not."""

import numpy as np
import pytest

import norch
from norch_webgpu import attention, products

WEBGPU = "webgpu"
DTYPES = [norch.float32, norch.bfloat16, norch.int32]


def whole_numbers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float64)


def there(values, dtype=norch.float32):
    return norch.tensor(values, dtype=dtype).to(WEBGPU)


def back(x):
    return x.detach().cpu().double().numpy()


def laid_out(values, dtype, how):
    """The values there: transposed, not transposed, or amid others so that nothing is aligned."""
    if how == "transposed":
        return there(np.ascontiguousarray(values.swapaxes(-1, -2)), dtype).mT
    if how == "plain":
        return there(values, dtype)
    wide = np.zeros((*values.shape[:-1], values.shape[-1] + 3))
    wide[..., 1:-2] = values
    return there(wide, dtype)[..., 1:-2]


@pytest.fixture
def in_tiles(monkeypatch):
    """Makes every product one in tiles."""

    def use(tile, splits=1):
        monkeypatch.setattr(products, "FEW", 0)
        monkeypatch.setattr(products, "choose", lambda *args: (tile, splits))

    return use


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layouts", [("plain", "plain"), ("transposed", "transposed"), ("amid", "amid")], ids=" ".join)
def test_products_of_every_layout(in_tiles, dtype, layouts):
    in_tiles(products.SMALL)
    a, b = whole_numbers(36, 40), whole_numbers(40, 68, seed=1)
    left, right = (laid_out(x, dtype, how) for x, how in zip((a, b), layouts))
    assert (back(left @ right) == a @ b).all()


@pytest.mark.parametrize("tile", [products.SMALL, products.LARGE], ids=["small", "large"])
@pytest.mark.parametrize("right", ["plain", "transposed"])
def test_tiles_of_every_size(in_tiles, tile, right):
    in_tiles(tile)
    a, b = whole_numbers(2, tile.m + 4, 40), whole_numbers(2, 40, tile.n + 12, seed=1)
    assert (back(laid_out(a, norch.float32, "plain") @ laid_out(b, norch.float32, right)) == a @ b).all()


@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16], ids=str)
def test_sums_split_among_workgroups(in_tiles, dtype):
    in_tiles(products.SMALL, 3)
    a, b = whole_numbers(3, 1, 7, 90), whole_numbers(2, 90, 12, seed=1)
    assert (back(there(a, dtype) @ there(b, dtype)) == a @ b).all()


def test_long_dot_products_and_none():
    a, b = whole_numbers(3, 5000), whole_numbers(5000, 2, seed=1)
    assert (back(there(a) @ there(b)) == a @ b).all()
    assert back(there(np.zeros((3, 0))) @ there(np.zeros((0, 4)))).tolist() == np.zeros((3, 4)).tolist()


@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16], ids=str)
def test_linear_and_its_gradients(in_tiles, dtype):
    in_tiles(products.SMALL)
    x, weight, bias, g = (whole_numbers(*s, seed=i) for i, s in enumerate(((2, 20, 12), (36, 12), (36,), (2, 20, 36))))
    leaves = [there(v, dtype).requires_grad_() for v in (x, weight, bias)]
    y = norch.nn.functional.linear(*leaves)
    y.backward(there(g, dtype))
    assert (back(y) == x @ weight.T + bias).all()
    assert (back(leaves[0].grad) == g @ weight).all()
    assert (back(leaves[1].grad) == g.reshape(-1, 36).T @ x.reshape(-1, 12)).all()


def windows(x, kernel, stride, padding, dilation, value=0.0):
    """(n, c, y, x, i, j) of (n, c, h, w)."""
    x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)), constant_values=value)
    span = [d * (k - 1) + 1 for k, d in zip(kernel, dilation)]
    seen = np.lib.stride_tricks.sliding_window_view(x, span, (2, 3))
    return seen[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


CONVOLUTIONS = [  # input, weight, stride, padding, dilation, groups
    ((2, 8, 12, 12), (16, 8, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((2, 8, 12, 12), (16, 8, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((2, 6, 11, 13), (8, 3, 3, 2), (2, 1), (1, 2), (1, 2), 2),
    ((3, 5, 9, 7), (10, 1, 3, 3), (1, 2), (1, 1), (2, 1), 5),
]


@pytest.mark.parametrize(
    ("case", "dtype", "tiled"),
    [
        *[(case, dtype, False) for case in CONVOLUTIONS[1:] for dtype in (norch.float32, norch.float16)],
        *[(case, norch.float32, True) for case in CONVOLUTIONS[:3]],
    ],
    ids=str,
)
def test_convolution_and_its_gradients(in_tiles, case, dtype, tiled):
    if tiled:
        in_tiles(products.SMALL, 2 if case[-1] == 2 else 1)
    shape, weight_shape, stride, padding, dilation, groups = case
    x, weight, bias = (
        whole_numbers(*shape),
        whole_numbers(*weight_shape, seed=1),
        whole_numbers(weight_shape[0], seed=2),
    )
    seen = windows(x, weight_shape[2:], stride, padding, dilation)
    n, c, rows, columns, kh, kw = seen.shape
    seen = seen.reshape(n, groups, c // groups, rows, columns, kh, kw)
    split = weight.reshape(groups, -1, *weight_shape[1:])
    y = np.einsum("ngcyxij,gocij->ngoyx", seen, split).reshape(n, -1, rows, columns)
    g = np.sign(whole_numbers(*y.shape, seed=3))
    parts = g.reshape(n, groups, -1, rows, columns)
    to_weight = np.einsum("ngcyxij,ngoyx->gocij", seen, parts).reshape(weight_shape)
    to_windows = np.einsum("gocij,ngoyx->ngcyxij", split, parts).reshape(n, c, rows, columns, kh, kw)
    to_input = np.zeros((n, c, shape[2] + 2 * padding[0], shape[3] + 2 * padding[1]))
    for i in range(kh):
        for j in range(kw):
            at = tuple(slice(d * k, d * k + s * m, s) for k, m, s, d in zip((i, j), (rows, columns), stride, dilation))
            to_input[:, :, at[0], at[1]] += to_windows[..., i, j]
    to_input = to_input[:, :, padding[0] : padding[0] + shape[2], padding[1] : padding[1] + shape[3]]

    leaves = [there(v, dtype).requires_grad_() for v in (x, weight, bias)]
    found = norch.conv2d(*leaves, stride=stride, padding=padding, dilation=dilation, groups=groups)
    found.backward(there(g, dtype))

    def rounded(values):
        return norch.tensor(values, dtype=dtype).double().numpy()

    assert (back(found) == rounded(y + bias.reshape(-1, 1, 1))).all()
    assert (back(leaves[0].grad) == rounded(to_input)).all()
    assert (back(leaves[1].grad) == rounded(to_weight)).all()


@pytest.mark.parametrize("dtype", [norch.float32, norch.float16, norch.int32], ids=str)
def test_pooling(dtype):
    x = whole_numbers(2, 3, 9, 8)
    seen = windows(x, (3, 2), (2, 1), (1, 1), (1, 2), -np.inf)
    found, places = norch.max_pool2d(there(x, dtype), (3, 2), (2, 1), 1, (1, 2), return_indices=True)
    assert (back(found) == seen.max((4, 5))).all()
    assert (
        np.take_along_axis(x.reshape(2, 3, -1), places.cpu().numpy().reshape(2, 3, -1), 2).reshape(found.shape)
        == back(found)
    ).all()
    if dtype.is_floating_point:
        sums = windows(x, (4, 2), (2, 1), (2, 1), (1, 1)).sum((4, 5))
        assert (back(norch.avg_pool2d(there(x, dtype), (4, 2), (2, 1), (2, 1))) == sums / 8).all()


def test_a_nan_is_the_largest_and_gets_the_gradient():
    x = norch.tensor([[[[1.0, float("nan")], [5.0, float("nan")]]]]).to(WEBGPU).requires_grad_()
    y = norch.max_pool2d(x, 2)
    y.backward(norch.ones(1, 1, 1, 1).to(WEBGPU))
    assert np.isnan(y.item())
    assert x.grad.tolist() == [[[[0, 1], [0, 0]]]]


@pytest.mark.parametrize("most", [None, 3 * 6 * 9, 9])
@pytest.mark.parametrize("kind", ["plain", "causal", "mask", "added", "keys", "queries"])
@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16], ids=str)
def test_attention_and_its_gradient(monkeypatch, most, kind, dtype):
    if most:  # in parts of three queries, and of one
        monkeypatch.setattr(attention, "SCORES", most)
    draw = np.random.default_rng(0)
    rounded = [
        norch.tensor(draw.standard_normal(s), dtype=dtype) for s in ((2, 3, 8, 6), (3, 9, 6), (3, 9, 5), (2, 3, 8, 5))
    ]
    q, k, v, g = (x.double().numpy() for x in rounded)
    scores, options = q @ k.swapaxes(-1, -2) / np.sqrt(6), {}
    if kind == "causal":
        scores, options = np.where(np.tri(8, 9, dtype=bool), scores, -np.inf), {"is_causal": True}
    elif kind == "mask":
        mask = draw.random((8, 9)) < 0.5
        mask[2] = False
        scores, options = np.where(mask, scores, -np.inf), {"attn_mask": norch.tensor(mask).to(WEBGPU)}
    elif kind != "plain":
        shape = {"added": (2, 1, 8, 9), "keys": (2, 1, 1, 9), "queries": (8, 1)}[kind]
        mask = norch.tensor(draw.standard_normal(shape), dtype=dtype)
        scores, options = scores + mask.double().numpy(), {"attn_mask": mask.to(WEBGPU)}
    most = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(most), 0, most))
    weights /= np.maximum(weights.sum(-1, keepdims=True), 1e-300)
    to_scores = weights * (g @ v.swapaxes(-1, -2) - (g * (weights @ v)).sum(-1, keepdims=True)) / np.sqrt(6)
    wanted = weights @ v, to_scores @ k, (to_scores.swapaxes(-1, -2) @ q).sum(0), (weights.swapaxes(-1, -2) @ g).sum(0)

    leaves = [x.to(WEBGPU).requires_grad_() for x in rounded[:3]]
    found = norch.scaled_dot_product_attention(*leaves, **options)
    found.backward(rounded[3].to(WEBGPU))
    bound = 2e-6 if dtype is norch.float32 else 2e-2
    for x, y in zip((found, *(leaf.grad for leaf in leaves)), wanted):
        assert np.abs(back(x) - y).max() <= bound * np.abs(y).max()


@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16], ids=str)
def test_attention_and_its_gradient_never_hold_all_scores(monkeypatch, dtype):
    monkeypatch.setattr(attention, "SCORES", 1 << 16)
    q = norch.zeros(2, 1000, 4, dtype=dtype).to(WEBGPU).requires_grad_()
    pool = q.device.backend.run.devices[0].pool
    pool.collect()
    pool.peak = before = pool.used
    norch.scaled_dot_product_attention(q, q, q).sum().backward()
    assert pool.peak - before < 1000 * 1000


@pytest.mark.slow
def test_more_products_than_workgroups_of_a_dim(in_tiles):
    in_tiles(products.SMALL)
    a, b = whole_numbers(66_000, 3, 1), whole_numbers(66_000, 1, 2, seed=1)
    assert (back(there(a) @ there(b)) == a @ b).all()


@pytest.mark.slow
def test_more_groups_of_a_convolution_than_workgroups_of_a_dim(in_tiles):
    in_tiles(products.SMALL)
    x, weight = whole_numbers(1, 66_000, 2, 1), whole_numbers(66_000, 3, 1, 2, 1, seed=1)
    found = norch.conv2d(there(x), there(weight.reshape(-1, 1, 2, 1)), groups=66_000)
    assert (back(found).reshape(66_000, 3) == (x[0, :, None] * weight[:, :, 0]).sum((2, 3))).all()


def test_attention_with_more_heads_than_workgroups_of_a_dim():
    q, k, v = (whole_numbers(66_000, rows, 1, seed=rows) for rows in (1, 2, 3))
    v = v[:, :2]
    weights = np.exp(q @ k.swapaxes(1, 2))
    wanted = weights / weights.sum(-1, keepdims=True) @ v
    assert np.abs(back(norch.scaled_dot_product_attention(there(q), there(k), there(v))) - wanted).max() < 1e-5
