"""grid_sample2d, grid_sample2d_bicubic and their gradients: the kernels beside the decompositions."""

import itertools

import numpy as np
import pytest

import norch
from norch.ops.families import by_name
from norch.ops.nn import sampling
from norch.testing import assert_close

RNG = np.random.default_rng(0)
CASES = list(itertools.product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (False, True)))


def drawn(dtype, *shape):
    return norch.tensor(RNG.standard_normal(shape), dtype=dtype)


def compare(op, tensors, args):
    found = op(*tensors, *args)
    expected = DECOMPOSED[op](*tensors, *args)
    tolerance = 1e-4 if found.dtype is norch.float32 else 1e-11
    assert_close(found, expected, rtol=tolerance, atol=tolerance)
    return found


LINEAR = (sampling.grid_sample2d, sampling.grid_sample2d_input_grad, sampling.grid_sample2d_grid_grad)
CUBIC = (
    sampling.grid_sample2d_bicubic,
    sampling.grid_sample2d_bicubic_input_grad,
    sampling.grid_sample2d_bicubic_grid_grad,
)
DECOMPOSED = {op: by_name()[op.__name__].decompose for op in (*LINEAR, *CUBIC)}


def ops_of(case):
    """The sampling of a case, and its gradients for the input and for the grid."""
    return CUBIC if case[0] == "bicubic" else LINEAR


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", [(5, 7), (1, 4), (1, 1)])
def test_kernels_agree_with_the_decompositions(dtype, case, size):
    for layout in ("plain", "channels last", "expanded"):
        x, grad = drawn(dtype, 2, 19, *size), drawn(dtype, 2, 19, 9, 31)
        grid = drawn(dtype, 2, 9, 31, 2) * 1.3
        if layout == "channels last":
            x, grad = (t.permute(0, 2, 3, 1).clone().permute(0, 3, 1, 2) for t in (x, grad))
            grid = grid.permute(3, 2, 1, 0).clone().permute(3, 2, 1, 0)
        elif layout == "expanded":
            x, grid, grad = (t[:1].expand(2, -1, -1, -1) for t in (x, grid, grad))
        sample, input_grad, grid_grad = ops_of(case)
        compare(sample, (x, grid), case)
        compare(input_grad, (grad, grid), (tuple(x.shape), *case))
        compare(grid_grad, (grad, x, grid), case)


@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (2, 0, 4, 4)])
def test_nothing_to_compute(shape):
    x, grid = norch.zeros(shape), norch.zeros(shape[0], 3, 2, 2)
    grad = norch.zeros(*shape[:2], 3, 2)
    for case in CASES:
        sample, input_grad, grid_grad = ops_of(case)
        assert sample(x, grid, *case).shape == grad.shape
        assert input_grad(grad, grid, shape, *case).shape == shape
        assert grid_grad(grad, x, grid, *case).abs().sum().item() == 0


def test_places_that_are_no_numbers():
    numbers = norch.tensor([float("nan"), float("inf"), float("-inf"), 1e30, -1e30, 0.5])
    grid = norch.stack(norch.meshgrid(numbers, numbers, indexing="ij"), -1).unsqueeze(0)
    x = drawn(norch.float32, 1, 2, 4, 5)
    for case in CASES:
        sample = ops_of(case)[0]
        found = sample(x, grid, *case)
        if case[1] == "reflection":
            assert found[0, 0, -1, -1].isfinite().item()
        else:
            assert_close(found, DECOMPOSED[sample](x, grid, *case), equal_nan=True)


def test_what_lies_outside_is_not_read():
    """The first element is infinite: of it comes what lies near it alone."""
    x, grad = drawn(norch.float32, 1, 9, 4, 5), norch.ones(1, 9, 2, 2)
    x[..., 0, 0] = float("inf")
    places = norch.tensor([[[[1.1, 0.9], [0.5, 1.05]], [[3.0, 3.0], [-9.0, 0.3]]]])
    for case in CASES:
        sample, input_grad, grid_grad = ops_of(case)
        if case[1] == "zeros" or (case[1] == "border" and case[0] != "bicubic"):  # whose reach is longer
            assert sample(x, places, *case).isfinite().all()
            assert grid_grad(grad, x, places, *case).isfinite().all()
            assert DECOMPOSED[sample](x, places, *case).isfinite().all()
            assert DECOMPOSED[grid_grad](grad, x, places, *case).isfinite().all()
            compare(sample, (x, places), case)
        wrong = norch.full((1, 9, 2, 2), float("nan"))
        for op in (input_grad, DECOMPOSED[input_grad]):
            found = op(wrong, places, (1, 9, 4, 5), case[0].replace("nearest", "bilinear"), "zeros", False)
            assert found[..., 0, 0].isfinite().all()
            assert found.isnan().any()


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bits_do_not_depend_on_the_number_of_threads(mode):
    x, grad = drawn(norch.float32, 3, 40, 33, 35), drawn(norch.float32, 3, 40, 50, 41)
    grid = drawn(norch.float32, 3, 50, 41, 2)
    case, before, found = (mode, "reflection", False), norch.get_num_threads(), []
    sample, input_grad, grid_grad = ops_of(case)
    try:
        for threads in (1, 2):
            norch.set_num_threads(threads)
            found.append(
                (
                    sample(x, grid, *case).numpy(),
                    input_grad(grad, grid, (3, 40, 33, 35), *case).numpy(),
                    grid_grad(grad, x, grid, *case).numpy(),
                )
            )
    finally:
        norch.set_num_threads(before)
    for one, two in zip(*found, strict=True):
        assert one.tobytes() == two.tobytes()
