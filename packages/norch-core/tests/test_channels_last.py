"""Images whose channels lie next to each other: what is asked for them, which results keep it, and that no number
changes."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.device import CPU
from norch.dispatch.plan import forget_plans
from norch.spec import Spec, elementwise_layout

LAST = norch.channels_last
RNG = np.random.default_rng(3)


def images(*shape, last=True):
    x = norch.tensor(RNG.standard_normal(shape), dtype=norch.float32)
    return x.to(memory_format=LAST) if last else x


def is_last(x):
    return x.is_contiguous(memory_format=LAST) and not x.is_contiguous()


def test_to_and_contiguous_as_pytorch_has_them():
    x = images(2, 3, 4, 5)
    assert x.stride() == (60, 1, 15, 3)
    assert x.to(memory_format=LAST) is x
    assert x.to(memory_format=norch.preserve_format) is x
    assert x.to(norch.float64, memory_format=norch.preserve_format).stride() == x.stride()
    assert x.to(memory_format=norch.contiguous_format).is_contiguous()
    # One channel fits both orders: `to` writes the strides down, `contiguous` finds nothing to do.
    one = norch.ones(2, 1, 3, 3)
    assert one.to(memory_format=LAST).stride() == (9, 1, 3, 1)
    assert one.contiguous(memory_format=LAST) is one
    volume = norch.ones(2, 3, 4, 5, 6).to(memory_format=norch.channels_last_3d)
    assert volume.stride() == (360, 1, 90, 18, 3)


@pytest.mark.parametrize("like", [norch.empty_like, norch.zeros_like, norch.ones_like, norch.clone])
def test_new_tensors_lie_as_the_old_one(like):
    x = images(2, 3, 4, 5)
    assert like(x).stride() == like(x, memory_format=norch.preserve_format).stride() == x.stride()
    assert like(x, memory_format=norch.contiguous_format).is_contiguous()
    assert like(x.contiguous(), memory_format=LAST).stride() == x.stride()
    assert norch.full_like(x, 2.0).stride() == norch.zeros_like(x, dtype=norch.int64).stride() == x.stride()
    assert norch.zeros_like(x[:, :2]).stride() == (40, 1, 10, 2)  # without the gaps


@pytest.mark.parametrize("like", [norch.rand_like, norch.randn_like, lambda x, **k: norch.randint_like(x, 50, **k)])
def test_draws_lie_as_the_tensor_that_they_are_like(like):
    x = images(2, 3, 4, 5)
    assert like(x).stride() == like(x, dtype=norch.float64).stride() == x.stride()
    assert like(x, memory_format=norch.contiguous_format).is_contiguous()
    assert like(x[:, :2]).stride() == (40, 1, 10, 2)
    norch.manual_seed(3)
    drawn = like(x)
    norch.manual_seed(3)
    assert drawn.tolist() == like(x.contiguous()).tolist()  # numbers are those of places, however they lie


@pytest.mark.parametrize(
    "index",
    [norch.tensor([1, 0, 1]), [1, 0], norch.tensor([True, False]), norch.tensor([[0, 1], [1, 1]])],
    ids=["indices", "list", "mask", "matrix"],
)
def test_chosen_images_lie_as_the_others(index):
    x = images(2, 3, 4, 5).requires_grad_()
    found, expected = x[index], x.detach().contiguous()[index]
    assert found.tolist() == expected.tolist()
    assert found.stride()[-3:] == (1, 15, 3)
    found.square().sum().backward()
    rows = x.detach().contiguous().requires_grad_()
    rows[index].square().sum().backward()
    assert x.grad.tolist() == rows.grad.tolist()


LAYOUTS = {
    "of the first where two differ": ((2, 3), [((2, 3), (1, 2)), ((2, 3), (3, 1))], (1, 2)),
    "rows first": ((2, 3), [((2, 3), (3, 1)), ((2, 3), (1, 2))], None),
    "without gaps": ((2, 3, 4), [((2, 3, 4), (1, 4, 24))], (1, 2, 6)),
    "a bias for each channel": ((2, 3, 4, 4), [((2, 3, 4, 4), (48, 1, 12, 3)), ((3, 1, 1), (1, 1, 1))], (48, 1, 12, 3)),
    "channels-last of one row": ((2, 3, 1, 4), [((2, 3, 1, 4), (12, 1, 12, 3))], (12, 1, 12, 3)),
    "expanded": ((2, 3), [((2, 3), (0, 1))], None),
}


@pytest.mark.parametrize(("shape", "operands", "expected"), LAYOUTS.values(), ids=LAYOUTS)
def test_the_order_of_dims_of_elementwise_results(shape, operands, expected):
    specs = [Spec(size, strides, norch.float32, CPU) for size, strides in operands]
    assert elementwise_layout(shape, specs) == expected


def _weight(*shape):
    return norch.tensor(RNG.standard_normal(shape), dtype=norch.float32)


F = norch
W, B, DEPTHWISE = _weight(4, 6, 3, 3), _weight(4), _weight(6, 1, 3, 3)
OPS = {
    "conv2d": lambda x: F.conv2d(x, W, B, padding=1),
    "strided": lambda x: F.conv2d(x, W, B, stride=2),
    "dilated": lambda x: F.conv2d(x, W, None, dilation=2),
    "pointwise": lambda x: F.conv2d(x, W[:, :, :1, :1]),
    "groups": lambda x: F.conv2d(x, W[:, :3], B, groups=2, padding=(1, 0)),
    "depthwise": lambda x: F.conv2d(x, DEPTHWISE, None, (2, 1), 1, groups=6),
    "depthwise, dilated": lambda x: F.conv2d(x, DEPTHWISE, x.new_ones(6), dilation=(1, 2), groups=6),
    "transposed": lambda x: F.conv_transpose2d(x, W.transpose(0, 1), B, 2, 1, 1),
    "max_pool2d": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max_pool2d, dilated": lambda x: F.max_pool2d(x, (2, 3), 1, 1, 2, True),
    "max_pool2d, large": lambda x: F.max_pool2d(x, 5, 1, 2),
    "max_pool2d, apart": lambda x: F.max_pool2d(x, 3, (4, 3), 1, (2, 1)),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 2, 1, True, False),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (2, 3)),
    "adaptive, uneven": lambda x: F.adaptive_avg_pool2d(x, (3, 5)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, x.new_ones(6), x.new_ones(6), True),
    "batch_norm, running": lambda x: F.batch_norm(x, x.new_zeros(6), x.new_ones(6)),
    "group_norm": lambda x: F.group_norm(x, 3),
    "cat": lambda x: F.cat([x, x * 2], 1),
    "cat of rows": lambda x: F.cat([x, x * 2], 2),
    "pad": lambda x: F.pad(x, (1, 2, 0, 1)),
    "pad, reflected": lambda x: F.pad(x, (1, 2, 2, 1), "reflect"),
    "pad, replicated": lambda x: F.pad(x, (3, 1, 0, 2), "replicate"),
    "pixel_shuffle": lambda x: F.pixel_shuffle(F.cat([x, x[:, :2]], 1), 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(F.pad(x, (0, 0, 0, 1)), 3),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 3),
    "flip": lambda x: x.flip(1, 3),
    "relu of a part": lambda x: x[:, 1:5].relu(),
    "dtype": lambda x: x.to(norch.float64),
}


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_results_keep_their_channels_last(op):
    x = images(2, 6, 8, 9).requires_grad_()
    rows = x.detach().contiguous().requires_grad_()
    out, expected = op(x), op(rows)
    assert is_last(out)
    assert expected.is_contiguous()
    norch.testing.assert_close(out.contiguous(), expected, rtol=1e-5, atol=1e-5)
    g = norch.randn(*out.shape, dtype=out.dtype)
    for given in (g, g.to(memory_format=LAST)):
        x.grad = rows.grad = None
        op(x).backward(given)
        op(rows).backward(g)
        norch.testing.assert_close(x.grad.contiguous(), rows.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [norch.float64, norch.float16, norch.bfloat16], ids=str)
@pytest.mark.parametrize("op", ["conv2d", "max_pool2d", "avg_pool2d"])
def test_no_number_changes(op, dtype):
    """Convolution and pooling add in one order whatever the layout."""
    x = images(2, 6, 8, 9).to(dtype)
    calls = {
        "conv2d": lambda x: F.conv2d(x, W.to(dtype), padding=1),
        "max_pool2d": lambda x: F.max_pool2d(x, 3, 2, 1),
        "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 2, 1),
    }
    assert norch.equal(calls[op](x), calls[op](x.contiguous()))


def test_the_weight_alone_makes_a_result_channels_last():
    x = images(2, 6, 8, 9, last=False)
    weight = W.to(memory_format=LAST).requires_grad_()
    out = norch.conv2d(x, weight)
    assert is_last(out)
    assert norch.equal(out, norch.conv2d(x, W))
    assert not is_last(norch.cat([x, x.to(memory_format=LAST)]))  # all of them have to be


def test_gradients_of_weights_lie_as_the_weights():
    weight = W.to(memory_format=LAST).requires_grad_()
    norch.conv2d(images(2, 6, 8, 9), weight).relu().sum().backward()
    assert is_last(weight.grad)


def test_permuted_sequences_are_no_images():
    x = norch.randn(2, 9, 6).transpose(1, 2)
    assert norch.conv1d(x, W[:, :, 0]).is_contiguous()
    assert norch.conv_transpose1d(x, W[:, :, 0].transpose(0, 1)).is_contiguous()


def test_max_pooling_finds_nan_and_the_first_of_equals():
    x = images(1, 20, 5, 5).round()
    x[0, 3, 2, 2] = norch.nan
    x[0, 4] = -norch.inf
    results = []
    for y in (x, x.contiguous()):
        y = y.detach().requires_grad_()
        out = norch.max_pool2d(y, 3, 1, 1)
        out.backward(norch.arange(float(out.numel())).reshape(out.shape))
        results.append((out, y.grad))
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


class Asked:
    """The CPU's backend, which says that it knows channels-last results of `known` only."""

    def __init__(self, monkeypatch, known):
        self.outputs = []
        backend = CPU.backend
        compile_ = backend.compile

        def compile(op, operands, attrs):
            self.outputs.append((op, operands[0]))
            return compile_(op, operands, attrs)

        monkeypatch.setattr(backend, "compile", compile, raising=False)
        monkeypatch.setattr(backend, "channels_last", frozenset(known), raising=False)
        forget_plans()

    def of(self, name):
        return [Spec(o.shape, o.strides, o.dtype, CPU) for op, o in self.outputs if op == name]


