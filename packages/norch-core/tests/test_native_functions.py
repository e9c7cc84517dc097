"""PyTorch's functions below those of torch.nn.functional."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.compat.native_functions import COPIES


def test_normalisations_give_what_they_divide_by():
    values = np.random.RandomState(0).randn(2, 6, 4, 5)
    x = norch.tensor(values)
    out, mean, rate = norch.native_layer_norm(x, (4, 5), None, None, 1e-5)
    by_hand = values.mean((2, 3), keepdims=True), 1 / np.sqrt(values.var((2, 3), keepdims=True) + 1e-5)
    for found, expected in zip((mean, rate), by_hand, strict=True):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(out.numpy(), (values - by_hand[0]) * by_hand[1], rtol=1e-10)
    out, mean, rate = norch.native_group_norm(x, None, None, 2, 6, 20, 3, 1e-5)
    groups = values.reshape(2, 3, -1)
    np.testing.assert_allclose(mean.numpy(), groups.mean(-1), rtol=1e-12)
    np.testing.assert_allclose(rate.numpy(), 1 / np.sqrt(groups.var(-1) + 1e-5), rtol=1e-12)
    assert out.shape == x.shape
    assert norch.native_layer_norm(x.bfloat16(), (5,), None, None, 1e-5)[1].dtype is norch.bfloat16
    with pytest.raises(norch.ShapeError, match="has not"):
        norch.native_group_norm(x, None, None, 2, 6, 21, 3, 1e-5)


def test_dropout_gives_its_mask():
    x = norch.arange(1.0, 101)
    for out, kept in (norch.native_dropout(x, 0.5, True), norch.native_dropout(x, 1.0, None)):
        assert kept.dtype is norch.bool
        assert out.tolist() == norch.where(kept, x * 2, 0).tolist()
    out, kept = norch.native_dropout(x, 0.5, False)
    assert (out.tolist(), kept.all().item()) == (x.tolist(), True)


def test_numbers_for_the_modes_of_grids():
    x, grid = norch.rand(1, 2, 4, 5), norch.rand(1, 3, 3, 2) * 3 - 1.5
    for i, mode in enumerate(("bilinear", "nearest", "bicubic")):
        for j, padding in enumerate(("zeros", "border", "reflection")):
            expected = norch.grid_sample(x, grid, mode, padding, align_corners=True)
            assert norch.grid_sampler(x, grid, i, j, True).tolist() == expected.tolist()
    with pytest.raises(ValueError, match="0, 1 or 2"):
        norch.grid_sampler_2d(x, grid, 3, 0, True)


def test_singular_values_and_unique_ones():
    x = norch.tensor([[3.0, 0], [0, -4]])
    assert norch.nuclear_norm(x).item() == pytest.approx(7)
    assert norch.nuclear_norm(x.expand(2, 2, 2), (1, 2), True).shape == (2, 1, 1)
    found = norch._unique2(norch.tensor([3, 1, 1]), True, True, True)
    assert [t.tolist() for t in found] == [[1, 3], [1, 0, 0], [2, 1]]
    assert [t.tolist() for t in norch._unique(norch.tensor([3, 1, 1]))] == [[1, 3], []]


def test_parts_of_a_scaler():
    infinite, grads = norch.zeros(()), [norch.tensor([2.0, 4.0]), norch.tensor([1.0])]
    norch._amp_foreach_non_finite_check_and_unscale_(grads, infinite, norch.tensor(0.5))
    assert (infinite.item(), [g.tolist() for g in grads]) == (0, [[1, 2], [0.5]])
    norch._amp_foreach_non_finite_check_and_unscale_([norch.tensor([float("nan")])], infinite, norch.tensor(0.5))
    assert infinite.item() == 1
    scale, good = norch.tensor(8.0), norch.tensor(0, dtype=norch.int64)
    seen = []
    for bad in (0.0, 0.0, 0.0, 1.0, 0.0):
        assert norch._amp_update_scale_(scale, good, norch.tensor(bad), 2.0, 0.5, 2) is scale
        seen.append((scale.item(), good.item()))
    assert seen == [(8, 1), (16, 0), (16, 1), (8, 0), (8, 1)]


CALLS = {
    "as_strided": ((2, 2), (1, 2)), "expand": ((2, 2, 3),), "permute": ((1, 0),), "select": (0, 1), "slice": (1, 1, 3),
    "split": (1,), "split_with_sizes": ([1, 1],), "transpose": (0, 1), "unfold": (1, 2, 1), "unsqueeze": (0,),
    "view": ((3, 2),),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(COPIES) - {"slice", "view_as_complex", "view_as_real"}))
def test_views_are_copied(name):
    x = norch.arange(6.0).reshape(2, 3)
    view = {"alias": lambda x: x}.get(name) or (lambda x, *args: getattr(x, name)(*args))
    expected, found = view(x, *CALLS.get(name, ())), getattr(norch, f"{name}_copy")(x, *CALLS.get(name, ()))
    pairs = [(expected, found)] if isinstance(found, norch.Tensor) else list(zip(expected, found, strict=True))
    for old, new in pairs:
        assert (new.tolist(), new.shape) == (old.tolist(), old.shape)
        new.fill_(9)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert norch.slice_copy(x, 1, 1, 3).tolist() == [[1, 2], [4, 5]]
    assert not hasattr(norch, "nothing_copy")


def test_old_names_of_pieces_and_of_dlpack():
    x = norch.arange(6)
    assert [t.tolist() for t in norch.unsafe_chunk(x, 2)] == [[0, 1, 2], [3, 4, 5]]
    assert [t.tolist() for t in norch.unsafe_split_with_sizes(x, [1, 5])] == [[0], [1, 2, 3, 4, 5]]
    assert norch.from_dlpack(norch.to_dlpack(x)).data_ptr() == x.data_ptr()
