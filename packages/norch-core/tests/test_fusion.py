"""norch.capturing.fusion: lists of calls made by hand, and random ones, compute the same bits when they are fused."""

from __future__ import annotations

import random

import numpy as np
import pytest
from fusion_harness import BYTES, DEVICE, S, T, call, fused, memory, ops, tensor

import norch
from norch.backend import Fed, Place
from norch.capturing import fusion
from norch.capturing.calls import Call


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    """What `fuse` asked for; the backend has a kernel for everything unless `decline` says otherwise."""
    asked = []

    def compile_kernel(op, device, operands, attrs, required):
        asked.append(attrs["steps"])
        declines = compile_kernel.declines
        return None if declines and (declines is True or declines in attrs["steps"]) else len

    compile_kernel.declines = False  # or True, or what is in the programs that are declined
    compile_kernel.asked = asked
    monkeypatch.setattr(fusion, "compile_kernel", compile_kernel)
    return compile_kernel


def test_a_chain_becomes_one_call():
    chain = [
        call("mul", 1, 8, 1.5),
        call("relu", 2, 1),
        call("mul", 3, 8, 2),
        call("add", 9, 3, 8, line="step.py:4"),
    ]
    (one,) = fused(chain, {1: BYTES, 2: BYTES, 3: BYTES}, memory(10))
    assert one.attrs == {
        "steps": "mul float32 o1 o2;relu float32 s0;mul float32 o1 s1;add float32 s2 o1",
        "results": (3,),
    }
    assert one.operands == (T, T, S)
    assert one.arguments == (Place(9), 0, Place(8), 0, 1.5)
    assert [type(a) for a in one.arguments] == [Place, int, Place, int, float]
    assert (one.op, one.kernel, one.line) == ("fused", len, "step.py:4")


def test_what_is_needed_outside_is_an_output_too():
    chain = [call("mul", 1, 8, 8), call("neg", 2, 1), call("add", 9, 2, 8), call("opaque", 1)]
    one, _ = fused(chain, {1: BYTES, 2: BYTES}, memory(10))
    assert one.attrs["results"] == (0, 2)
    assert one.arguments[:4] == (Place(1), 0, Place(9), 0)
    state = [call("mul", 7, 8, 8), call("neg", 2, 7), call("add", 9, 2, 8)]
    (one,) = fused(state, {2: BYTES}, memory(10))
    assert one.attrs["results"] == (0, 2)


ROW = tensor((4, 1))
REPEATED = tensor(strides=(1, 0))  # a number of each row, as the calls that use it see it


def rms_norm():
    return [
        call("mul", 1, 8, 8),
        call("sum", (ROW, 2, 0), 1, attrs={"dims": (1,)}),
        call("add", (ROW, 3, 0), (ROW, 2, 0), 1.5),
        call("mul", 4, 8, (REPEATED, 3, 0)),
        call("mul", 9, 4, 8, line="step.py:4"),
    ]


def test_a_chain_around_a_reduction_of_rows_becomes_one_call():
    (one,) = fused(rms_norm(), dict.fromkeys((1, 2, 3, 4), BYTES), memory(10))
    assert (one.op, one.line) == ("fused_rows", "step.py:4")
    assert one.attrs == {
        "steps": "mul float32 o1 o1;sum float32 s0;add float32 s1 o2;mul float32 o1 s2;mul float32 s3 o1",
        "results": (4,),
    }
    assert one.operands == (T, T, S)


def test_numbers_of_rows_may_be_outputs():
    (one,) = fused(rms_norm(), dict.fromkeys((1, 2, 4), BYTES), memory(10))
    assert one.attrs["results"] == (2, 4)
    assert one.operands == (ROW, T, T, S)


def test_where_reductions_are_declined_the_rest_is_fused(compiled):
    compiled.declines = "sum"
    found = fused(rms_norm(), dict.fromkeys((1, 2, 3, 4), BYTES), memory(10))
    assert ops(found) == ["mul", "sum", "add", "fused"]


