"""What a captured step leaves out: the same bits as eagerly, with fewer or smaller calls."""

from collections import Counter

import numpy as np
import pytest

import norch
from norch.backend import Fed, Operand, Place
from norch.capturing.calls import Call
from norch.capturing.epilogues import epilogues
from norch.device import CPU
from norch.dtype import bfloat16, float32, float64

IMAGE = Operand(float32, (1, 1, 4, 4), (16, 16, 4, 1))
pools = {"windows": (2, 2, 2, 2, 1, 1), "pads": (0, 0, 0, 0)}
native_pools = pytest.mark.skipif(
    CPU.backend.compile("relu", (IMAGE, IMAGE), {"given": (True,)}) is None, reason="there is no kernel for relu"
)


def bits(value):
    """The bytes of a tensor; all NaNs are one."""
    array = value.detach().numpy().copy()
    array[np.isnan(array)] = np.nan
    return array.tobytes()


def replayed(make, *args, runs=6):
    """The calls of a captured step, which gives in each run what the same step gives eagerly. `make()` makes the step,
    and the leaves whose gradients are compared too. What is fused afterwards is compared, and does not count."""
    _replayed(make, args, runs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("norch.capturing.programs.rewrite", epilogues)
        return _replayed(make, args, runs)


def _replayed(make, args, runs):
    (eager, leaves), (step, others) = make(), make()
    captured = norch.capture(step, fullgraph=True)
    for _ in range(runs):
        expected, got = eager(*args), captured(*args)
        for a, b in zip(expected, got, strict=True):
            assert bits(a) == bits(b)
        for a, b in zip(leaves, others, strict=True):
            assert bits(a) == bits(b)
            assert (a.grad is None) == (b.grad is None)
            assert a.grad is None or bits(a.grad) == bits(b.grad)
    (entry,) = captured.entries.values()
    ((program, _),) = entry.programs
    return program.calls


def ops(calls):
    return Counter(call.op for call in calls)


# --- Pools before relu ------------------------------------------------------------------------------------------------

CORNERS = [0.0, -0.0, 1.0, -1.0, 2.0, np.nan, np.inf, -np.inf, 1e-40, -1e-40]


def images(seed, shape=(2, 3, 12, 12), dtype=np.float32):
    """Mostly ties, zeros of both signs, and what is no number."""
    return norch.tensor(np.random.default_rng(seed).choice(CORNERS, shape).astype(dtype))


def pooling(dtype=float32, inplace=False, forward_only=False, **windows):
    def make():
        leaf = norch.tensor(np.linspace(0.5, 2, 12, dtype=np.float32)).to(dtype).requires_grad_(not forward_only)

        def step(x, weight):
            leaf.grad = None
            y = x * leaf
            y = y.relu_() if inplace else norch.relu(y)
            y = norch.max_pool2d(y, **windows)
            if forward_only:
                return (y,)
            (y * weight).sum().backward()
            return (y,)

        return step, (leaf,)

    return make


@native_pools
@pytest.mark.parametrize("dtype", [float32, float64, bfloat16])
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize(
    "windows",
    [{"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": 2, "stride": 1, "dilation": 2}],
)
def test_relu_of_the_pooled_image(dtype, inplace, windows):
    x = images(0).to(dtype)
    pooled = norch.max_pool2d(x, **windows)
    weight = images(1, tuple(pooled.shape)).to(dtype)
    calls = replayed(pooling(dtype, inplace, **windows), x, weight)
    (relu,) = [call for call in calls if call.op == "relu"]
    (mask,) = [call for call in calls if call.op == "relu_grad"]
    assert relu.operands[0].shape == mask.operands[0].shape == tuple(pooled.shape)


@native_pools
def test_relu_of_the_pooled_image_without_gradients():
    calls = replayed(pooling(forward_only=True, kernel_size=2), images(0), images(1, (2, 3, 6, 6)))
    assert [call.op for call in calls] == ["mul", "max_pool2d", "relu"]
    assert calls[-1].operands[0].shape == (2, 3, 6, 6)


@native_pools
def test_a_channels_last_image():
    x = images(0).to(memory_format=norch.channels_last)
    weight = images(1, (2, 3, 6, 6)).to(memory_format=norch.channels_last)
    calls = replayed(pooling(kernel_size=2), x, weight)
    assert next(c for c in calls if c.op == "relu").operands[0].shape == (2, 3, 6, 6)


def chain(*calls):
    """Calls of pools and relus on images, of which place n is that of the n-th; ("relu", out, x) and so on."""
    found = []
    for op, *places in calls:
        sizes = {"max_pool2d": (2, 4), "max_pool2d_grad": (4, 2, 4)}.get(op, (4,) * len(places))
        operands = tuple([Operand(float32, (1, 1, n, n), (n * n, n * n, n, 1)) for n in sizes])
        attrs = pools if "pool" in op else {"given": (True,)} if op == "relu" else {}
        arguments = tuple([x for place in places for x in (Place(place), 0)])
        found.append(Call(op, operands, attrs, len, arguments, CPU, "here"))
    return found


TEMPORARIES = dict.fromkeys((2, 3, 5, 6, 7), 64)  # 1 is an argument, 4 the pooled image, 8 a result
FORWARD = [("relu", 2, 1), ("max_pool2d", 4, 2)]
BACKWARD = [("max_pool2d_grad", 6, 5, 2), ("relu_grad", 8, 6, 2)]


@native_pools
@pytest.mark.parametrize(
    "calls",
    [
        [*FORWARD, ("neg", 8, 2)],  # something else reads what relu made
        [("relu", 2, 1), ("neg", 1, 1), ("max_pool2d", 4, 2)],  # its operand is gone
        [*FORWARD, ("max_pool2d", 8, 2)],
        [*FORWARD, BACKWARD[0], ("neg", 8, 6)],
        [*FORWARD, ("max_pool2d_grad", 6, 5, 2), ("relu_grad", 8, 6, 2), ("neg", 7, 6)],
        [*FORWARD, ("neg", 4, 4), *BACKWARD],
        [*FORWARD, BACKWARD[0], ("neg", 7, 8), BACKWARD[1]],
        [*FORWARD, ("max_pool2d_grad", 6, 5, 2), ("relu_grad", 6, 6, 2)],
        [*FORWARD, ("an_op_of_a_plugin", 2)],
        [("relu", 8, 1), ("max_pool2d", 4, 8)],  # a result
    ],
)
def test_pools_that_stay_as_they_are(calls):
    before = chain(*calls)
    assert epilogues(before, TEMPORARIES) == before


@native_pools
def test_the_masked_gradient_takes_the_place_of_one_that_is_not_needed():
    after = epilogues(chain(*FORWARD, *BACKWARD), TEMPORARIES)
    assert [(c.op, c.arguments[::2]) for c in after] == [
        ("max_pool2d", (4, 1)), ("relu", (4, 4)), ("relu_grad", (5, 5, 4)), ("max_pool2d_grad", (8, 5, 1))
    ]  # fmt: skip
    after = epilogues(chain(*FORWARD, *BACKWARD, ("neg", 7, 5)), TEMPORARIES)
    assert [c.arguments[::2] for c in after[2:4]] == [(6, 5, 4), (8, 6, 1)]


# --- Copies -----------------------------------------------------------------------------------------------------------


def test_the_original_of_a_clone_is_read():
    def make():
        return lambda x: (x.clone() * 2, (x + 1).clone().mT.clone().mul_(3)), ()

    calls = replayed(make, norch.tensor(np.arange(12, dtype=np.float32).reshape(3, 4)))
    assert ops(calls) == {"mul": 2, "add": 1, "copy": 1}  # the copy that is not laid out as its original, and changed


def copied(*calls):
    """Calls of neg and copy on 10 numbers, as (op, out, x)."""
    ten = Operand(float32, (10,), (1,))
    return [Call(op, (ten, ten), {}, len, (Place(out), 0, Place(x), 0), CPU, "here") for op, out, x in calls]


def test_copies_of_copies():
    calls = copied(("neg", 2, 1), ("copy", 3, 2), ("copy", 4, 3), ("neg", 5, 4), ("neg", 6, 3))
    assert epilogues(calls, {2: 40, 3: 40, 4: 40}) == copied(("neg", 2, 1), ("neg", 5, 2), ("neg", 6, 2))


@pytest.mark.parametrize(
    ("calls", "temporaries"),
    [
        ([("copy", 2, 1), ("neg", 5, 2)], {}),  # a result
        ([("copy", 2, 1), ("neg", 2, 2), ("neg", 5, 2)], {2: 40}),
        ([("copy", 2, 1), ("neg", 1, 1), ("neg", 5, 2)], {2: 40}),
        ([("copy", 2, 1), ("neg", 5, 2)], {2: 80}),  # a part
        ([("copy", 2, 1), ("an_op_of_a_plugin", 1, 3), ("neg", 5, 2)], {2: 40}),
    ],
)
def test_copies_that_are_needed(calls, temporaries):
    assert epilogues(copied(*calls), temporaries) == copied(*calls)


# --- What is computed twice -------------------------------------------------------------------------------------------


def test_a_cast_that_is_done_twice():
    x = norch.tensor(np.random.default_rng(0).random((50, 40), dtype=np.float32))

    def make():
        return lambda x: (x.to(float64) + 1, x.to(float64) * x.to(float64)), ()

    assert ops(replayed(make, x)) == {"copy": 1, "add": 1, "mul": 1}


def test_zeros_of_both_signs_are_two():
    def make():
        return lambda x: (x * 0.0 + 1, norch.atan2(x * -0.0, x) + x * 0.0), ()

    assert ops(replayed(make, norch.tensor([-1.0, 2.0])))["mul"] == 2


def test_a_draw_is_never_the_same():
    def make():
        def step(x):
            norch.manual_seed(0)
            return (x,)

        generator = norch.Generator().manual_seed(3)
        return lambda x: (x + norch.rand(4, generator=generator), x * norch.rand(4, generator=generator)), ()

    calls = replayed(make, norch.ones(4))
    assert ops(calls)["random"] == 2
    assert len({call.arguments[-1] for call in calls if call.op == "random"}) == 2
    assert all(type(call.arguments[-1]) is Fed for call in calls if call.op == "random")


def test_what_was_changed_meanwhile_is_computed_again():
    def make():
        state = norch.ones(4)

        def step(x):
            first = x * state
            state.add_(1)
            return first + 1, x * state + 1

        return step, (state,)

    assert ops(replayed(make, norch.ones(4)))["mul"] == 2


def repeated(count, *between):
    """The same cast into places 2 and 3, each of which is read."""
    vector, result = Operand(float32, (count,), (1,)), Operand(float64, (count,), (1,))
    last = Operand(float64, (count,), (1,))

    def call(op, operands, *places):
        return Call(op, operands, {}, len, tuple([x for p in places for x in (Place(p), 0)]), CPU, "here")

    cast, neg = (result, vector), (last, result)
    calls = [call("copy", cast, 2, 1), call("neg", neg, 4, 2), *(call("neg", neg, *b) for b in between)]
    return [*calls, call("copy", cast, 3, 1), call("neg", neg, 5, 3)]


def test_no_memory_is_held_to_save_work():
    small, large = 1000, 100_000
    assert len(epilogues(repeated(small), {2: 8 * small, 3: 8 * small})) == 3
    # The first one's memory is free for others by then, as where a checkpoint computes it again.
    assert len(epilogues(repeated(large), {2: 8 * large, 3: 8 * large})) == 4


def test_results_have_memory_of_their_own():
    assert len(epilogues(repeated(10), {2: 80})) == 4
    assert len(epilogues(repeated(10), {3: 80})) == 3


def test_what_is_written_again_is_not_shared():
    assert len(epilogues(repeated(10, (2, 4)), {2: 80, 3: 80})) == 5


# --- Zeros ------------------------------------------------------------------------------------------------------------


def splitting(*sizes, dim=-1):
    def make():
        leaf = norch.tensor(np.linspace(-1, 1, 60, dtype=np.float32).reshape(3, 4, 5)).requires_grad_()

        def step(x):
            leaf.grad = None
            parts = (leaf * x).split(list(sizes), dim)
            # Gradients of both signs of zero
            total = sum((part * (i - 1.0)).sum() for i, part in enumerate(parts))
            total.backward()
            return (total,)

        return step, (leaf,)

    return make


@pytest.mark.parametrize("sizes", [((2, 1, 2), -1), ((1, 3), 1), ((1, 1, 1), 0), ((5,), 2)])
def test_the_gradient_of_a_split_is_written_once(sizes):
    x = images(3, (3, 4, 5))
    calls = replayed(splitting(*sizes[0], dim=sizes[1]), x)
    assert not [c for c in calls if c.op == "fill" and c.operands[0].shape == (3, 4, 5)]


def test_parts_that_leave_something_out_keep_their_zeros():
    def make():
        leaf = norch.tensor(np.linspace(-1, 1, 60, dtype=np.float32).reshape(3, 4, 5)).requires_grad_()

        def step(x):
            leaf.grad = None
            y = leaf * x
            total = (y[:, :, 1:3] * 2).sum() + y[0, 1, 3] + y[:, 2:, 3:].sum()
            total.backward()
            return (total,)

        return step, (leaf,)

    calls = replayed(make, images(3, (3, 4, 5)))
    assert [c for c in calls if c.op == "fill" and c.operands[0].shape == (3, 4, 5)]


def writes(*parts, zeros=0, last=None):
    """A fill of place 2, (3, 4), and then for each part (op, rows, columns) a call that writes it."""
    whole, number = Operand(float32, (3, 4), (4, 1)), Operand(float32, (), (), True)
    calls = [Call("fill", (whole, number), {}, len, (Place(2), 0, zeros), CPU, "here")]
    for op, rows, columns in parts:
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        part, other = Operand(float32, shape, (4, 1)), Operand(float32, shape, (shape[1], 1))
        offset = rows.start * 4 + columns.start
        operands = {"copy": (part, other), "add": (part, part, other), "sub": (part, part, other)}[op]
        middle = () if op == "copy" else (Place(2), offset)
        calls.append(Call(op, operands, {}, len, (Place(2), offset, *middle, Place(3), 0), CPU, "here"))
    if last:
        calls.append(Call("neg", (whole, whole), {}, len, tuple(x for p in last for x in (Place(p), 0)), CPU, "here"))
    return calls


LEFT, RIGHT = (slice(0, 3), slice(0, 1)), (slice(0, 3), slice(1, 4))


def test_zeros_that_are_all_written_over_are_left_out():
    after = epilogues(writes(("copy", *LEFT), ("add", *RIGHT), last=(4, 2)), {2: 48})
    assert [c.op for c in after] == ["copy", "add", "neg"]
    assert after[1].arguments == (2, 1, 3, 0, 0)
    assert [o.is_scalar for o in after[1].operands] == [False, False, True]


@pytest.mark.parametrize(
    "calls",
    [
        writes(("copy", *LEFT), last=(4, 2)),  # some are read
        writes(("add", *LEFT), ("add", *LEFT), ("add", *RIGHT)),
        writes(("copy", *LEFT), ("sub", *RIGHT)),
        writes(("copy", *LEFT), ("add", *RIGHT), zeros=-0.0),
        writes(("copy", *LEFT), ("add", *RIGHT), zeros=1),
        writes(("copy", *LEFT), ("add", *RIGHT), zeros=Fed(0)),
    ],
)
def test_zeros_that_are_needed(calls):
    assert epilogues(calls, {2: 48}) == calls
