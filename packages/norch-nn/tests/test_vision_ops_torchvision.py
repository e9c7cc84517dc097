"""norch.vision.ops beside torchvision's: results, and gradients of what has them."""

from __future__ import annotations

import numpy as np
import pytest
from importing_torchvision import import_torchvision
from test_vision_boxes import random_boxes

import norch
from norch.vision import ops

torch = pytest.importorskip("torch")

from beside_torch import value  # noqa: E402

torchvision = import_torchvision()
theirs, extension = torchvision.ops, torchvision.extension
pytestmark = pytest.mark.usefixtures("on_host")

# torchvision's wheel for CUDA has no kernels beside a PyTorch without it.
kernels = pytest.mark.skipif(not extension._has_ops(), reason="torchvision's kernels do not load")


def both(name, *arrays, differentiable=None, rtol=1e-10, **options):
    """The op on the same arrays, and its gradients for a random gradient of the result."""
    grad = range(len(arrays)) if differentiable is None else differentiable
    left = [torch.tensor(a, requires_grad=i in grad) for i, a in enumerate(arrays)]
    right = [norch.tensor(a, requires_grad=i in grad) for i, a in enumerate(arrays)]
    a, b = getattr(theirs, name)(*left, **options), getattr(ops, name)(*right, **options)
    assert tuple(a.shape) == tuple(b.shape)
    assert str(a.dtype).removeprefix("torch.") == str(b.dtype).removeprefix("norch.")
    np.testing.assert_allclose(value(b), value(a), rtol=rtol, atol=rtol / 100)
    if not grad:
        return
    weight = np.random.default_rng(9).standard_normal(tuple(a.shape)).astype(value(a).dtype)
    (a * torch.tensor(weight)).sum().backward()
    (b * norch.tensor(weight)).sum().backward()
    for i in grad:
        np.testing.assert_allclose(value(right[i].grad), value(left[i].grad), rtol=10 * rtol, atol=rtol / 10)


@pytest.mark.parametrize("name", ["box_iou", "generalized_box_iou", "distance_box_iou", "complete_box_iou"])
def test_overlaps(name):
    whole = np.round(random_boxes(6, 2) * 3).astype(np.int32)
    both(name, random_boxes(7, 0), random_boxes(5, 1))
    both(name, np.stack([random_boxes(4, s) for s in (0, 1)]), np.stack([random_boxes(3, s) for s in (2, 3)]))
    both(name, whole, whole[:4], differentiable=(), rtol=1e-5)
    both(name, whole.astype(np.float16), whole[:4].astype(np.float16), differentiable=(), rtol=1e-3)


LOSSES = ["generalized_box_iou_loss", "distance_box_iou_loss", "complete_box_iou_loss"]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses_of_boxes(name, reduction):
    a, b = random_boxes(20, 0), random_boxes(20, 1)
    b[3] = a[3]
    b[4] = a[4] + 100
    both(name, a, b, reduction=reduction)
    both(name, a, b, reduction=reduction, eps=1e-3)
    both(name, a[:0], b[:0], reduction=reduction)
    both(name, a[0], b[0], reduction=reduction)


@pytest.mark.parametrize("alpha", [0.25, -1, 1.0])
def test_focal_loss(alpha):
    rng = np.random.default_rng(0)
    x, t = rng.standard_normal((4, 5)), rng.random((4, 5))
    for reduction in ("none", "mean", "sum"):
        both("sigmoid_focal_loss", x, t, alpha=alpha, gamma=1.5, reduction=reduction, differentiable=(0,))


def test_forms_of_boxes():
    boxes = random_boxes(6, 0)
    turned = np.concatenate([boxes, np.random.default_rng(1).uniform(-180, 180, (6, 1))], 1)
    corners = theirs.box_convert(torch.tensor(turned), "xywhr", "xyxyxyxy").numpy()
    given = {"xyxy": boxes, "xywh": boxes, "cxcywh": boxes, "xywhr": turned, "cxcywhr": turned, "xyxyxyxy": corners}
    for source, array in given.items():
        for target in given:
            if (array.shape[1] == 4 and given[target].shape[1] == 4) or (
                array.shape[1] > 4 and given[target].shape[1] > 4
            ):
                both("box_convert", array, in_fmt=source, out_fmt=target)
                whole = np.round(array * 4).astype(np.int64)
                if source != target:
                    both("box_convert", whole, in_fmt=source, out_fmt=target, differentiable=(), rtol=1e-6)


def test_other_functions_of_boxes():
    boxes = random_boxes(9, 0) - 2
    both("box_area", boxes)
    both("clip_boxes_to_image", boxes, size=(7, 6))
    both("remove_small_boxes", boxes, min_size=2.0, differentiable=())
    both("masks_to_boxes", np.random.default_rng(0).random((5, 6, 7)) > 0.95, differentiable=())