@pytest.fixture
def asked(monkeypatch):
    yield lambda known: Asked(monkeypatch, known)
    monkeypatch.undo()
    forget_plans()


@pytest.mark.parametrize("name", ["conv2d", "depthwise", "max_pool2d", "avg_pool2d", "cat", "pad"])
def test_a_backend_that_knows_rows_only_is_asked_for_rows(asked, name):
    """That of a plug-in of contract 1.1."""
    seen = asked(())
    x = images(2, 6, 8, 9).requires_grad_()
    out = OPS[name](x)
    assert is_last(out)
    out.sum().backward()
    rows = OPS[name](x.detach().contiguous())
    norch.testing.assert_close(out.detach().contiguous(), rows, rtol=1e-5, atol=1e-5)
    kinds = (
        "conv2d",
        "conv2d_input_grad",
        "max_pool2d",
        "max_pool2d_grad",
        "sum_pool2d",
        "sum_pool2d_grad",
        "cat",
        "pad",
    )
    assert all(spec.is_contiguous for kind in kinds for spec in seen.of(kind))


def test_a_backend_that_knows_them_is_asked_for_them(asked):
    seen = asked({"conv2d"})
    norch.conv2d(images(2, 6, 8, 9), W)
    assert not seen.of("conv2d")[0].is_contiguous


