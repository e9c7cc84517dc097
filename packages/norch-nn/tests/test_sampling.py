"""grid_sample and affine_grid: by their meaning, and beside PyTorch."""

import itertools

import numpy as np
import pytest

import norch
import norch.nn.functional as F
from norch.testing.gradcheck import gradcheck

RNG = np.random.default_rng(0)
IMAGE, VOLUME = RNG.standard_normal((2, 3, 4, 5)), RNG.standard_normal((2, 2, 3, 4, 5))


def places(dims):
    """Inside, outside, far outside, and on the border."""
    grid = RNG.uniform(-1.6, 1.6, (2, 3, *(6,) * (dims - 1), dims))
    grid[0, 0] *= 4
    return grid


@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_the_identity_gives_the_input(mode, padding, align):
    for x in (IMAGE, VOLUME):
        if mode == "bicubic" and x.ndim == 5:
            continue
        x = norch.tensor(x)
        theta = norch.eye(x.ndim - 2, x.ndim - 1, dtype=norch.float64).expand(2, -1, -1)
        grid = F.affine_grid(theta, x.shape, align)
        norch.testing.assert_close(F.grid_sample(x, grid, mode, padding, align), x, rtol=1e-12, atol=1e-12)


def test_between_elements_and_outside():
    x = norch.tensor([[[[0.0, 10.0], [20.0, 30.0]]]])
    grid = norch.tensor([[[[0.0, 0.0], [-1.0, -1.0], [3.0, 0.0]]]])
    assert F.grid_sample(x, grid, align_corners=True).flatten().tolist() == [15, 0, 0]
    assert F.grid_sample(x, grid, align_corners=False).flatten().tolist() == [15, 0, 0]
    assert F.grid_sample(x, grid, padding_mode="border").flatten().tolist() == [15, 0, 20]
    assert F.grid_sample(x, grid, mode="nearest", align_corners=True).flatten().tolist() == [0, 0, 0]
    half = F.grid_sample(x.half(), grid.half(), padding_mode="border")
    assert (half.dtype, half.flatten().tolist()) == (norch.float16, [15, 0, 20])


def test_a_place_that_is_no_number():
    x = norch.ones(1, 1, 3, 3)
    grid = norch.tensor([[[[float("nan"), 0.0], [float("inf"), 0.0], [1e30, -1e30]]]])
    assert F.grid_sample(x, grid).flatten().tolist() == [0, 0, 0]
    assert F.grid_sample(x, grid, padding_mode="border").flatten().tolist() == [1, 1, 1]


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_gradients(mode, padding):
    x = norch.tensor(IMAGE[:, :1], requires_grad=True)
    grid = norch.tensor(places(2)[:, :2, :2], requires_grad=True)
    assert gradcheck(lambda x, g: F.grid_sample(x, g, mode, padding, False), (x, grid), fast_mode=True)
    theta = norch.tensor(RNG.standard_normal((2, 3, 4)), requires_grad=True)
    assert gradcheck(lambda t: F.affine_grid(t, (2, 1, 2, 3, 4)), (theta,))


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (ValueError, lambda x, g: F.grid_sample(x, g, "cubic")),
        (ValueError, lambda x, g: F.grid_sample(x, g, padding_mode="wrap")),
        (norch.ShapeError, lambda x, g: F.grid_sample(x[0], g)),
        (norch.ShapeError, lambda x, g: F.grid_sample(x, g[:1])),
        (norch.ShapeError, lambda x, g: F.grid_sample(x, g[..., :1])),
        (norch.ShapeError, lambda x, g: F.grid_sample(x[..., :0], g)),
        (norch.ShapeError, lambda x, g: F.grid_sample(norch.ones(1, 1, 2, 2, 2), norch.ones(1, 2, 2, 2, 3), "bicubic")),
        (norch.DTypeError, lambda x, g: F.grid_sample(x, g.double())),
        (norch.DTypeError, lambda x, g: F.grid_sample(x.long(), g.long())),
        (norch.ShapeError, lambda x, g: F.affine_grid(norch.ones(1, 2, 3), (2, 1, 3, 3))),
        (norch.ShapeError, lambda x, g: F.affine_grid(norch.ones(1, 2, 3), (1, 1, 3))),
        (norch.DTypeError, lambda x, g: F.affine_grid(norch.ones(1, 2, 3).long(), (1, 1, 3, 3))),
    ],
)
def test_errors(error, call):
    with pytest.raises(error, match=r"grid_sample\(\)|affine_grid\(\)"):
        call(norch.ones(2, 1, 3, 3), norch.zeros(2, 2, 2, 2))


MODES = list(itertools.product(["bilinear", "nearest", "bicubic"], ["zeros", "border", "reflection"], [True, False]))


@pytest.mark.parametrize(("mode", "padding", "align"), MODES)
@pytest.mark.usefixtures("on_host")
def test_values_and_gradients_are_pytorchs(mode, padding, align):
    torch = pytest.importorskip("torch")
    for image in (IMAGE, VOLUME, IMAGE[:, :, :1, :1]):
        if mode == "bicubic" and image.ndim == 5:
            continue
        dims = image.ndim - 2
        whole = np.stack(np.meshgrid(*[np.linspace(-2, 2, 9)] * dims), -1)[None].repeat(2, 0)
        for grid in (places(dims), whole):
            found = []
            for lib in (norch, torch):
                x, g = lib.from_numpy(image).requires_grad_(), lib.from_numpy(grid).requires_grad_()
                out = lib.nn.functional.grid_sample(x, g, mode, padding, align)
                (out * lib.arange(out.numel()).reshape(out.shape).double().cos()).sum().backward()
                found.append([out.detach().numpy(), x.grad.numpy(), g.grad.numpy()])
            for ours, theirs in zip(*found, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:Since version")
@pytest.mark.parametrize("align", [True, False])
def test_grids_are_pytorchs(align):
    torch = pytest.importorskip("torch")
    for size in ((2, 1, 3, 5), (2, 3, 1, 4), (2, 1, 2, 3, 4)):
        theta = RNG.standard_normal((2, len(size) - 2, len(size) - 1))
        found = [lib.nn.functional.affine_grid(lib.from_numpy(theta), size, align).numpy() for lib in (norch, torch)]
        np.testing.assert_allclose(*found, rtol=1e-12, atol=1e-12)


def test_affine_grid_of_sizes_that_are_tensors_is_as_exact():
    theta = norch.tensor([[[1.1, 0.1, 0.3], [0.2, 0.9, -0.4]]], dtype=norch.float64)
    sizes = [1, 1, norch.tensor(5), norch.tensor(7)]
    found = norch.nn.functional.affine_grid(theta, sizes, align_corners=False)
    assert norch.equal(found, norch.nn.functional.affine_grid(theta, (1, 1, 5, 7), align_corners=False))


@pytest.mark.usefixtures("on_host")
def test_volumes_without_a_kernel_are_made_of_parts():
    """The composite's gradients are slower there, up to 20 times."""
    volume = norch.zeros(1, 8, 4, 4, 4, requires_grad=True)
    out = F.grid_sample(volume, norch.zeros(1, 2, 2, 2, 3), align_corners=False)
    assert out.grad_fn.name() != "grid_sample3d_backward"