@kernels
def test_suppression():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        boxes = np.round(random_boxes(200, seed, 60)).astype(np.float32)
        scores, groups = (rng.integers(0, 40, 200) / 40).astype(np.float32), rng.integers(0, 4, 200)
        for threshold in (0.0, 0.1, 0.25, 0.5, 1 / 3):
            both("nms", boxes, scores, iou_threshold=threshold, differentiable=())
            both("batched_nms", boxes, scores, groups, iou_threshold=threshold, differentiable=())


@kernels
def test_suppression_by_category_of_many():
    """torchvision sorts the last time by PyTorch's sort that is not stable: equal scores come in any order."""
    rng = np.random.default_rng(0)
    boxes, groups = random_boxes(1200, 0, 90).astype(np.float32), rng.integers(0, 4, 1200)
    scores = (rng.permutation(1200) / 1200).astype(np.float32)
    both("batched_nms", boxes, scores, groups, iou_threshold=0.3, differentiable=())
    equal = np.round(scores, 1)
    kept = theirs.batched_nms(*map(torch.tensor, (boxes, equal, groups)), 0.3)
    ours = ops.batched_nms(*map(norch.tensor, (boxes, equal, groups)), 0.3)
    assert sorted(ours.tolist()) == sorted(kept.tolist())
    assert equal[ours.numpy()].tolist() == equal[kept.numpy()].tolist()


@kernels
@pytest.mark.parametrize("fmt", ["cxcywhr", "xywhr", "xyxyxyxy"])
def test_overlaps_of_rotated_boxes(fmt):
    rng = np.random.default_rng(0)
    sets = [
        np.concatenate([rng.uniform(0, 6, (8, 2)), rng.uniform(1, 4, (8, 2)), rng.uniform(-180, 180, (8, 1))], 1)
        for _ in "ab"
    ]
    arrays = [theirs.box_convert(torch.tensor(s), "cxcywhr", fmt).numpy() for s in sets]
    both("box_iou", *arrays, fmt=fmt, differentiable=(), rtol=1e-5)
    both("box_iou", arrays[0], arrays[0], fmt=fmt, differentiable=(), rtol=1e-5)


def regions(images, k, seed, size=12.0, scale=1.0):
    """Boxes (k, 5): some beyond the edges, one upside down, one of no size, one where the pixels' edges are."""
    boxes = (random_boxes(k, seed, size) - 2) / scale
    boxes[0] = boxes[0][[2, 3, 0, 1]]
    boxes[1, 2:] = boxes[1, :2]
    boxes[2] = np.array([1.0, 2.0, 6.0, 7.0]) / scale
    boxes[3] = np.array([-30.0, -30.0, 40.0, 50.0]) / scale
    boxes[4] = np.array([60.0, 60.0, 70.0, 80.0]) / scale
    return np.concatenate([np.random.default_rng(seed).integers(0, images, (k, 1)), boxes], 1)


@kernels
@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("ratio", [-1, 0, 1, 2, 3])
@pytest.mark.parametrize("aligned", [False, True])
def test_roi_align(images, ratio, aligned):
    x = np.random.default_rng(0).standard_normal((images, 4, 9, 11))
    for size in (1, 2, (3, 5)):
        for scale in (1.0, 0.25):
            options = {"output_size": size, "spatial_scale": scale, "sampling_ratio": ratio, "aligned": aligned}
            both("roi_align", x, regions(images, 12, 1, scale=scale), differentiable=(0,), **options)
            single = x.astype(np.float32), regions(images, 12, 2, scale=scale).astype(np.float32)
            both("roi_align", *single, differentiable=(), rtol=2e-4, **options)


@kernels
@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("name", ["roi_pool", "ps_roi_pool", "ps_roi_align"])
def test_other_poolings(images, name):
    x = np.random.default_rng(0).standard_normal((images, 30, 9, 11))
    x = np.round(x, 1)  # with equal values
    for size in (1, (3, 5), (2, 3)):
        for scale in (1.0, 0.25):
            for extra in ({"sampling_ratio": 2}, {}) if name.endswith("align") else ({},):
                differentiable = () if name == "ps_roi_pool" else (0,)  # where torchvision's counts other pixels
                boxes = regions(images, 12, 1, scale=scale)
                options = {"output_size": size, "spatial_scale": scale, **extra}
                both(name, x, boxes, differentiable=differentiable, **options)
                both(name, x.astype(np.float32), boxes.astype(np.float32), differentiable=(), rtol=2e-4, **options)