def test_batch_norm_of_channels_last_is_one_of_rows(asked):
    """So that every backend computes it as it lies."""
    seen = asked(())
    out = norch.batch_norm(images(2, 6, 8, 9), None, None, training=True)
    assert tuple(seen.of("batch_norm")[0].shape) == (144, 6)
    assert is_last(out)


def test_strides_beside_pytorch():
    torch = pytest.importorskip("torch")
    data = RNG.standard_normal((2, 6, 8, 9)).astype(np.float32)
    weight, bias = RNG.standard_normal((4, 6, 3, 3)).astype(np.float32), np.ones(6, np.float32)

    def strides(t, f):
        x = t.tensor(data).to(memory_format=t.channels_last)
        row, w, b = t.tensor(data), t.tensor(weight), t.tensor(bias)
        return [
            out.stride()
            for out in (
                x + 1, x + row, row + x, x * b[:, None, None], b[:, None, None] - x, x > row, x[:, ::2] * 2, x.mT.exp(),
                x[..., 1:].clone(), t.zeros_like(x[:, :, ::2]), t.where(x > 0, row, x), f.conv2d(x, w),
                f.conv2d(row, w.to(memory_format=t.channels_last)), f.conv2d(x, w[:, :, :1, :1]), f.max_pool2d(x, 2),
                f.avg_pool2d(x, 3, 1, 1), f.adaptive_avg_pool2d(x, (3, 4)), f.pad(x, (1, 1)), t.cat([x, x], 1),
                t.cat([x, row], 1), x.to(t.float64), x.flatten(1), x.mean((2, 3)), x.sum(1, keepdim=True),
                x.flip(3), row.flip(1), row.mT.flip(0), x.mT.flip(2),
                f.conv1d(row[:, 0].transpose(1, 2), t.ones(2, 9, 1)), f.pixel_shuffle(t.cat([x, x[:, :2]], 1), 2),
            )
        ]  # fmt: skip

    assert strides(norch, norch) == strides(torch, torch.nn.functional)


def test_a_format_for_other_dims_is_none_that_a_tensor_has():
    assert not norch.zeros(2, 3, 4).is_contiguous(memory_format=norch.channels_last)
    assert not norch.zeros(1, 2, 3, 4, 5).is_contiguous(memory_format=LAST)
    with pytest.raises(ValueError, match="memory_format must be one of"):
        norch.zeros(2).is_contiguous(memory_format="last")
