"""norch.detect_nan: the first op that makes a NaN or an infinity, and no other."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest
from broken_backends import Broken

import norch
from norch import observing
from norch.autograd import graph
from norch.backend import registry
from norch.testing.samples import SAMPLES
from norch.testing.samples.record import build, flat

INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def off_afterwards():
    yield
    assert not observing._observers
    assert graph.anomaly_check is None


def found(work, **options):
    with pytest.raises(norch.NotFiniteError) as caught, norch.detect_nan(**options):
        work()
    return str(caught.value)


# --- What made it, where, of what -----------------------------------------------------------------------------------


def test_the_first_op_is_named_with_its_line_and_what_it_was_given():
    x = norch.tensor([[1.0, 2.0], [-4.0, 3.0]])

    def work():
        y = x * 2
        z = y.log()  # the culprit
        return z.exp().sum()

    text = found(work)
    assert text.startswith("detect_nan(): log made a NaN\n")
    assert "z = y.log()  # the culprit" in text
    assert "test_detect_nan.py:" in text
    assert "float32 (2, 2): min -8, max 6, mean 1" in text
    assert "1 NaN of 4" in text


def test_an_infinity_in_the_forward_pass():
    text = found(lambda: norch.tensor([0.0, 1.0]).reciprocal() + 1)
    assert "made an infinity" in text
    assert "1 infinite of 2" in text
    with norch.detect_nan(inf=False):
        norch.tensor([0.0, 1.0]).reciprocal()
    with norch.detect_nan(nan=False):
        norch.tensor([-1.0]).log()


def test_in_the_backward_pass_both_lines_are_named():
    x = norch.tensor([0.0, 4.0], requires_grad=True)

    def work():
        y = x.sqrt()  # finite, its gradient is not
        (y * 2).sum().backward()  # goes back

    text = found(work)
    assert "in the gradient of operand 0 of sqrt" in text
    assert "y = x.sqrt()  # finite, its gradient is not" in text
    assert "(y * 2).sum().backward()  # goes back" in text


def test_a_part_of_a_composite_is_named_with_the_whole():
    x = norch.full((2, 2), -INF)
    text = found(lambda: norch.softmax(x, 1))
    assert text.startswith("detect_nan(): ")
    assert "made a NaN" in text
    assert "softmax called" in text
    registry.register(Broken(), "norch-broken", "1.2")  # which decomposes it
    try:
        y = norch.full((2, 2), -INF, device="broken")
        assert found(lambda: norch.softmax(y, 1)).startswith("detect_nan(): sub made a NaN, as a part of softmax\n")
    finally:
        registry.unregister("broken")


def test_in_place():
    x = norch.tensor([1.0, 0.0])
    text = found(lambda: x.log_())
    assert "log_ made an infinity" in text
    assert "operand   float32 (2,): min 0, max 1, mean 0.5" in text  # as it was
    y = norch.ones(2)
    assert "div_ made an infinity" in found(lambda: y.div_(0))
    z = norch.tensor([1.0, NAN])
    with norch.detect_nan(), pytest.warns(UserWarning, match="add .* was given NaN"):
        z.mul_(2).add(1)


def test_out_and_copies_of_other_dtypes():
    out = norch.empty(2)
    assert "log made a NaN" in found(lambda: norch.log(norch.tensor([-1.0, 1.0]), out=out))
    assert "copy made an infinity" in found(lambda: norch.full((2,), 1e38).to(norch.float16))


def test_a_function_of_the_program_s_own():
    class Host(norch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with np.errstate(all="ignore"):
                return norch.tensor(np.log(x.detach().numpy()))

        @staticmethod
        def backward(ctx, g):
            return norch.tensor(np.full(g.shape, np.nan, np.float32))

    assert "Host made a NaN" in found(lambda: Host.apply(norch.tensor([-1.0])))
    x = norch.tensor([1.0], requires_grad=True)
    assert "in the gradient of operand 0 of Host" in found(lambda: Host.apply(x).sum().backward())


def test_a_step_of_an_optimiser():
    p, g = norch.ones(2), norch.full((2,), 3e38)
    assert "sgd_step_ made an infinity" in found(lambda: norch.sgd_step_([p], [g], lr=10.0))


def test_autocast_to_16_bits():
    x = norch.full((4, 4), 1000.0)

    def work():
        with norch.autocast("cpu", dtype=norch.float16):
            x @ x

    text = found(work)
    assert "matmul made an infinity" in text
    assert "float16 (4, 4): min 1000" in text


def test_vmap_and_gradients_of_functions():
    text = found(lambda: norch.vmap(lambda row: row.log())(norch.tensor([[1.0], [-1.0]])))
    assert text.startswith("detect_nan(): log made a NaN\n")
    root = norch.vmap(norch.func.grad(lambda row: row.sqrt().sum()))
    assert "in the gradient of operand 0 of sqrt" in found(lambda: root(norch.zeros(2, 3)))


# --- What is no fault -----------------------------------------------------------------------------------------------


def test_constants_of_the_program_are_meant():
    mask = norch.tensor([True, False, True])
    scores = norch.randn(3, requires_grad=True)
    with norch.detect_nan():
        norch.full((3,), INF) * 2
        norch.zeros(3).fill_(-INF).exp()
        weights = scores.masked_fill(mask, -INF).softmax(0)
        weights.square().sum().backward()
        norch.where(mask, scores, -INF).max()
        norch.tensor([1.0, INF]).amax()
        scores.detach().clamp(max=INF)
        norch.empty(1000)


def test_what_was_nan_before_is_named_once_and_left_alone():
    data = norch.tensor([1.0, NAN])
    with norch.detect_nan(), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        (data * 2 + norch.ones(2)).exp()
        data.sin()
    (warning,) = seen
    assert "mul (test_detect_nan.py:" in str(warning.message)
    assert "operand 0" in str(warning.message)
    assert "1 NaN of 2" in str(warning.message)


def test_an_infinity_that_was_there_is_said_not_to_be_the_fault():
    x = norch.tensor([INF, 1.0])
    text = found(lambda: x - x)
    assert "sub made a NaN" in text
    assert text.count("held infinities before: not its fault") == 2


@pytest.mark.filterwarnings("ignore:detect_nan")
def test_no_op_is_blamed_whose_values_and_gradients_are_finite():
    """Parts of norch's own composites may be infinite where the result does not use them."""

    def run(sample, case, differentiable):
        built = build(sample, case, norch.float32, requires_grad=differentiable)
        out = [r for r in flat(sample.function(*built.args, **built.kwargs)) if isinstance(r, norch.Tensor)]
        if differentiable:
            wanted = [r.sum() for r in out if r.requires_grad]
            out += [g for g in norch.autograd.grad(wanted, built.tensors, allow_unused=True) if g is not None]
        return all(bool(r.isfinite().all()) for r in out if r.dtype.is_floating_point)

    finite = []
    for sample in SAMPLES.values():
        case = sample.cases[0]
        chosen = sample, case, sample.differentiable and any(o.dtype is None for o in case.operands())
        if norch.float32 in sample.dtypes and run(*chosen):
            finite.append(chosen)
    assert len(finite) > 300
    with norch.detect_nan():
        for chosen in finite:
            run(*chosen)


