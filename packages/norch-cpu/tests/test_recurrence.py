"""recurrence and its gradient: one kernel a layer and direction, beside the steps that core takes without it."""

import itertools

import numpy as np
import pytest

import norch
from norch.ops.families import op_of
from norch.ops.nn.recurrence import _recurrence
from norch.ops.nn.recurrence_grad import recurrence_grad

FORWARD, BACKWARD = op_of(_recurrence), op_of(recurrence_grad)
MODES = {"RNN_TANH": 1, "RNN_RELU": 1, "GRU": 3, "LSTM": 4}
# steps, batch, inputs, hidden: one step, few rows, rows and units that are no whole vectors, a batch to share.
SIZES = [(1, 1, 3, 5), (1, 9, 4, 40), (3, 2, 5, 7), (6, 4, 3, 33), (5, 7, 3, 33), (4, 13, 70, 64), (9, 40, 8, 130)]


def drawn(mode, sizes, masked, dtype, bias=True):
    """The operands of recurrence."""
    steps, batch, inputs, hidden = sizes
    draw = np.random.default_rng(0)
    rows = MODES[mode] * hidden

    def x(*shape, scale=1.0):
        return norch.tensor(draw.standard_normal(shape) * scale, dtype=dtype)

    small = hidden**-0.5
    given = [x(steps, batch, inputs), x(batch, hidden), x(batch, hidden) if mode == "LSTM" else None]
    given += [x(rows, inputs, scale=small), x(rows, hidden, scale=small)]
    given += [x(rows, scale=small), x(rows, scale=small)] if bias else [None, None]
    mask = norch.tensor(draw.random((steps, batch, 1)) < 0.7) if masked else None
    return [*given, None, mask]


def compare(found, expected, dtype):
    exact = {"rtol": 1e-11, "atol": 1e-12} if dtype is norch.float64 else {"rtol": 1e-4, "atol": 1e-5}
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a.numpy(), b.numpy(), **exact)


@pytest.fixture(autouse=True)
def same_number_of_threads():
    before = norch.get_num_threads()
    yield
    norch.set_num_threads(before)


@norch.no_grad()  # a gradient that is itself recorded takes the steps
def check(mode, sizes, masked, reverse, dtype, bias=True, threads=(1,)):
    given = drawn(mode, sizes, masked, dtype, bias)
    expected = FORWARD.decompose(*given, mode, reverse, True)
    results_alone = 3 if mode == "LSTM" else 2
    for count in threads:
        norch.set_num_threads(count)
        results = FORWARD.call(*given, mode, reverse, True)
        if masked and len(results) > results_alone:  # the gates of steps that count for nothing may be anything
            for found in (results, expected):
                found[results_alone].masked_fill_(~given[8], 0.0)
        compare(results, expected, dtype)
        compare(FORWARD.call(*given, mode, reverse, False), results[:results_alone], dtype)

    draw = np.random.default_rng(1)
    states, last = (norch.tensor(draw.standard_normal(x.shape), dtype=dtype) for x in results[:2])
    input, hx, cx, w_ih, w_hh, *_, mask = given
    saved = [*results[3:], None, None] if mode == "LSTM" else [*results[2:], None, None]
    for g, needs in [((states, None), (True, True)), ((states, last), (False, True)), ((None, last), (True, False))]:
        g_c = last * 2 if mode == "LSTM" and needs[1] else None
        arguments = (
            *g,
            g_c,
            input,
            hx,
            cx,
            w_ih,
            w_hh,
            None,
            mask,
            results[0],
            *saved[:2],
            mode,
            reverse,
            bias,
            *needs,
        )
        expected = BACKWARD.decompose(*arguments)
        for count in threads:
            norch.set_num_threads(count)
            found = BACKWARD.call(*arguments)
            compare(*[f if isinstance(f, tuple) else (f,) for f in (found, expected)], dtype)


@pytest.mark.parametrize("mode", MODES)
def test_kernels_do_what_the_steps_do(mode):
    for sizes, masked, reverse in itertools.product(SIZES, (False, True), (False, True)):
        check(mode, sizes, masked, reverse, norch.float64, bias=sizes[1] != 7, threads=(1, 3))


@pytest.mark.parametrize("mode", MODES)
def test_single_precision(mode):
    for sizes in SIZES[1::2]:
        check(mode, sizes, False, False, norch.float32)


def test_how_many_threads_there_are_changes_no_bit():
    found = []
    for threads in (1, 2, 3):
        norch.set_num_threads(threads)
        given = drawn("LSTM", (6, 21, 40, 90), False, norch.float32)
        found.append([x.numpy() for x in FORWARD.call(*given, "LSTM", False, True)])
    for a, b in itertools.product(found[0], found[1:]):
        assert any(np.array_equal(a, x) for x in b)


def test_what_there_are_kernels_for():
    """Not for 16 bits, nor for projections: core takes the steps there."""
    given = drawn("LSTM", (2, 3, 4, 5), False, norch.float32)
    projected = [*given[:7], norch.zeros(5, 5), None]
    for operands, has_kernel in (
        (given, True),
        ([None if x is None else x.bfloat16() for x in given], False),
        (projected, False),
    ):
        key = (*[None if x is None else x.spec for x in operands], "LSTM", False, False)
        assert (FORWARD.plans[key].kernel is not None) is has_kernel