def same_weights(left, right):
    assert list(right.state_dict()) == list(left.state_dict())
    left.double()
    right.double().load_state_dict({key: x.numpy() for key, x in left.state_dict().items()})
    return left, right


@pytest.mark.parametrize("extra", ["LastLevelMaxPool", "LastLevelP6P7", None])
def test_pyramids(extra):
    arrays = {f"m{i}": np.random.default_rng(i).standard_normal((2, 3 + i, s, s + 1)) for i, s in enumerate((8, 5, 2))}
    options = [] if extra != "LastLevelP6P7" else [5, 6]
    pyramids = []
    for module in (theirs, ops):
        block = extra and getattr(module.feature_pyramid_network, extra)(*options)
        pyramids.append(module.FeaturePyramidNetwork([3, 4, 5], 6, block))
    left, right = same_weights(*pyramids)
    a = left({name: torch.tensor(x) for name, x in arrays.items()})
    b = right({name: norch.tensor(x) for name, x in arrays.items()})
    assert list(a) == list(b)
    for name in a:
        np.testing.assert_allclose(value(b[name]), value(a[name]), rtol=1e-11, atol=1e-12)
    for out in (a, b):
        sum(x.square().sum() for x in out.values()).backward()
    mine = dict(right.named_parameters())
    for name, p in left.named_parameters():
        np.testing.assert_allclose(value(mine[name].grad), value(p.grad), rtol=1e-9, atol=1e-10)


@kernels
def test_pooling_of_pyramids():
    rng = np.random.default_rng(0)
    arrays = {str(i): rng.standard_normal((2, 3, s, s + 1)) for i, s in enumerate((32, 16, 8, 4))}
    sets = [random_boxes(30, seed, 100.0) for seed in (0, 1)]
    for names, size, ratio in ((list("0123"), 3, 2), (list("12"), (2, 3), -1), (list("03"), 2, 2), (["2"], 1, 2)):
        left, right = (m.MultiScaleRoIAlign(names, size, ratio, canonical_scale=40) for m in (theirs, ops))
        leaves = {n: torch.tensor(x, requires_grad=True) for n, x in arrays.items()}
        mine = {n: norch.tensor(x, requires_grad=True) for n, x in arrays.items()}
        a = left(leaves, [torch.tensor(s) for s in sets], [(120, 128), (128, 132)])
        b = right(mine, [norch.tensor(s) for s in sets], [(120, 128), (128, 132)])
        assert left.scales == right.scales
        np.testing.assert_allclose(value(b), value(a), rtol=1e-10, atol=1e-12)
        for out in (a, b):
            out.square().sum().backward()
        for n in names:
            np.testing.assert_allclose(value(mine[n].grad), value(leaves[n].grad), rtol=1e-9, atol=1e-11)
        assert repr(left) == repr(right)


@kernels
@pytest.mark.parametrize(
    ("groups", "parts", "options"),
    [
        (1, 1, {}),
        (2, 1, {"stride": 2, "padding": 1}),
        (1, 2, {"stride": (2, 1), "dilation": (1, 2)}),
        (2, 4, {"padding": 1}),
    ],
)
def test_deformable_convolution(groups, parts, options):
    rng = np.random.default_rng(0)
    x, weight, bias = rng.standard_normal((2, 4, 6, 7)), rng.standard_normal((6, 4 // groups, 3, 2)), rng.random(6)
    size = torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(weight), groups=groups, **options).shape[2:]
    offset, mask = 2 * rng.standard_normal((2, 12 * parts, *size)), rng.random((2, 6 * parts, *size))
    offset[:, :, 0] = np.round(offset[:, :, 0])  # where slopes change

    both("deform_conv2d", x, offset, weight, bias, rtol=1e-9, **options)
    masked = [[make(a) for a in (x, offset, weight, bias)] for make in (torch.tensor, norch.tensor)]
    masks = torch.tensor(mask, requires_grad=True), norch.tensor(mask, requires_grad=True)
    outs = [m.deform_conv2d(*t, mask=k, **options) for m, t, k in zip((theirs, ops), masked, masks)]
    np.testing.assert_allclose(value(outs[1]), value(outs[0]), rtol=1e-9, atol=1e-11)
    for out in outs:
        out.square().sum().backward()
    np.testing.assert_allclose(value(masks[1].grad), value(masks[0].grad), rtol=1e-9, atol=1e-10)
    modules = (m.DeformConv2d(4, 6, (3, 2), groups=groups, **options) for m in (theirs, ops))
    left, right = same_weights(*modules)
    assert repr(left) == repr(right)
    a, b = left(masked[0][0], masked[0][1]), right(masked[1][0], masked[1][1])
    np.testing.assert_allclose(value(b), value(a), rtol=1e-9, atol=1e-11)