# --- On and off -----------------------------------------------------------------------------------------------------


def test_start_and_stop():
    detector = norch.detect_nan().start()
    try:
        with pytest.raises(norch.NotFiniteError):
            norch.tensor([-1.0]).sqrt()
    finally:
        detector.stop()
    detector.stop()
    norch.tensor([-1.0]).sqrt()


def test_threads_and_other_devices():
    errors = []

    def work():
        try:
            norch.tensor([-1.0]).sqrt()
        except norch.NotFiniteError as error:
            errors.append(error)

    with norch.detect_nan():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        norch.zeros(2, device="meta").log()
    assert len(errors) == 1


def test_results_are_the_same_and_nothing_is_recorded():
    x = norch.randn(5, 3, requires_grad=True)

    def run():
        x.grad = None
        y = (x.sigmoid() @ norch.ones(3, 2)).logsumexp(1).sum()
        y.backward()
        return y.item(), x.grad.tolist()

    alone = run()
    with norch.detect_nan():
        assert run() == alone


def test_a_captured_step_runs_as_it_is():
    w = norch.ones(3, requires_grad=True)

    @norch.capture
    def step(x):
        w.grad = None
        (w * x).sqrt().sum().backward()

    whole = norch.capture(lambda x: (x * 2).log(), fullgraph=True)
    for _ in range(5):
        step(norch.ones(3))
        whole(norch.ones(3))
    assert "sqrt made a NaN" in found(lambda: step(-norch.ones(3)))
    assert "log made a NaN" in found(lambda: whole(-norch.ones(3)))
    before = step.report().replayed
    step(norch.ones(3))
    assert step.report().replayed == before + 1


def test_anomaly_mode_names_the_line_of_the_forward_pass():
    x = norch.tensor([-1.0], requires_grad=True)
    with norch.autograd.detect_anomaly(), pytest.raises(norch.AutogradError, match="sqrt gave NaN") as caught:
        y = x.sqrt()  # here
        y.sum().backward()
    assert "y = x.sqrt()  # here" in str(caught.value)
    assert (norch.ones(1, requires_grad=True) * 2).grad_fn is not None
