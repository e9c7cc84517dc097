"""Images and sequences at another size: `interpolate`."""

import math
from itertools import product

import numpy as np
import pytest

import norch
import norch.nn.functional as F


def rand(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def array(tensor):
    return tensor.detach().cpu().numpy()


# --- Activations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
@pytest.mark.parametrize(("shape", "size"), [((1, 1, 2, 2), (2, 2)), ((1, 1, 1, 1), (2, 2))])
def test_interpolate_gives_a_copy(mode, shape, size):
    x = norch.zeros(shape)
    out = F.interpolate(x, size, mode=mode)
    out[..., 0, 0] = 1
    assert out.sum() == 1
    assert not x.any()


def test_interpolate_keeps_corners_or_centres():
    x = norch.tensor([[[0.0, 3.0]]])
    assert F.interpolate(x, 4, mode="linear", align_corners=True).tolist() == [[pytest.approx([0, 1, 2, 3])]]
    assert F.interpolate(x, 4, mode="linear").tolist() == [[pytest.approx([0, 0.75, 2.25, 3])]]
    assert F.interpolate(x, scale_factor=2).tolist() == [[[0, 0, 3, 3]]]
    assert F.interpolate(x, scale_factor=2, mode="area").tolist() == [[[0, 0, 3, 3]]]
    assert F.interpolate(norch.tensor([[[math.inf, 1.0, 2.0, 3.0]]]), 2, mode="linear").tolist()[0][0][1] == 2.5


@pytest.mark.parametrize(
    ("mode", "dims", "expected"),
    [
        ("linear", 3, [0, 1, 4, 9]), ("bilinear", 4, [0, 1, 4, 9]), ("nearest", 4, [0, 1, 4, 9]),
        ("nearest", 3, [0, 0, 1, 4]), ("nearest-exact", 4, [0, 1, 4, 4]), ("area", 3, [0, 1, 4, 9]),
    ],
)  # fmt: skip
def test_a_factor_that_keeps_the_size(mode, dims, expected):  # what PyTorch 2.13 gives
    x = norch.tensor([0.0, 1, 4, 9]).reshape((1, 1, 4) if dims == 3 else (1, 1, 4, 1))
    got = F.interpolate(x, scale_factor=1.2 if dims == 3 else (1.2, 1), mode=mode)
    assert got.flatten().tolist() == expected


@pytest.mark.parametrize(
    ("match", "how"),
    [
        ("exactly one", {}),
        ("exactly one", {"size": 3, "scale_factor": 2}),
        ("mode", {"size": 3, "mode": "trilinear"}),
        ("mode", {"size": 3, "mode": "linear"}),
        ("align_corners", {"size": 3, "align_corners": True}),
        ("antialias is for", {"size": 3, "antialias": True}),
        ("antialias=True", {"size": 3, "mode": "lanczos"}),
        ("without align_corners", {"size": 3, "mode": "lanczos", "antialias": True, "align_corners": True}),
        ("recompute", {"size": 3, "recompute_scale_factor": True}),
        ("2 sizes", {"size": (3, 3, 3)}),
        ("cannot make", {"size": 0}),
    ],
)
def test_interpolate_refuses(match, how):
    with pytest.raises(ValueError, match=match):
        F.interpolate(norch.ones(1, 1, 2, 2), **how)


def covered(n, count, mode, align):
    """Source: PyTorch's formula of its antialiased modes, one element at a time."""
    reach = {"bilinear": 1, "bicubic": 2, "lanczos": 3}[mode]
    scale = n / count if not align else (n - 1) / (count - 1) if count > 1 else 0

    def kernel(x):
        if mode == "lanczos":
            return np.sinc(x) * np.sinc(x / 3)
        if mode == "bilinear":
            return 1 - x
        return (1.5 * x - 2.5) * x * x + 1 if x < 1 else ((2.5 - 0.5 * x) * x - 4) * x + 2

    weights = np.zeros((count, n))
    for i in range(count):
        for j in range(n):
            distance = abs(j + 0.5 - scale * (i + 0.5)) / max(scale, 1)
            weights[i, j] = kernel(distance) if distance < reach else 0
    return weights / weights.sum(1, keepdims=True)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize(("old", "new"), [((7, 9), (3, 4)), ((7, 9), (13, 4)), ((16, 5), (1, 5)), ((1, 3), (2, 1))])
def test_interpolate_with_antialias(mode, old, new):
    x = rand(2, 3, *old)
    for align in (False, True) if mode != "lanczos" else (False,):
        across, down = (norch.tensor(covered(n, count, mode, align)) for n, count in zip(old, new))
        leaves = [norch.tensor(x, requires_grad=True) for _ in range(2)]
        found = F.interpolate(leaves[0], new, mode=mode, align_corners=align, antialias=True)
        expected = across @ leaves[1] @ down.T
        norch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        for y in (found, expected):
            (y**2).sum().backward()
        norch.testing.assert_close(leaves[0].grad, leaves[1].grad, rtol=1e-11, atol=1e-11)
        for memory_format in (norch.contiguous_format, norch.channels_last):
            half = norch.tensor(x).half().contiguous(memory_format=memory_format)
            small = F.interpolate(half, new, mode=mode, align_corners=align, antialias=True)
            assert small.dtype is norch.float16
            norch.testing.assert_close(small.double(), expected.detach(), rtol=2e-3, atol=1e-2)


def test_interpolate_with_antialias_beside_pytorch():
    torch = pytest.importorskip("torch")
    x = rand(2, 3, 17, 23).astype(np.float32)
    is_new = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
    for mode in ("bilinear", "bicubic", *(["lanczos"] if is_new else [])):  # which an older PyTorch refuses
        for how in ({"size": (40, 6)}, {"scale_factor": 0.7}, {"scale_factor": 1.05}, {"scale_factor": (0.3, 2.2)}):
            expected = torch.nn.functional.interpolate(torch.from_numpy(x), **how, mode=mode, antialias=True)
            found = F.interpolate(norch.tensor(x), **how, mode=mode, antialias=True)
            np.testing.assert_allclose(array(found), expected.numpy(), rtol=1e-5, atol=1e-5)


def test_interpolate_of_bytes():
    x = norch.arange(0, 240, 20).to(norch.uint8).reshape(1, 1, 3, 4)
    assert F.interpolate(x, scale_factor=2)[0, 0, ::2, ::2].tolist() == x[0, 0].tolist()
    for mode in ("bilinear", "bicubic"):
        for antialias in (False, True):
            for level in (0, 7, 255):
                same = F.interpolate(norch.full_like(x, level), (5, 2), mode=mode, antialias=antialias)
                assert same.dtype is norch.uint8
                assert same.unique().tolist() == [level]
    with pytest.raises(norch.DTypeError, match=r"interpolate\(\): needs a floating dtype, got norch.int64"):
        F.interpolate(x.long(), 2)
    with pytest.raises(norch.DTypeError, match=r"needs a floating dtype, got norch.uint8"):
        F.interpolate(x, 2, mode="area")


def test_interpolate_of_bytes_beside_pytorch():
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 9, 14)).astype(np.uint8)
    for mode, size, antialias in product(
        ("bilinear", "bicubic", "nearest"), ((20, 6), (5, 14), (9, 31)), (False, True)
    ):
        for align in (False, True) if mode != "nearest" else (None,):
            how = {"size": size, "mode": mode, "align_corners": align, "antialias": antialias and mode != "nearest"}
            expected = torch.nn.functional.interpolate(torch.from_numpy(x), **how)
            np.testing.assert_array_equal(
                F.interpolate(norch.tensor(x), **how).cpu().numpy(), expected.numpy(), str(how)
            )


