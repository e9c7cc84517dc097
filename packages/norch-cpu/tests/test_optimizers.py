"""The steps of optimisers: one native kernel for all parameters, against NumPy."""

import numpy as np
import pytest

import norch
from norch.ops import optimizer
from norch.testing.steps import STEPS, check_step
from norch_cpu.native import native

SIZES = [(), (1,), (0,), (3, 5), (17,), (64,), (129, 3), (40_000,)]
DTYPES = {"float64": 1e-12, "float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}


def drawn(seed, positive=False):
    rng = np.random.default_rng(seed)
    values = [rng.uniform(-1, 1, size) for size in SIZES]
    return [np.abs(v) for v in values] if positive else values


def tensors(arrays, dtype):
    return [norch.tensor(np.asarray(a), dtype=getattr(norch, dtype)) for a in arrays]


def numbers(values):
    return [t.double().numpy().copy() for t in values]


def compare(got, expected, bound):
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=bound, atol=bound)


@pytest.fixture
def compiled(monkeypatch):
    """The names that the backend was asked to compile."""
    from norch.dispatch.plan import forget_plans

    forget_plans()
    backend = type(norch.ones(1).device.backend)
    asked, compile_kernel = [], backend.compile

    def counting(self, op, operands, attrs):
        kernel = compile_kernel(self, op, operands, attrs)
        asked.append((op, kernel is not None))
        return kernel

    monkeypatch.setattr(backend, "compile", counting)
    return asked


def test_the_kernels_are_there():
    assert {name.rstrip("_") for name in optimizer.__all__} <= set(native.ops())


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_formulas(step, compiled):
    check_step(step, "cpu")
    steps = [entry for entry in compiled if entry[0] == step.function.rstrip("_")]
    assert len(steps) == 4  # one for each dtype
    assert all(native for _, native in steps)


def drawn_for(step, seed=7, sizes=(100_000, 3, 70_001, 900, 20)):
    """Parameters and gradients, and the states of a step by name."""
    rng = np.random.default_rng(seed)
    p, g, *states = ([norch.tensor(rng.uniform(0.5, 1, n)) for n in sizes] for _ in range(2 + len(step.states)))
    return p, g, dict(zip(step.states, states, strict=True))


@pytest.mark.parametrize("name", optimizer.__all__)
def test_any_number_of_threads(name):
    step = next(s for s in STEPS.values() if s.function == name)

    def run():
        p, g, states = drawn_for(step)
        getattr(norch, name)(p, g, **states, **step.options)
        return numbers([*p, *(t for ts in states.values() for t in ts)])

    before = native.num_threads()
    try:
        found = []
        for threads in (1, 2, 5):
            native.set_num_threads(threads)
            found.append(run())
    finally:
        native.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", optimizer.__all__)
def test_other_numbers_compile_nothing(name, compiled):
    step = next(s for s in STEPS.values() if s.function == name)
    p, g, states = drawn_for(step, sizes=(5, 3))
    for i in range(4):  # RAdam's steps are of two kinds
        options = {k: v + 1e-3 * i if type(v) is float else v for k, v in step.options.items()}
        getattr(norch, name)(p, g, **states, **options)
    assert [op for op, _ in compiled] == [name.rstrip("_")]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("maximize", [False, True])
