"""norch.vision.ops' blocks of detectors: pyramids, deformable convolution, DropBlock, frozen norms."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from test_vision_boxes import random_boxes
from test_vision_pooling import aligned_loop

import norch
from norch import nn
from norch.autograd import gradcheck
from norch.vision import ops
from norch.vision.ops.feature_pyramid_network import ExtraFPNBlock, LastLevelMaxPool, LastLevelP6P7
from norch.vision.ops.poolers import LevelMapper


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def maps() -> dict[str, norch.Tensor]:
    return OrderedDict((f"m{i}", norch.tensor(numbers(2, 3 + i, s, s + 1)).float()) for i, s in enumerate((8, 5, 2)))


def test_a_pyramid_adds_deeper_maps() -> None:
    fpn, x = ops.FeaturePyramidNetwork([3, 4, 5], 6), maps()
    out = fpn(x)
    assert {name: tuple(value.shape) for name, value in out.items()} == {
        "m0": (2, 6, 8, 9), "m1": (2, 6, 5, 6), "m2": (2, 6, 2, 3)
    }  # fmt: skip
    deep = fpn.inner_blocks[2](x["m2"])
    wide = deep[:, :, [0, 0, 0, 1, 1]][:, :, :, [0, 0, 1, 1, 2, 2]]
    norch.testing.assert_close(out["m2"], fpn.layer_blocks[2](deep))
    norch.testing.assert_close(out["m1"], fpn.layer_blocks[1](fpn.inner_blocks[1](x["m1"]) + wide))
    norch.testing.assert_close(fpn.get_result_from_inner_blocks(x["m2"], -1), deep)
    sum(value.sum() for value in out.values()).backward()
    assert all(p.grad is not None for p in fpn.parameters())


def test_a_pyramid_with_more_maps() -> None:
    x = maps()
    out = ops.FeaturePyramidNetwork([3, 4, 5], 6, LastLevelMaxPool())(x)
    assert list(out) == ["m0", "m1", "m2", "pool"]
    assert norch.equal(out["pool"], out["m2"][:, :, ::2, ::2])
    assert list(x) == ["m0", "m1", "m2"]
    for channels in (5, 6):  # of the deepest map, or as the pyramid's
        fpn = ops.FeaturePyramidNetwork([3, 4, 5], 6, LastLevelP6P7(channels, 6), norm_layer=nn.BatchNorm2d)
        out = fpn(x)
        assert list(out)[3:] == ["p6", "p7"]
        last = out["m2"] if channels == 6 else x["m2"]
        norch.testing.assert_close(out["p6"], fpn.extra_blocks.p6(last))
        norch.testing.assert_close(out["p7"], fpn.extra_blocks.p7(out["p6"].relu()))
    assert isinstance(fpn.inner_blocks[0][1], nn.BatchNorm2d)


def test_a_pyramid_reads_old_files() -> None:
    fpn = ops.FeaturePyramidNetwork([3, 4], 6)
    model = nn.Sequential(fpn)
    state = {f"0.{block}.{i}.{n}": fpn.state_dict()[f"{block}.{i}.0.{n}"] + 1
             for block in ("inner_blocks", "layer_blocks") for i in range(2) for n in ("weight", "bias")}  # fmt: skip
    model.load_state_dict(state)
    assert norch.equal(fpn.inner_blocks[1][0].weight, state["0.inner_blocks.1.weight"])


def test_what_a_pyramid_does_not_take() -> None:
    with pytest.raises(ValueError, match="no channels"):
        ops.FeaturePyramidNetwork([0, 4], 6)
    with pytest.raises(norch.DTypeError, match="ExtraFPNBlock, got Linear"):
        ops.FeaturePyramidNetwork([4], 6, nn.Linear(1, 1))
    with pytest.raises(NotImplementedError, match="ExtraFPNBlock has no forward"):
        ops.FeaturePyramidNetwork([4], 6, ExtraFPNBlock())({"a": norch.ones(1, 4, 2, 2)})


def test_boxes_are_pooled_from_the_level_of_their_size() -> None:
    mapper = LevelMapper(2, 5)
    boxes = norch.tensor([[0.0, 0, side, side] for side in (1, 111, 112, 223, 224, 447, 448, 9999)])
    assert mapper([boxes[:3], boxes[3:]]).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    pool = ops.MultiScaleRoIAlign(["a", "c"], (2, 3), 2, canonical_scale=6, canonical_level=3)
    x = {name: numbers(2, 3, 64 // s, 64 // s) for name, s in (("a", 4), ("b", 8), ("c", 16))}
    sets = [random_boxes(6, seed, 40.0) for seed in (0, 1)]
    leaves = {name: norch.tensor(value, requires_grad=True) for name, value in x.items()}
    out = pool(leaves, [norch.tensor(b) for b in sets], [(64, 50), (60, 64)])
    assert pool.scales == [1 / 4, 1 / 16]
    rois = np.concatenate([np.concatenate([np.full((6, 1), i), b], 1) for i, b in enumerate(sets)])
    sides = np.sqrt((rois[:, 3] - rois[:, 1]) * (rois[:, 4] - rois[:, 2]))
    levels = (np.clip(np.floor(3 + np.log2(sides / 6) + 1e-6), 2, 4) - 2).astype(int)
    assert set(levels.tolist()) == {0, 1, 2}
    for k, level in enumerate(levels):
        expected = np.zeros((1, 3, 2, 3))  # of the third level, for which there is no map
        if level < 2:
            name, scale = (("a", 1 / 4), ("c", 1 / 16))[level]
            expected = aligned_loop(x[name], rois[k : k + 1], (2, 3), scale, 2, 0.0, 1)
        np.testing.assert_allclose(out[k].detach().cpu().numpy(), expected[0], rtol=1e-10, atol=1e-12)
    out.sum().backward()
    assert leaves["b"].grad is None
    assert leaves["a"].grad.abs().sum() > 0
    with pytest.raises(ValueError, match="no image"):
        ops.MultiScaleRoIAlign(["a"], 2, 2)(leaves, [], [])
    assert repr(pool) == "MultiScaleRoIAlign(featmap_names=['a', 'c'], output_size=(2, 3), sampling_ratio=2)"


def deformed(x, offset, weight, stride, padding, dilation, mask):
    """A loop: each weight at its place, moved, between pixels; 0 beyond the edges."""
    (batch, channels, height, width), (outputs, share, m, n) = x.shape, weight.shape
    parts, sizes = offset.shape[1] // (2 * m * n), offset.shape[2:]
    out = np.zeros((batch, outputs, *sizes))
    wide = np.pad(x, ((0, 0), (0, 0), (1, 2), (1, 2)))
    for b, o, p, q in np.ndindex(out.shape):
        for c, i, j in np.ndindex(share, m, n):
            channel = o // (outputs // (channels // share)) * share + c
            k = channel // (channels // parts) * m * n + i * n + j
            y = p * stride[0] - padding[0] + i * dilation[0] + offset[b, 2 * k, p, q]
            z = q * stride[1] - padding[1] + j * dilation[1] + offset[b, 2 * k + 1, p, q]
            if -1 < y < height and -1 < z < width:
                top, left = int(np.floor(y)), int(np.floor(z))
                v, u = y - top, z - left
                square = wide[b, channel, top + 1 : top + 3, left + 1 : left + 3]
                value = np.array([1 - v, v]) @ square @ np.array([1 - u, u])
                out[b, o, p, q] += weight[o, c, i, j] * value * mask[b, k, p, q]
    return out


@pytest.mark.parametrize(
    ("groups", "parts", "options"),
    [
        (1, 1, {}),
        (2, 1, {"stride": 2, "padding": 1}),
        (1, 2, {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}),
        (2, 4, {"padding": 1}),
    ],
)
def test_deformable_convolution(groups: int, parts: int, options: dict[str, object]) -> None:
    x, weight, bias = numbers(2, 4, 6, 7), numbers(6, 4 // groups, 3, 2, seed=1), numbers(6, seed=2)
    size = nn.functional.conv2d(norch.tensor(x), norch.tensor(weight), groups=groups, **options).shape[2:]
    offset, mask = 2 * numbers(2, 2 * parts * 6, *size, seed=3), numbers(2, parts * 6, *size, seed=4)
    pairs = [options.get(name, usual) for name, usual in (("stride", 1), ("padding", 0), ("dilation", 1))]
    expected = deformed(x, offset, weight, *(p if isinstance(p, tuple) else (p, p) for p in pairs), mask)
    out = ops.deform_conv2d(*map(norch.tensor, (x, offset, weight, bias)), **options, mask=norch.tensor(mask))
    np.testing.assert_allclose(out.cpu().numpy(), expected + bias[:, None, None], rtol=1e-10, atol=1e-10)
    unmoved = ops.deform_conv2d(*map(norch.tensor, (x, 0 * offset, weight)), **options)
    plain = nn.functional.conv2d(norch.tensor(x), norch.tensor(weight), groups=groups, **options)
    norch.testing.assert_close(unmoved, plain)


def test_gradients_of_a_deformable_convolution() -> None:
    arrays = numbers(1, 2, 4, 4), 2 * numbers(1, 16, 3, 3, seed=1), numbers(2, 1, 2, 2, seed=2), numbers(2, seed=3)
    x, offset, weight, bias, mask = (norch.tensor(a).requires_grad_() for a in (*arrays, numbers(1, 8, 3, 3, seed=4)))
    assert gradcheck(lambda *t: ops.deform_conv2d(*t[:4], mask=t[4]), (x, offset, weight, bias, mask))


@pytest.mark.parametrize("size", [(1, 2), (5, 7), (33, 50)])
def test_at_whole_places_the_derivative_is_that_to_the_next_element(size: tuple[int, int]) -> None:
    x = norch.tensor(numbers(1, 1, *size)).float()
    offset = norch.zeros(1, 2, *size, requires_grad=True)
    out = ops.deform_conv2d(x, offset, norch.ones(1, 1, 1, 1))
    assert norch.equal(out.detach(), x)
    out.sum().backward()
    for d in (0, 1):
        behind = np.diff(np.pad(x[0, 0].cpu().numpy(), [(0, d == 0), (0, d == 1)]), axis=d)
        norch.testing.assert_close(offset.grad[0, d], norch.tensor(behind), rtol=1e-5, atol=1e-5)


def test_the_module_of_deformable_convolution() -> None:
    norch.manual_seed(0)
    module = ops.DeformConv2d(4, 6, 3, padding=1, dilation=1, groups=2)
    assert {name: tuple(p.shape) for name, p in module.named_parameters()} == {"weight": (6, 2, 3, 3), "bias": (6,)}
    assert module.weight.abs().max() <= 1 / 18**0.5
    out = module(norch.rand(2, 4, 5, 5), norch.rand(2, 18, 5, 5), norch.rand(2, 9, 5, 5))
    assert out.shape == (2, 6, 5, 5)
    assert repr(module) == "DeformConv2d(4, 6, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), groups=2)"
    assert repr(ops.DeformConv2d(1, 1, 1, bias=False)).endswith("stride=(1, 1), bias=False)")
    with pytest.raises(ValueError, match="groups do not divide"):
        ops.DeformConv2d(4, 6, 3, groups=4)


@pytest.mark.parametrize("offset", [(1, 18, 3, 4), (1, 2, 3, 3), (2, 18, 3, 3), (1, 54, 3, 3)])
def test_a_deformable_convolution_refuses_other_shapes(offset: tuple[int, ...]) -> None:
    with pytest.raises(norch.ShapeError, match="do not fit"):
        ops.deform_conv2d(norch.zeros(1, 4, 5, 5), norch.zeros(offset), norch.zeros(1, 4, 3, 3))


@pytest.mark.parametrize(("name", "dims"), [("drop_block2d", 2), ("drop_block3d", 3)])
def test_blocks_are_dropped(name: str, dims: int) -> None:
    norch.manual_seed(0)
    drop, x = getattr(ops, name), norch.ones(40, 5, *[9] * dims)
    out = drop(x, 0.2, 3)
    kept = out != 0
    assert out[kept].unique().numel() == 1
    assert out.mean().item() == pytest.approx(1, abs=1e-4)
    assert 0.7 < kept.float().mean().item() < 0.9
    lost = (~kept).float()
    pool = nn.functional.max_pool2d if dims == 2 else nn.functional.max_pool3d
    centres = 1 - pool(1 - lost, 3, stride=1)  # where a whole block is lost
    spread = pool(nn.functional.pad(centres, [1] * 2 * dims), 3, stride=1, padding=1)
    assert norch.equal(spread, lost)
    assert drop(x, 0.0, 3) is x
    assert drop(x, 0.5, 3, training=False) is x
    changed = x.clone()
    assert drop(changed, 0.5, 3, inplace=True) is changed
    assert (changed == 0).any()
    for options, message in (((1.5, 3), "from 0 to 1"), ((0.5, 4), "must be odd")):
        with pytest.raises(ValueError, match=message):
            drop(x, *options)
    with pytest.raises(ValueError, match="dims"):
        drop(x[0], 0.5, 3)
    module = getattr(ops, f"DropBlock{dims}d")(0.5, 3)
    assert (module(x) == 0).any()
    assert module.eval()(x) is x
    assert repr(module) == f"DropBlock{dims}d(p=0.5, block_size=3, inplace=False)"


def test_convolutions_with_their_norms() -> None:
    block = ops.Conv3dNormActivation(2, 4, (1, 3, 3), stride=(1, 2, 2))
    assert block(norch.rand(2, 2, 3, 8, 8)).shape == (2, 4, 3, 4, 4)
    assert [type(part) for part in block] == [nn.Conv3d, nn.BatchNorm3d, nn.ReLU]
    assert block[0].padding == (0, 1, 1)
    assert block[0].bias is None
    assert ops.Conv3dNormActivation(2, 4, 5, dilation=2)[0].padding == (4, 4, 4)
    assert ops.Conv2dNormActivation(2, 4, dilation=(1, 2))[0].padding == (1, 2)
    assert isinstance(block, ops.misc.ConvNormActivation)


def test_frozen_norms_load_what_norms_saved() -> None:
    norm, x = nn.BatchNorm2d(3), norch.rand(4, 3, 2, 2)
    norm(x)
    frozen = nn.Sequential(ops.FrozenBatchNorm2d(3))
    frozen.load_state_dict({f"0.{key}": value for key, value in norm.state_dict().items()})
    norch.testing.assert_close(frozen(x), norm.eval()(x))