def test_reductions_of_other_dims_and_layouts_are_not_fused():
    columns = [
        call("mul", 1, 8, 8),
        call("sum", (tensor((1, 6)), 2, 0), 1, attrs={"dims": (0,)}),
        call("mul", 9, 8, (tensor(strides=(0, 1)), 2, 0)),
    ]
    assert fused(columns, {1: BYTES, 2: BYTES}, memory(10)) == columns
    across = tensor(strides=(1, 4))
    turned = [
        call("mul", (across, 1, 0), 8, 8),
        call("sum", (ROW, 2, 0), (across, 1, 0), attrs={"dims": (1,)}),
        call("mul", 9, 8, (REPEATED, 2, 0)),
    ]
    assert "sum" in ops(fused(turned, {1: BYTES, 2: BYTES}, memory(10)))


def test_rows_of_different_lengths_stay_apart():
    wide = tensor((4, 9))
    chain = [
        call("amax", (ROW, 1, 0), 8, attrs={"dims": (1,)}),
        call("amax", (ROW, 2, 0), (wide, 7, 0), attrs={"dims": (1,)}),
        call("add", (ROW, 3, 0), (ROW, 1, 0), (ROW, 2, 0)),
        call("mul", 9, 8, (REPEATED, 3, 0)),
    ]
    found = fused(chain, {1: BYTES, 2: BYTES, 3: BYTES}, memory(10))
    assert all(len({o.shape[-1] for o in c.operands if not o.is_scalar} - {1}) == 1 for c in found if c.op != "add")


def test_a_step_that_repeats_numbers_of_rows_only_is_not_fused_with_them():
    chain = [
        call("amax", (ROW, 1, 0), 8, attrs={"dims": (1,)}),
        call("neg", (ROW, 2, 0), (ROW, 1, 0)),
        call("add", 3, (REPEATED, 2, 0), (REPEATED, 2, 0)),
        call("mul", 9, 3, 8),
    ]
    fused(chain, {1: BYTES, 2: BYTES, 3: BYTES}, memory(10))


def test_a_group_must_save_a_result(compiled):
    chain = [call("mul", 8, 7, 7), call("neg", 9, 8)]
    assert fused(chain, {}, memory(10)) == chain
    assert not compiled.asked


def test_declined_groups_stay_as_they_are(compiled):
    compiled.declines = True
    chain = [call("mul", 1, 8, 8), call("neg", 9, 1)]
    assert fused(chain, {1: BYTES}, memory(10)) == chain
    assert compiled.asked == ["mul float32 o1 o1;neg float32 s0"]


def test_parts_of_a_declined_group_are_fused(compiled):
    compiled.declines = "relu"
    chain = [call(op, i + 1, i) for i, op in enumerate(("neg", "neg", "neg", "neg", "relu", "neg", "neg", "neg"))]
    found = fused(chain, dict.fromkeys(range(1, 8), BYTES), memory(9))
    assert ops(found) == ["fused", "relu", "neg", "fused"]


def test_fed_numbers_stay_fed():
    chain = [call("mul", 1, 8, Fed(1)), call("add", 9, 1, Fed(0))]
    (one,) = fused(chain, {1: BYTES}, memory(10), numbers=(2.0, 3.0))
    assert one.arguments[-2:] == (1, 0)
    assert {type(a) for a in one.arguments[-2:]} == {Fed}


def test_attributes_are_in_the_text():
    chain = [call("leaky_relu", 1, 8, attrs={"negative_slope": 0.25, "given": (True,)}), call("neg", 9, 1)]
    chain[0] = chain[0]._replace(attrs={"negative_slope": 0.25})
    (one,) = fused(chain, {1: BYTES}, memory(10))
    assert one.attrs["steps"] == "leaky_relu float32 o1 negative_slope=0.25;neg float32 s0"


def test_calls_between_that_do_not_mind_are_passed():
    matrix = tensor((4, 4))
    between = call("matmul", (matrix, 7, 0), (matrix, 6, 0), (matrix, 5, 0))
    found = fused([call("mul", 1, 8, 8), between, call("neg", 9, 1)], {1: BYTES}, memory(10))
    assert ops(found) == ["matmul", "fused"]