def test_sgd(dtype, decay, maximize):
    p, g = tensors(drawn(1), dtype), tensors(drawn(2), dtype)
    before, gradient = numbers(p), numbers(g)
    norch.sgd_step_(p, g, lr=0.3, weight_decay=decay, maximize=maximize)
    sign = -1 if maximize else 1
    compare(
        numbers(p), [x - 0.3 * (sign * d + decay * x) for x, d in zip(before, gradient, strict=True)], DTYPES[dtype]
    )
    compare(numbers(g), gradient, 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_momentum(dtype, nesterov, decay):
    p, g, b = (tensors(drawn(seed), dtype) for seed in (1, 2, 3))
    before, gradient, built = numbers(p), numbers(g), numbers(b)
    how = dict(lr=0.3, momentum=0.9, dampening=0.25, weight_decay=decay, nesterov=nesterov)
    norch.sgd_step_(p, g, b, **how)
    d = [y + decay * x for x, y in zip(before, gradient, strict=True)]
    built = [0.9 * m + 0.75 * y for m, y in zip(built, d, strict=True)]
    steps = [y + 0.9 * m if nesterov else m for m, y in zip(built, d, strict=True)]
    compare(numbers(b), built, DTYPES[dtype])
    compare(numbers(p), [x - 0.3 * s for x, s in zip(before, steps, strict=True)], DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
def test_adam(dtype, decoupled, maximize):
    p, g, m = (tensors(drawn(seed), dtype) for seed in (1, 2, 3))
    v = tensors(drawn(4, positive=True), dtype)
    before, gradient, first, second = numbers(p), numbers(g), numbers(m), numbers(v)
    how = dict(lr=0.3, beta1=0.8, beta2=0.9, eps=0.01, weight_decay=0.1, step=3)
    norch.adam_step_(p, g, m, v, decoupled=decoupled, maximize=maximize, **how)
    expected = []
    for i, (x, d) in enumerate(zip(before, gradient, strict=True)):
        d = -d if maximize else d
        if decoupled:
            x = x - 0.3 * 0.1 * x
        else:
            d = d + 0.1 * x
        first[i] = 0.8 * first[i] + (1 - 0.8) * d
        second[i] = 0.9 * second[i] + (1 - 0.9) * d**2
        expected.append(x - 0.3 * first[i] / (1 - 0.8**3) / (np.sqrt(second[i] / (1 - 0.9**3)) + 0.01))
    compare(numbers(m), first, DTYPES[dtype])
    compare(numbers(v), second, DTYPES[dtype])
    compare(numbers(p), expected, DTYPES[dtype])


def test_one_kernel_takes_all_parameters_and_any_hyperparameters(compiled):
    p, g, m, v = (tensors(drawn(seed, positive=True), "float32") for seed in range(4))
    for step in (1, 2, 3):
        norch.sgd_step_(p, g, lr=0.1 / step, weight_decay=0.1 * step)
        norch.sgd_step_(p, g, m, lr=0.1, momentum=0.5 / step, dampening=0.1 * step)
        norch.adam_step_(p, g, m, v, step=step, lr=0.1 * step, eps=0.1 / step)
    assert compiled == [("sgd_step", True), ("sgd_step", True), ("adam_step", True)]


def test_a_dense_layout_is_as_good_as_any(compiled):
    x = np.random.default_rng(5).uniform(-1, 1, (5, 7))
    p, g = norch.tensor(x).T, norch.tensor(2 * x).T
    del compiled[:]
    norch.sgd_step_([p], [g], lr=0.5)
    assert compiled == [("sgd_step", True)]
    np.testing.assert_allclose(p.numpy(), np.zeros((7, 5)), atol=1e-15)


def test_gradients_in_another_layout_or_dtype():
    x, d = np.random.default_rng(6).uniform(-1, 1, (2, 5, 7))
    for g in (
        norch.tensor(np.ascontiguousarray(d.T)).T,
        norch.tensor(np.repeat(d, 2, 1))[:, ::2],
        norch.cat([norch.zeros(1, 7).double(), norch.tensor(d)])[1:],
    ):
        p = norch.tensor(x)
        norch.sgd_step_([p], [g], lr=0.5)
        np.testing.assert_allclose(p.numpy(), x - 0.5 * d, rtol=1e-14)
    p = norch.tensor(x)
    norch.sgd_step_([p], [norch.tensor(d, dtype=norch.float32)], lr=0.5)
    np.testing.assert_allclose(p.numpy(), x - 0.5 * d, rtol=1e-6, atol=1e-6)
    p = norch.tensor(x)
    norch.sgd_step_([p], [norch.tensor(d[:, :1]).expand(5, 7)], lr=0.5)
    np.testing.assert_allclose(p.numpy(), x - 0.5 * d[:, :1], rtol=1e-14)


def test_many_parameters():
    p, g = ([norch.full((3,), float(i)) for i in range(300)] for _ in range(2))
    norch.sgd_step_(p, g, lr=0.5)
    assert [t[2].item() for t in p] == [i / 2 for i in range(300)]


def test_no_parameters_and_empty_ones():
    norch.sgd_step_([], [], lr=0.1)
    norch.adam_step_([], [], [], [], step=1)
    for step, states in ((norch.sgd_step_, 0), (norch.adam_step_, 2)):
        parameters, gradients = [norch.zeros(n) for n in (0, 2, 0)], [norch.ones(n) for n in (0, 2, 0)]
        rest = [[norch.zeros(n) for n in (0, 2, 0)] for _ in range(states)]
        step(parameters, gradients, *rest, lr=0.25, **({"step": 1} if states else {}))
        assert [p.shape for p in parameters] == [(0,), (2,), (0,)]
        np.testing.assert_allclose(parameters[1].numpy(), [-0.25, -0.25], rtol=1e-6)


@pytest.mark.parametrize(
    "name",
    [n for n, s in STEPS.items() if not s.options.get("weight_decay") and s.function != "update_averages_"],
)
def test_infinite_parameters_stay(name):
    step = STEPS[name]
    p, g, states = drawn_for(step, sizes=(40,))
    p[0][::3] = float("inf")
    getattr(norch, step.function)(p, g, **states, **step.options)
    assert p[0][::3].tolist() == [float("inf")] * 14
    assert norch.isfinite(p[0][1::3]).all().item()


def test_not_a_number_and_infinities():
    p = norch.tensor([1.0, np.inf, 1.0, 1.0])
    norch.sgd_step_([p], [norch.tensor([np.inf, 1.0, np.nan, -np.inf])], lr=0.1)
    np.testing.assert_array_equal(p.numpy(), [-np.inf, np.inf, np.nan, np.inf])
    p, m, v = norch.ones(3), norch.zeros(3), norch.zeros(3)
    norch.adam_step_([p], [norch.tensor([np.nan, 0.0, 1.0])], [m], [v], step=1, lr=0.5)
    np.testing.assert_allclose(p.numpy(), [np.nan, 1.0, 0.5], rtol=1e-6)


def test_what_is_refused():
    p, g = norch.ones(3), norch.ones(3)
    with pytest.raises(norch.ShapeError, match="2 parameters, but 1"):
        norch.sgd_step_([p, norch.ones(1)], [g], lr=0.1)
    with pytest.raises(norch.ShapeError, match=r"shape \(3,\).*shape \(2,\)"):
        norch.sgd_step_([p], [norch.ones(2)], lr=0.1)
    with pytest.raises(norch.DTypeError, match="int64"):
        norch.adam_step_([p], [norch.ones(3).long()], [p.clone()], [p.clone()], step=1)
    assert p.tolist() == [1.0] * 3


@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_a_norm_whose_squares_float32_cannot_hold(size):
    found = norch.total_norm([norch.full((3,), size), norch.full((1,), size)])
    np.testing.assert_allclose(found.item(), 2 * size, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_averages_of_gradients_that_stay_0_become_0(dtype):
    """Not subnormal, with which steps take many times as long."""
    p, g, m, v = (tensors([np.full(size, value) for size in SIZES], dtype) for value in (1, 0, 1e-36, 1e-4))
    velocity = [t.clone() for t in m]
    for step in range(1, 100):
        norch.adam_step_(p, g, m, v, step=step)
        norch.sgd_step_(p, g, velocity, lr=0.1, momentum=0.9)
    for average in (*m, *velocity):
        assert (average == 0).all()
