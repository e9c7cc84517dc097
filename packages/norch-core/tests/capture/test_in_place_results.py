"""Results that take the place of operands in a captured step."""

import numpy as np
import pytest

import norch
from norch.backend import Operand, Place
from norch.capturing.calls import Call
from norch.capturing.in_place import in_place
from norch.device import CPU
from norch.dtype import float32, float64

TEN = Operand(float32, (10,), (1,))
BYTES = dict.fromkeys(range(2, 9), 40)


def chain(*calls, operand=TEN):
    """Calls on 10 numbers, as (op, out, x, ...). Place 1 is an argument, 9 a result, the others are temporaries."""
    return [
        Call(op, (operand,) * len(places), {}, len, tuple([x for p in places for x in (Place(p), 0)]), CPU, "here")
        for op, *places in calls
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([("neg", 2, 1), ("exp", 3, 2), ("neg", 9, 3)], [("neg", 2, 1), ("exp", 2, 2), ("neg", 9, 2)]),
        ([("neg", 2, 1), ("mul", 3, 2, 2), ("neg", 9, 3)], [("neg", 2, 1), ("mul", 2, 2, 2), ("neg", 9, 2)]),
        ([("neg", 2, 1), ("mul", 3, 1, 2), ("neg", 9, 3)], [("neg", 2, 1), ("mul", 2, 1, 2), ("neg", 9, 2)]),
        ([("neg", 2, 1), ("relu", 3, 2), ("exp", 4, 3), ("neg", 9, 4)],
         [("neg", 2, 1), ("relu", 2, 2), ("exp", 2, 2), ("neg", 9, 2)]),
        # a result of two calls
        ([("neg", 2, 1), ("exp", 3, 2), ("neg", 3, 3), ("neg", 9, 3)],
         [("neg", 2, 1), ("exp", 2, 2), ("neg", 2, 2), ("neg", 9, 2)]),
    ],
)  # fmt: skip
def test_a_result_takes_the_place_of_what_is_not_read_again(before, after):
    assert in_place(chain(*before), BYTES) == chain(*after)


@pytest.mark.parametrize(
    "calls",
    [
        [("neg", 2, 1), ("exp", 3, 2), ("mul", 9, 3, 2)],  # read again
        [("neg", 2, 1), ("exp", 9, 2)],  # a result
        [("exp", 3, 1), ("neg", 9, 3)],  # an argument
        [("neg", 2, 1), ("softmax", 3, 2), ("neg", 9, 3)],  # not element by element
        [("neg", 3, 1), ("neg", 2, 3), ("exp", 3, 2), ("mul", 9, 3, 2)],
    ],
)
def test_results_that_keep_their_place(calls):
    assert in_place(chain(*calls), {**BYTES, 3: 40}) == chain(*calls)


def test_another_layout_or_size():
    square, turned = Operand(float32, (4, 4), (4, 1)), Operand(float32, (4, 4), (1, 4))
    wide = Operand(float64, (4, 4), (4, 1))
    temporaries = {2: 64, 3: 64}

    def pair(out, *operands, nbytes=64):
        first = Call("neg", (square, square), {}, len, (Place(2), 0, Place(1), 0), CPU, "here")
        places = tuple([x for _ in operands for x in (Place(2), 0)])
        calls = [first, Call("mul", (out, *operands), {}, len, (Place(3), 0, *places), CPU, "here")]
        return calls, in_place(calls, {**temporaries, 3: nbytes})

    calls, found = pair(square, square, square)
    assert found[1].arguments[0] == 2 != calls[1].arguments[0]
    for case in [(square, turned, turned), (square, square, turned), (turned, square, square)]:
        calls, found = pair(*case)
        assert found == calls
    calls, found = pair(wide, wide, wide, nbytes=128)
    assert found == calls


def test_a_fused_call_of_two_results():
    attrs = {"steps": "neg float32 o2;exp float32 o3", "results": (0, 1)}
    call = Call("fused", (TEN,) * 4, attrs, len, tuple([x for p in (4, 5, 2, 3) for x in (Place(p), 0)]), CPU, "here")
    made = chain(("neg", 2, 1), ("neg", 3, 1))
    used = chain(("mul", 9, 4, 5))
    found = in_place([*made, call, *used], BYTES)
    assert found[2].arguments[::2] == (2, 3, 2, 3)
    assert found[3].arguments[::2] == (9, 2, 3)


def test_a_step_has_the_same_bits():
    leaf = norch.tensor(np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)).requires_grad_()

    def step(x):
        leaf.grad = None
        y = norch.tanh(leaf * x)
        out = (y @ y.mT).exp().sum() + (y.relu() + y.sigmoid()).sum()
        out.backward()
        return out

    captured = norch.capture(step, fullgraph=True)
    for seed in range(6):
        x = norch.tensor(np.random.default_rng(seed).standard_normal((4, 6), np.float32))
        expected = step(x).item(), leaf.grad.tolist()
        assert (captured(x).item(), leaf.grad.tolist()) == expected
    (entry,) = captured.entries.values()
    ((program, _),) = entry.programs
    assert any(a == b for call in program.calls for a, b in [call.arguments[::2][:2]])
