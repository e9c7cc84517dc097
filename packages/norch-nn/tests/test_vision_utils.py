"""Grids of images, and their files."""

from __future__ import annotations

import io

import numpy as np
import pytest

import norch
from norch.vision.utils import make_grid, save_image


def images(n: int, channels: int = 3) -> norch.Tensor:
    return norch.arange(n * channels * 6).reshape(n, channels, 2, 3).float()


def test_a_grid_has_padding_around_each_image() -> None:
    x = images(3)
    grid = make_grid(x, nrow=2, padding=1, pad_value=-1.0).cpu().numpy()
    assert grid.shape == (3, 7, 9)
    expected = np.full((3, 7, 9), -1.0)
    for i, (top, left) in enumerate([(1, 1), (1, 5), (4, 1)]):
        expected[:, top : top + 2, left : left + 3] = x[i].cpu().numpy()
    np.testing.assert_array_equal(grid, expected)


def test_forms_of_images() -> None:
    x = images(2, 1)
    assert make_grid(x).shape == make_grid([x[0], x[1]]).shape == (3, 6, 12)
    assert make_grid(x[0]).tolist() == [x[0, 0].tolist()] * 3
    assert make_grid(x[0, 0]).tolist() == [x[0, 0].tolist()] * 3
    assert make_grid(images(9)).shape == (3, 2 * 4 + 2, 8 * 5 + 2)
    assert not make_grid(images(2).requires_grad_()).requires_grad


def test_normalisation() -> None:
    x = norch.tensor([[-1.0, 1.0], [2.0, 6.0]]).reshape(2, 1, 1, 2)
    at = [(0, 2, 2), (0, 2, 3), (0, 2, 6), (0, 2, 7)]

    def found(**options: object) -> list[float]:
        grid = make_grid(x, normalize=True, **options)  # type: ignore[arg-type]
        return [grid[i].item() for i in at]

    assert found() == pytest.approx([0, 2 / 7, 3 / 7, 1])
    assert found(scale_each=True) == pytest.approx([0, 1, 0, 1])
    assert found(value_range=(0, 4)) == pytest.approx([0, 0.25, 0.5, 1])
    assert make_grid(norch.ones(1, 1, 1, 1), normalize=True).tolist() == [[[0.0]]] * 3


def test_what_is_no_batch_of_images() -> None:
    with pytest.raises(norch.ShapeError, match="2 to 4 dims"):
        make_grid(norch.ones(1, 1, 1, 1, 1))
    with pytest.raises(TypeError, match="got list"):
        make_grid([])
    with pytest.raises(ValueError, match="nrow"):
        make_grid(images(2), nrow=0)


def test_save_image() -> None:
    Image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    save_image(norch.tensor([[0.0, 0.5], [1.0, 2.0]]), file, format="PNG")
    read = np.asarray(Image.open(file))
    np.testing.assert_array_equal(read, np.array([[0, 128], [255, 255]], np.uint8)[..., None].repeat(3, 2))
