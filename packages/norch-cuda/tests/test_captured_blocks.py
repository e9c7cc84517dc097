"""Blocks of a transformer under autocast, captured: fewer passes over memory, the bits of the step as it is."""

from __future__ import annotations

import numpy as np
import pytest

import norch

pytestmark = pytest.mark.usefixtures("cuda")

RNG = np.random.default_rng(5)


def leaf(*shape):
    return norch.tensor(RNG.uniform(-0.1, 0.1, shape).astype(np.float32), device="cuda").requires_grad_()


class Blocks:
    """Two blocks of attention in `heads` heads, with residual sums around norms, and a loss by class."""

    def __init__(self, width, heads, classes, dtype, affine=True):
        self.width, self.heads, self.classes, self.dtype = width, heads, classes, dtype
        self.norms = [[leaf(width), leaf(width)] if affine else [None, None] for _ in range(3)]
        self.blocks = [(leaf(3 * width, width), leaf(3 * width), leaf(width, width), leaf(width)) for _ in range(2)]
        self.last = leaf(classes, width)
        self.params = [p for both in self.norms for p in both if p is not None]
        self.params += [p for block in self.blocks for p in block] + [self.last]

    def loss(self, x, target):
        b, t, c = x.shape
        for norm, (weight, bias, out_weight, out_bias) in zip(self.norms, self.blocks, strict=False):
            parts = norch.linear(norch.layer_norm(x, (c,), *norm), weight, bias).split(c, 2)
            parts = [p.view(b, t, self.heads, c // self.heads).transpose(1, 2) for p in parts]
            y = norch.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).contiguous().view(b, t, c)
            x = x + norch.linear(y, out_weight, out_bias)
        scores = norch.linear(norch.layer_norm(x, (c,), *self.norms[2]), self.last)
        return norch.cross_entropy(scores.view(-1, self.classes), target.view(-1), ignore_index=-1)

    def __call__(self, x, target):
        with norch.autocast("cuda", self.dtype):
            loss = self.loss(x, target)
        loss.backward()
        found = [loss.detach(), *[p.grad for p in self.params]]
        for p in self.params:
            p.grad = None
        return found


def bits(tensors):
    return [x.cpu().numpy().tobytes() for x in tensors]


@pytest.mark.parametrize("dtype", [norch.bfloat16, norch.float16], ids=str)
@pytest.mark.parametrize(
    ("width", "heads", "classes", "affine"),
    [(768, 12, 1000, True), (64, 2, 513, True), (192, 3, 5003, False), (2048, 16, 600, True), (66, 3, 600, True)],
)
def test_the_same_bits(width, heads, classes, affine, dtype):
    blocks = Blocks(width, heads, classes, dtype, affine)
    captured = norch.capture(blocks)
    for _ in range(6):
        x = norch.tensor(RNG.uniform(-2, 2, (2, 40, width)).astype(np.float32), device="cuda")
        target = norch.tensor(RNG.integers(-1, classes, (2, 40)), device="cuda")
        assert bits(captured(x, target)) == bits(blocks(x, target))
    assert captured.report().replayed == 3
    ops = [call.op for entry in captured.entries.values() for program, _ in entry.programs for call in program.calls]
    assert ops.count("residual_norm") == 3
    assert "casts" in ops
    assert ops.count("residual_norm_grad") == (3 if affine else 0)


class Rectified:
    """batch_norm and relu of images with channels that vary fastest, twice; `in_place`: as nn.ReLU(inplace=True)."""

    def __init__(self, channels, affine, in_place):
        self.params = [leaf(channels) for _ in range(5 if affine else 1)]
        self.pairs = [self.params[1:3], self.params[3:5]] if affine else [(None, None)] * 2
        self.relu = norch.relu_ if in_place else norch.relu

    def __call__(self, x):
        x = x * self.params[0].to(x.dtype).reshape(-1, 1, 1)
        for weight, bias in self.pairs:
            x = self.relu(norch.batch_norm(x, None, None, weight, bias, training=True)) * 1.5
        (x * x).sum().backward()
        found = [x.detach(), *[p.grad for p in self.params]]
        for p in self.params:
            p.grad = None
        return found


@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16, norch.float16], ids=str)
@pytest.mark.parametrize(
    ("shape", "affine", "in_place"),
    [((40, 24, 13, 11), True, False), ((64, 64, 8, 8), True, True), ((33, 8, 25, 25), False, True)],
)
def test_relus_are_part_of_the_batch_norms_before_them(shape, affine, in_place, dtype):
    step = Rectified(shape[1], affine, in_place)
    captured = norch.capture(step)
    for _ in range(6):
        x = norch.tensor(RNG.standard_normal(shape).astype(np.float32), device="cuda").to(dtype)
        x = x.contiguous(memory_format=norch.channels_last)
        assert bits(captured(x)) == bits(step(x))
    ops = [call.op for entry in captured.entries.values() for program, _ in entry.programs for call in program.calls]
    assert ops.count("batch_norm_relu") == ops.count("batch_norm_relu_grad") == 2