def test_interpolate_after_inference():
    with norch.inference_mode():
        F.interpolate(norch.ones(1, 1, 6, 6), 5, mode="bilinear")
    x = norch.ones(1, 1, 6, 6, requires_grad=True)
    F.interpolate(x, 5, mode="bilinear").sum().backward()
    assert x.grad.sum().item() == pytest.approx(25)


@pytest.mark.parametrize("options", [
    {"size": (3, 5, 2), "mode": "nearest"}, {"scale_factor": 1.7, "mode": "nearest-exact"},
    {"size": (3, 5, 7), "mode": "trilinear"}, {"size": (6, 2, 4), "mode": "trilinear", "align_corners": True},
    {"size": (3, 5, 2), "mode": "area"},
])  # fmt: skip
def test_interpolate_in_three_dims_is_dim_by_dim(options):
    """Each of the modes is separable: one dim after the other, the others kept."""
    values = rand(2, 2, 4, 5, 6)
    leaf = norch.tensor(values, requires_grad=True)
    found = F.interpolate(leaf, **options)
    one = {"nearest": "nearest", "nearest-exact": "nearest-exact", "trilinear": "linear", "area": "area"}
    rest = {k: v for k, v in options.items() if k not in ("size", "mode")}
    expected = norch.tensor(values)
    for dim in (2, 3, 4):
        size = {"size": options["size"][dim - 2]} if "size" in options else {}
        lines = expected.movedim(dim, -1)
        scaled = F.interpolate(lines.reshape(1, -1, lines.shape[-1]), mode=one[options["mode"]], **size, **rest)
        expected = scaled.reshape(*lines.shape[:-1], -1).movedim(-1, dim)
    np.testing.assert_allclose(array(found), array(expected), rtol=1e-12)
    found.mean().backward()
    assert leaf.grad.sum().item() == pytest.approx(1)


@pytest.mark.parametrize("dtype", [norch.bfloat16, norch.float16])
@pytest.mark.parametrize(("shape", "factor"), [((2, 3, 4, 5, 3), 2), ((2, 3, 6, 5), 3), ((2, 3, 6, 5), 4)])
def test_gradients_of_16_bits_are_rounded_once(shape, factor, dtype):
    x = norch.zeros(shape, dtype=dtype, requires_grad=True)
    out = F.interpolate(x, scale_factor=factor)
    grad = norch.tensor(rand(*out.shape)).to(dtype)
    out.backward(grad)
    expected = np.float64(grad.float().cpu().numpy())
    for dim in range(2, len(shape)):
        spread = (*expected.shape[:dim], expected.shape[dim] // factor, factor, *expected.shape[dim + 1 :])
        expected = expected.reshape(spread).sum(dim + 1)
    assert x.grad.tolist() == norch.tensor(expected).to(dtype).tolist()


def test_old_names_warn():
    x = norch.arange(4.0).reshape(1, 1, 2, 2)
    with pytest.warns(FutureWarning, match="upsample_nearest"):
        assert norch.equal(F.upsample_nearest(x, scale_factor=2), F.interpolate(x, scale_factor=2))
    with pytest.warns(FutureWarning, match="upsample_bilinear"):
        found = F.upsample_bilinear(x, size=(3, 3))
    assert found[0, 0].tolist() == [[0, 0.5, 1], [1, 1.5, 2], [2, 2.5, 3]]
