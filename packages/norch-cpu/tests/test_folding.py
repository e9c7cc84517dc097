"""Windows of images as columns, and back: kernels of their own."""

from __future__ import annotations

import pytest
from folding_harness import (
    DTYPES,
    SHAPES,
    TOLERANCE,
    WINDOWS,
    check_columns,
    check_each_is_the_gradient_of_the_other,
    check_no_images,
    check_sums_of_columns,
)

import norch


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("shape", SHAPES)
def test_columns(shape, windows, dtype):
    check_columns("cpu", shape, windows, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_of_columns(shape, windows, dtype):
    check_sums_of_columns("cpu", shape, windows, dtype)


def test_each_is_the_gradient_of_the_other():
    check_each_is_the_gradient_of_the_other("cpu")


def test_no_images():
    check_no_images("cpu")


def test_large_images():
    check_columns("cpu", (2, 40, 56, 60), WINDOWS[1], norch.float32)
    check_sums_of_columns("cpu", (2, 40, 56, 60), WINDOWS[1], norch.float32)