def test_a_loss_under_autocast_is_that_of_float32(cuda):
    scores = norch.tensor(RNG.uniform(-9, 9, (300, 3001)), dtype=norch.bfloat16, device=cuda).requires_grad_()
    target = norch.tensor(RNG.integers(-1, 3001, 300), device=cuda)
    wide = scores.detach().double().cpu().requires_grad_()
    with norch.autocast(cuda, norch.bfloat16):
        loss = norch.cross_entropy(scores, target, ignore_index=-1)
    expected = norch.cross_entropy(wide, target.cpu(), ignore_index=-1)
    assert loss.dtype is norch.float32
    assert abs(loss.item() - expected.item()) < 2e-6 * expected.item()
    loss.backward()
    expected.backward()
    assert scores.grad.dtype is norch.bfloat16
    error = (scores.grad.double().cpu() - wide.grad).abs() / wide.grad.abs().clamp(min=1e-30)
    assert error.amax().item() < 2**-8
    assert norch.allclose(scores.grad.double().cpu(), wide.grad, rtol=2**-8, atol=1e-30)


def test_the_loss_of_many_classes_keeps_no_log_softmax(cuda):
    scores = norch.zeros(64, 50304, dtype=norch.bfloat16, device=cuda).requires_grad_()
    target = norch.zeros(64, dtype=norch.int64, device=cuda)
    with norch.autocast(cuda, norch.bfloat16):
        norch.cross_entropy(scores, target).backward()
        norch.cuda.synchronize()
        scores.grad = None
        before = norch.cuda.memory_allocated()
        like = norch.empty_like(scores.detach())
        block = norch.cuda.memory_allocated() - before  # of a gradient of the scores
        del like
        norch.cuda.reset_peak_memory_stats()
        loss = norch.cross_entropy(scores, target)
    assert norch.cuda.max_memory_allocated() - before < 1 << 16
    loss.backward()
    assert norch.cuda.max_memory_allocated() - before < block + (1 << 16)
    assert block < scores.numel() * 4


def test_a_check_of_a_captured_step_needs_no_more_memory_than_the_step(cuda):
    weights = [leaf(4096, 4096) for _ in range(3)]

    def step(x):
        for w in weights:
            x = norch.linear(x, w).tanh()
        x.sum().backward()
        for w in weights:
            w.grad = None
        return x.detach().sum()

    x = norch.zeros(16384, 4096, device=cuda)
    for _ in range(2):
        step(x)
    norch.cuda.synchronize()
    norch.cuda.reset_peak_memory_stats()
    step(x)
    eager = norch.cuda.max_memory_allocated()
    captured = norch.capture(step)
    norch.cuda.reset_peak_memory_stats()
    found = [captured(x).item() for _ in range(24)]  # the sixteenth replay is looked at again
    assert len(set(found)) == 1
    assert captured.report().replayed >= 19
    assert norch.cuda.max_memory_allocated() < eager * 1.1
