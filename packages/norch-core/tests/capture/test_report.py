"""`report()` of a captured step."""

from __future__ import annotations

import norch


def trained(device, calls=6):
    w = norch.ones(4, 3, device=device, requires_grad=True)

    @norch.capture
    def step(x):
        w.grad = None
        loss = (x @ w).tanh().sum()
        loss.backward()
        norch.sgd_step_([w], [w.grad], None, lr=0.1)
        return loss

    for _ in range(calls):
        step(norch.ones(2, 4, device=device))
    return step, w


def test_what_it_counts(device):
    step, _ = trained(device)
    report = step.report()
    assert (report.name, report.eager, report.recorded, report.replayed) == ("step", 1, 2, 3)
    assert not report.refused
    assert not report.captured_again
    (program,) = report.programs
    assert program.replayed == 3
    assert program.calls == sum(k.calls for k in program.kernels) >= 4
    assert program.scratch > 0
    assert program.parts == 1
    assert all(k.bytes > 0 and k.seconds is None for k in program.kernels)
    text = str(report)
    assert "step: 3 calls replayed, 2 recorded, 1 eager" in text
    assert "(norch.float32[2, 4]" in text
    assert all(k.op in text for k in program.kernels)


def test_times_leave_the_step_alone(device):
    step, w = trained(device)
    before = w.tolist()
    report = step.report(timed=True)
    assert w.tolist() == before
    assert all(k.seconds >= 0 for k in report.programs[0].kernels)
    assert " us" in str(report)
    step(norch.ones(2, 4, device=device))
    assert w.tolist() == trained(device, 7)[1].tolist()


def test_a_refusal_says_where(device):
    @norch.capture
    def step(x):
        return x * x.sum().item()

    for _ in range(4):
        step(norch.ones(2, device=device))
    report = step.report()
    assert report.replayed == 0
    (why,) = report.refused.values()
    assert "values are read by Python (test_report.py:" in why
    assert why in str(report)


def test_what_is_recorded_again_and_again_says_why(device):
    factors = iter([2.0, 3.0, 4.0, 5.0, 6.0])
    step = norch.capture(lambda x: x * next(factors))
    for _ in range(3):
        step(norch.ones(2, device=device))
    report = step.report()
    (why,) = report.refused.values()
    assert "a number that mul gets was 3.0, then 4.0" in why
    assert "it is recorded again" in why


def test_more_programs_than_are_kept_for_one_signature_are_given_up_with_a_sentence(device):
    weights = [norch.ones(3, device=device, requires_grad=True) for _ in range(10)]

    @norch.capture
    def step(x):
        loss = sum((x * w).sum() for w in weights)
        loss.backward()
        return loss

    for _ in range(4):
        for k in range(10):
            for _ in range(3):
                for i, w in enumerate(weights):  # another leaf has a gradient from before
                    w.grad = norch.ones(3, device=device) if i == k else None
                step(norch.ones(3, device=device))
    assert "more than 8 programs" in str(step.report())
