"""Ops of `norch.library` in captured steps: where their Python reads values, programs run it."""

import ctypes

import numpy as np
import pytest
from capture_harness import numbers, same_bits

import norch


@norch.library.custom_op("capture_tests::grouped", mutates_args=())
def grouped(x, weight, ends):
    out = norch.zeros(x.shape[0], weight.shape[2], dtype=x.dtype, device=x.device)
    start = 0
    for i, end in enumerate(ends.tolist()):
        if end > start:
            out[start:end] = x[start:end] @ weight[i]
        start = end
    return out


@norch.library.custom_op("capture_tests::grouped_backward", mutates_args=())
def grouped_backward(x, weight, ends, grad):
    of_x, of_weight = norch.zeros_like(x), norch.zeros_like(weight)
    start = 0
    for i, end in enumerate(ends.tolist()):
        if end > start:
            of_x[start:end] = grad[start:end] @ weight[i].T
            of_weight[i] = x[start:end].T @ grad[start:end]
        start = end
    return of_x, of_weight


def save(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def backward(ctx, grad):
    return (*norch.ops.capture_tests.grouped_backward(*ctx.saved_tensors, grad), None)


norch.library.register_autograd("capture_tests::grouped", backward, setup_context=save)


def experts(x, router, weight):
    """Each row goes to one expert, which its values choose."""
    chosen = (x @ router).argmax(1)
    order = chosen.argsort()
    ends = (chosen[:, None] == norch.arange(weight.shape[0], device=x.device)).sum(0).cumsum(0)
    out = norch.ops.capture_tests.grouped(x[order], weight, ends)
    return norch.zeros_like(out).index_copy(0, order, out)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_rows_that_go_to_experts(fullgraph, device):
    def make():
        router = norch.tensor(numbers(90, 6, 4), device=device)
        weight = norch.tensor(numbers(91, 4, 6, 6), device=device, requires_grad=True)

        def step(x):
            weight.grad = None
            loss = (experts(x, router, weight) ** 2).mean()
            loss.backward()
            with norch.no_grad():
                weight.sub_(weight.grad * 0.1)
            return loss.detach()

        return step, lambda i: (norch.tensor(numbers(i, 10, 6), device=device),), lambda: weight

    norch.ops.capture_tests.grouped.is_opaque = norch.ops.capture_tests.grouped_backward.is_opaque = False
    same_bits(make, calls=12, replayed=7, fullgraph=fullgraph)
    same_bits(make, calls=12, replayed=9, fullgraph=fullgraph)


def test_results_in_any_layout_and_none(device):
    @norch.library.custom_op("capture_tests::parts", mutates_args=())
    def parts(x, names, scale=2.0):
        assert names == ["a", {"b": 1}]
        return [(x * (scale if x.sum().item() > 0 else -1)).T, None, x[:0]]

    def step(x):
        by, none, empty = norch.ops.capture_tests.parts(x, ["a", {"b": 1}])
        return by + 1, none, empty

    run = same_bits(lambda: (step, lambda i: (norch.tensor(numbers(i, 3, 4), device=device),)), 9, 5)
    assert "capture_tests::parts" in str(run.report())


def test_kernels_of_others_by_addresses(device):
    @norch.library.custom_op("capture_tests::by_address", mutates_args=())
    def by_address(x):
        out = x.clone()
        at = out.data_ptr()
        if out.device.type == "cpu":
            for i in range(3):
                ctypes.c_float.from_address(at + 4 * i).value += 1
        return out

    run = same_bits(
        lambda: (lambda x: by_address(x * 2) * 3, lambda i: (norch.tensor(numbers(i, 3), device=device),)), 9, 5
    )
    assert "capture_tests::by_address" in str(run.report())


def test_ops_that_only_compute_are_kernels_of_the_program(device):
    @norch.library.custom_op("capture_tests::twice", mutates_args=())
    def twice(x):
        return x * 2

    run = same_bits(lambda: (lambda x: twice(x) + 1, lambda i: (norch.tensor(numbers(i, 3), device=device),)))
    assert "capture_tests::twice" not in str(run.report())


def test_ops_that_change_an_argument_draw_or_raise(device):
    @norch.library.custom_op("capture_tests::changing", mutates_args=("x",))
    def changing(x):
        x.add_(float(x.sum().item()))
        return x + 1

    @norch.library.custom_op("capture_tests::drawing", mutates_args=())
    def drawing(x):
        return x + norch.rand(3, device=x.device) * (x.sum().item() > -1e9)

    @norch.library.custom_op("capture_tests::raising", mutates_args=())
    def raising(x):
        if x.sum().item() > 5:
            raise KeyError("too large")
        return x * 2

    def feed(i):
        return (norch.tensor(numbers(i, 3), device=device),)

    assert "values are read" in str(same_bits(lambda: (lambda x: changing(x * 2), feed), 8, 0).report())
    assert "draws random numbers" in str(same_bits(lambda: (drawing, feed), 8, 0).report())
    run = norch.capture(lambda x: raising(x) + 1)
    for _ in range(7):
        assert run(norch.ones(3, device=device)).tolist() == [3, 3, 3]
    assert run.report().replayed == 3
    with pytest.raises(KeyError, match="too large"):
        run(norch.full((3,), 9.0, device=device))
    assert run(norch.ones(3, device=device)).tolist() == [3, 3, 3]


def test_numbers_of_an_op_are_those_of_the_call(device):
    @norch.library.custom_op("capture_tests::scaled", mutates_args=())
    def scaled(x, by):
        return x * by if x.sum().item() > -1e9 else x

    run = norch.capture(lambda x, by: norch.ops.capture_tests.scaled(x, by) + 1)
    for by in [0.5] * 6 + [2.5] * 6 + [0.5, 2.5, 1.5]:
        assert np.allclose(run(norch.ones(3, device=device), by).tolist(), 1 + by)