@pytest.mark.parametrize(
    ("between", "expected"),
    [
        (("opaque", 8), 3),  # writes what the group reads
        (("opaque", 1), 3),  # writes what it wrote
        (("opaque", 7, 8), 3),  # may write any of its operands
        (("copy", 8, 7), 3),
        (("copy", (8, 3), 7), 3),  # a part of it
        (("copy", 5, (1, 2)), 3),  # reads a part of what it wrote
        (("opaque", 7), 2),
        (("copy", 5, 8), 2),
        (("copy", (8, 24), 7), 2),  # beside it
    ],
)
def test_a_call_between_that_minds_ends_the_group(between, expected):
    calls = [call("mul", 1, 8, 8), call(*between), call("neg", 9, 1)]
    assert len(fused(calls, {1: BYTES}, memory(10))) == expected


@pytest.mark.parametrize(("out", "source", "expected"), [(5, 1, 3), (8, 7, 3), (1, 7, 3), (5, 7, 2)])
def test_copied_bytes_are_seen(out, source, expected):
    moved = Call("copy_bytes", (), {}, None, (Place(out), 8, Place(source), 0, 16), DEVICE, "")
    calls = [call("mul", 1, 8, 8), moved, call("neg", 9, 1)]
    assert len(fused(calls, {1: BYTES}, memory(10))) == expected


def test_in_place_chains():
    chain = [call("mul", 8, 8, 2.0), call("add", 8, 8, 7), call("neg", 8, 8)]
    (one,) = fused(chain, {}, memory(10))
    assert one.attrs == {"steps": "mul float32 o1 o2;add float32 s0 o3;neg float32 s1", "results": (2,)}
    assert one.arguments == (Place(8), 0, Place(8), 0, 2.0, Place(7), 0)


def test_partial_overlaps_are_left_alone():
    shifted = [call("mul", 1, 8, 8), call("neg", (8, 3), 1)]
    assert ops(fused(shifted, {1: BYTES}, memory(10))) == ["mul", "neg"]
    reads_part = [call("mul", 1, 8, 8), call("add", 9, 1, (1, 2))]
    assert ops(fused(reads_part, {1: 2 * BYTES}, memory(10))) == ["mul", "add"]
    transposed = tensor((4, 6), strides=(1, 4))
    other_order = [call("mul", 1, 8, 8), call("neg", 9, (transposed, 1, 0))]
    assert ops(fused(other_order, {1: BYTES}, memory(10))) == ["mul", "neg"]


def test_dims_of_size_1_have_any_stride():
    a, b = tensor((1, 24), strides=(24, 1)), tensor((1, 24), strides=(7, 1))
    chain = [call("mul", (a, 1, 0), (a, 8, 0), (a, 8, 0)), call("neg", (a, 9, 0), (b, 1, 0))]
    assert ops(fused(chain, {1: BYTES}, memory(10))) == ["fused"]


def test_other_shapes_and_other_devices_are_other_groups():
    row = tensor((6,))
    wide = tensor((4, 6), strides=(0, 1))
    chain = [
        call("mul", (row, 1, 0), (row, 8, 0), (row, 8, 0)),
        call("neg", (row, 2, 0), (row, 1, 0)),
        call("add", 3, 7, (wide, 2, 0)),
        call("relu", 9, 3),
    ]
    first, second = fused(chain, {1: BYTES, 2: BYTES, 3: BYTES}, memory(10))
    assert first.operands[0].shape == (6,)
    assert second.operands == (T, T, wide)
    other = chain[3]._replace(device=norch.device("meta"))
    assert ops(fusion.fuse([chain[2], other], {3: BYTES})) == ["add", "relu"]


def test_two_chains_that_meet_are_one():
    chain = [call("mul", 1, 8, 8), call("neg", 2, 7), call("add", 9, 1, 2)]
    (one,) = fused(chain, {1: BYTES, 2: BYTES}, memory(10))
    assert one.attrs["steps"] == "mul float32 o1 o1;neg float32 o2;add float32 s0 s1"


