"""What autocast makes of a transformer's blocks, captured: fewer passes over memory, the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from capture_harness import same_bits
from native_backend import NativeBackend

import norch
from norch.backend.registry import register, unregister
from norch.capturing.recording import recorder_here
from norch.dispatch.call import run


class Hidden(NativeBackend):
    """What its kernels compute on the CPU is no part of a recording."""

    def compile(self, op, operands, attrs):
        kernel = super().compile(op, operands, attrs)

        def call(*args):
            recorder = recorder_here()
            if recorder is not None:
                recorder.hidden += 1
            try:
                kernel(*args)
            finally:
                if recorder is not None:
                    recorder.hidden -= 1

        return None if kernel is None else call

    def compute(self, entry, values):
        return run(entry, *values)


@pytest.fixture(autouse=True, scope="module")
def native():
    backend = Hidden()
    register(backend)
    yield backend
    unregister("native")


class Blocks:
    """x + linear(layer_norm(x)), twice, then a loss by class; a gradient step. `affine`: whether norms have weights."""

    def __init__(self, affine=True, dtype=norch.bfloat16, heads=0):
        rng = np.random.default_rng(0)
        self.dtype, self.heads = dtype, heads

        def leaf(*shape):
            return norch.tensor(rng.uniform(-1, 1, shape).astype(np.float32), device="native").requires_grad_()

        width = 8
        self.norms = [[leaf(width), leaf(width)] if affine else [None, None] for _ in range(3)]
        self.weights = [leaf(3 * width if heads else width, width) for _ in range(2)]
        self.outputs = [leaf(width, width) for _ in range(2)] if heads else []
        self.last = leaf(600, width)
        norms = [p for both in self.norms for p in both if p is not None]
        self.params = [*norms, *self.weights, *self.outputs, self.last]

    def block(self, x, i):
        y = norch.linear(norch.layer_norm(x, (8,), *self.norms[i]), self.weights[i])
        if not self.heads:
            return x + y
        parts = [p.reshape(2, 3, self.heads, -1).transpose(1, 2) for p in y.split(8, 2)]
        y = norch.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).reshape(2, 3, 8)
        return x + norch.linear(y, self.outputs[i])

    def __call__(self, x, target):
        with norch.autocast("native", self.dtype):
            x = self.block(self.block(x, 0), 1)
            scores = norch.linear(norch.layer_norm(x, (8,), *self.norms[2]), self.last)
            loss = norch.cross_entropy(scores.reshape(-1, 600), target)
        loss.backward()
        with norch.no_grad():
            for p in self.params:
                p -= p.grad * 0.1
                p.grad = None
        return loss.detach()


def feed(i):
    rng = np.random.default_rng(i)
    x = norch.tensor(rng.uniform(-1, 1, (2, 3, 8)).astype(np.float32), device="native")
    return x, norch.tensor(rng.integers(0, 600, 6), device="native")


def ops_of(**options):
    def make():
        blocks = Blocks(**options)
        return blocks, feed, lambda: [p.detach() for p in blocks.params]

    captured = same_bits(make)
    ((program, _),) = [pair for entry in captured.entries.values() for pair in entry.programs]
    return [call.op for call in program.calls], program


def ops_of_step(make, feed):
    def model():
        step = make()
        return step, feed, list

    captured = same_bits(model)
    return [call.op for entry in captured.entries.values() for program, _ in entry.programs for call in program.calls]


@pytest.mark.parametrize("dtype", [norch.bfloat16, norch.float16], ids=str)
def test_casts_and_residual_sums_are_part_of_the_norms(dtype):
    ops, program = ops_of(dtype=dtype)
    assert not {"layer_norm", "layer_norm_grad"} & set(ops)
    assert ops.count("residual_norm") == ops.count("residual_norm_grad") == 3
    given = [call.attrs["given"][1] for call in program.calls if call.op == "residual_norm"]
    assert given == [False, True, True]  # the first is of what the step gets


def test_norms_without_weights():
    ops, _ = ops_of(affine=False)
    assert ops.count("residual_norm") == 3


class Rectified:
    """Two batch_norms, each with a relu behind it, of images; `last`: with channels that vary fastest."""

    def __init__(self, last, in_place, also_read=False):
        self.last, self.in_place, self.also_read = last, in_place, also_read
        values = np.random.default_rng(0).uniform(0.5, 1.5, (6, 4)).astype(np.float32)
        self.params = [norch.tensor(v, device="native").requires_grad_() for v in values]

    def __call__(self, x):
        *pairs, scale = [self.params[0:2], self.params[2:4], self.params[4]]
        x = x.contiguous(memory_format=norch.channels_last if self.last else norch.contiguous_format)
        x = x * scale.reshape(4, 1, 1)
        for weight, bias in pairs:
            x = norch.batch_norm(x, None, None, weight, bias - 1, training=True)
            y = norch.relu_(x) if self.in_place else norch.relu(x)
            x = y + x if self.also_read else y * 1.5
        loss = (x * x).sum()
        loss.backward()
        found = [loss.detach(), *[p.grad for p in self.params[:5]]]
        for p in self.params:
            p.grad = None
        return found


def images(i):
    x = np.random.default_rng(i).standard_normal((3, 4, 5, 2)).astype(np.float32)
    return (norch.tensor(x, device="native"),)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_relus_are_part_of_the_batch_norms_before_them(last, in_place):
    ops = ops_of_step(lambda: Rectified(last, in_place), images)
    assert ops.count("batch_norm_relu") == ops.count("batch_norm_relu_grad") == 2
    assert not {"batch_norm", "batch_norm_grad", "relu", "relu_grad"} & set(ops)


def test_what_is_before_a_relu_is_made_where_something_else_reads_it():
    ops = ops_of_step(lambda: Rectified(True, False, also_read=True), images)
    assert ops.count("batch_norm") == 2
    assert "batch_norm_relu" not in ops


def test_the_gradients_of_the_parts_of_a_split_are_written_in_their_places():
    ops, program = ops_of(heads=2)
    grads = [call for call in program.calls if call.op == "scaled_dot_product_attention_grad"]
    assert len(grads) == 2
    for call in grads:
        assert {operand.strides[-2] for operand in call.operands[:3]} == {24}
        assert len({int(place) for place in call.arguments[:6:2]}) == 1


def test_the_gradient_of_a_loss_by_class_takes_the_place_of_the_scores():
    _, program = ops_of()
    (call,) = [call for call in program.calls if call.op == "cross_entropy_rows_grad"]
    assert call.arguments[0:2] == call.arguments[4:6]