def test_comparisons_and_casts():
    mask, wide = tensor(dtype=norch.bool), tensor(dtype=norch.float64)
    chain = [
        call("lt", (mask, 1, 0), 8, 0.0),
        call("where", 2, (mask, 1, 0), 8, 7),
        call("copy", (wide, 3, 0), 2),
        call("neg", (wide, 9, 0), (wide, 3, 0)),
    ]
    (one,) = fused(chain, {1: BYTES, 2: BYTES, 3: 2 * BYTES}, memory(10))
    assert one.attrs["steps"] == "lt bool o1 o2;where float32 s0 o1 o3;copy float64 s1;neg float64 s2"


def test_what_may_raise_or_has_no_elements_is_left_alone():
    whole, nothing = tensor(dtype=norch.int32), tensor((0, 6))
    chain = [call("neg", (whole, 1, 0), (whole, 8, 0)), call("floor_divide", *[(whole, p, 0) for p in (9, 1, 8)])]
    assert ops(fusion.fuse(chain, {1: BYTES})) == ["neg", "floor_divide"]
    chain = [call("neg", (nothing, 1, 0), (nothing, 8, 0)), call("neg", (nothing, 9, 0), (nothing, 1, 0))]
    assert ops(fusion.fuse(chain, {1: BYTES})) == ["neg", "neg"]


def test_long_chains_are_several_groups():
    chain = [call("neg", i + 1, i) for i in range(100)]
    found = fused(chain, dict.fromkeys(range(1, 100), BYTES), memory(101))
    assert set(ops(found)) == {"fused"}
    assert len(found) < 8


def test_a_group_waits_for_its_next_call():
    """However many other groups are begun meanwhile: such as a gradient that is made in parts."""
    others = [call("neg", 9 + i, 8) for i in range(50)]
    found = fused([call("mul", 1, 8, 7), *others, call("add", 5, 1, 6)], {1: BYTES}, memory(60))
    assert ops(found) == ["neg"] * 50 + ["fused"]


PLACES, TEMPORARIES = 9, dict.fromkeys(range(1, 6), 4 * BYTES)
LAYOUTS = [(tensor(), o) for o in (0, 0, 0, 0, 24, 3)] + [(tensor((4, 6), strides=(1, 4)), 0), (tensor((6, 4)), 0)]


def random_calls(draw):
    calls = []
    for _ in range(draw.randrange(2, 14)):
        operand, offset = draw.choice(LAYOUTS)
        alike = [(o, at) for o, at in LAYOUTS if o.shape == operand.shape]

        def part(alike=alike):
            return (*(draw.choice(alike) if draw.random() < 0.3 else alike[0]),)

        def place():
            return draw.randrange(1, PLACES)

        out = (operand, place(), offset)
        op = draw.choice(("add", "mul", "sub", "neg", "relu", "maximum", "fill", "opaque"))
        if op == "opaque":
            calls.append(call(op, out))
            continue
        count = {"neg": 1, "relu": 1, "fill": 1}.get(op, 2)
        inputs = []
        for i in range(count):
            if op == "fill" or (i and draw.random() < 0.2):
                inputs.append(draw.choice((1.5, -2.0)))
                continue
            chosen, at = part()
            inputs.append((chosen, place() if draw.random() < 0.5 or not calls else calls[-1].arguments[0], at))
        # As core promises each kernel: an output is exactly an input or apart from it.
        for i, given in enumerate(inputs):
            if isinstance(given, tuple) and given[1] == out[1]:
                inputs[i] = out
        calls.append(call(op, out, *inputs))
    return calls


@pytest.mark.parametrize("declines", [False, "relu"])
def test_random_lists_compute_the_same(compiled, declines):
    saved, compiled.declines = 0, declines
    with np.errstate(all="ignore"):
        for seed in range(1500):
            calls = random_calls(random.Random(seed))
            saved += len(calls) - len(fused(calls, TEMPORARIES, memory(PLACES)))
    assert saved > 500
