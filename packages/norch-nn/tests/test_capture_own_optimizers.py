"""norch.capture and Python that is not norch's: optimisers of users, hooks, closures; and several in a step."""

from __future__ import annotations

from typing import Any

import pytest
from capture_training import (
    OfAdam,
    Trained,
    adam,
    assert_same,
    batch,
    compare,
    forward_backward,
    plain_step,
)

import norch
from norch import nn, optim
from norch.optim import lr_scheduler, swa_utils


class Own(optim.Optimizer):
    """An optimiser as users write them, of tensor ops and a count."""

    def __init__(self, params: Any, lr: float = 0.05) -> None:
        super().__init__(params, {"lr": lr})

    def step(self, closure: Any = None) -> Any:
        with norch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        state = self.state[p]
                        state["step"] = state.get("step", 0) + 1
                        p.add_(p.grad, alpha=-group["lr"] / state["step"])
                        if state["step"] % 4 == 0:
                            p.mul_(0.99)


@pytest.mark.parametrize("kind", [Own, OfAdam])
def test_optimisers_of_users(kind: Any) -> None:
    def make_step(run: Trained) -> Any:
        scheduler = lr_scheduler.StepLR(run.optimizer, 3, 0.5)
        train = plain_step(run)

        def step(x: Any, y: Any) -> Any:
            loss = train(x, y)
            scheduler.step()
            return loss

        return step

    _, captured = compare(make_step, lambda params: kind(params, lr=0.05))
    assert captured.programs


class Bare(Own):
    """One that leaves it to its caller that nothing is recorded."""

    def step(self, closure: Any = None) -> Any:
        for p in self.param_groups[0]["params"]:
            p.sub_(p.grad, alpha=0.05)


def test_an_optimiser_that_is_called_without_grad() -> None:
    def make_step(run: Trained) -> Any:
        def step(x: Any, y: Any) -> Any:
            run.optimizer.zero_grad()
            loss = forward_backward(run, x, y)
            with norch.no_grad():
                run.optimizer.step()
            return loss

        return step

    _, captured = compare(make_step, Bare)
    assert captured.programs


def test_an_optimiser_in_a_region_of_autocast() -> None:
    def make_step(run: Trained) -> Any:
        def step(x: Any, y: Any) -> Any:
            run.optimizer.zero_grad()
            with norch.autocast("cpu"):
                loss = forward_backward(run, x, y)
                run.optimizer.step()
            return loss

        return step

    _, captured = compare(make_step)  # a program where the backend makes the step in one kernel
    assert captured.programs or "a mode that the step has entered" in captured.refusals[0]
    _, captured = compare(make_step, Own)
    assert "a mode that the step has entered" in captured.refusals[0]


def test_hooks_of_an_optimiser() -> None:
    def make(params: Any) -> Any:
        optimizer = optim.Adam(params, lr=0.01)
        calls = []

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            calls.append(1)
            if len(calls) % 3 == 0:
                with norch.no_grad():
                    params[0].mul_(0.5)

        optimizer.register_step_post_hook(after)
        return optimizer

    def between(run: Trained, i: int) -> None:
        if i == 9:
            run.optimizer.register_step_pre_hook(
                lambda optimizer, args, kwargs: optimizer.param_groups[0].update(lr=0.5)
            )

    _, captured = compare(make_optimizer=make, between=between)
    assert captured.programs


def test_what_the_step_itself_changes_of_an_optimiser_is_refused() -> None:
    def make_step(run: Trained) -> Any:
        train = plain_step(run)

        def step(x: Any, y: Any) -> Any:
            run.optimizer.param_groups[0]["lr"] *= 0.9
            return train(x, y)

        return step

    _, captured = compare(make_step)
    (why,) = captured.refusals
    assert "AdamW is changed by Python of the step" in why
    assert "capture_training.py" in why  # where plain_step goes on


def test_closures_are_refused() -> None:
    def make_step(run: Trained) -> Any:
        def step(x: Any, y: Any) -> Any:
            def closure() -> Any:
                run.optimizer.zero_grad()
                return forward_backward(run, x, y)

            return run.optimizer.step(closure)

        return step

    for make in (adam, lambda params: optim.LBFGS(params, lr=0.1, max_iter=2)):
        _, captured = compare(make_step, make)
        (why,) = captured.refusals
        assert "closure" in why
        assert "test_capture_own_optimizers.py" in why


def test_two_optimisers_in_a_step() -> None:
    runs = []
    for capture in (False, True):
        norch.manual_seed(5)
        maker = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6))
        judge = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
        of_maker = optim.Adam(maker.parameters(), lr=0.01, betas=(0.5, 0.999))
        of_judge = optim.RMSprop(judge.parameters(), lr=0.01)
        scheduler = lr_scheduler.ExponentialLR(of_maker, 0.95)
        loss = nn.BCEWithLogitsLoss()

        def step(
            real: Any, maker: Any = maker, judge: Any = judge, a: Any = of_maker, b: Any = of_judge,
            scheduler: Any = scheduler, loss: Any = loss,
        ) -> Any:  # fmt: skip
            ones, zeros = norch.ones(8, 1), norch.zeros(8, 1)
            a.zero_grad()
            made = maker(norch.randn(8, 4))
            of_made = loss(judge(made), ones)
            of_made.backward()
            a.step()
            b.zero_grad()
            of_judge = (loss(judge(real), ones) + loss(judge(made.detach()), zeros)) / 2
            of_judge.backward()
            b.step()
            scheduler.step()
            return of_made, of_judge

        called = norch.capture(step) if capture else step
        norch.manual_seed(7)
        losses = [[x.item() for x in called(batch(0)[0])] for _ in range(14)]
        runs.append((losses, maker.state_dict(), judge.state_dict(), of_maker.state_dict(), of_judge.state_dict()))
        if capture:
            assert any(entry.programs for entry in called.entries.values())
    for a, b in zip(*runs, strict=True):
        assert_same(a, b)


@pytest.mark.parametrize("inside", [True, False])
def test_averages_of_weights(inside: bool) -> None:
    def make_step(run: Trained) -> Any:
        average = swa_utils.get_ema_multi_avg_fn(0.9)
        run.average = swa_utils.AveragedModel(run.model, multi_avg_fn=average)  # type: ignore[attr-defined]
        train = plain_step(run)

        def step(x: Any, y: Any) -> Any:
            loss = train(x, y)
            if inside:
                run.average.update_parameters(run.model)  # type: ignore[attr-defined]
            return loss

        return step

    def between(run: Trained, i: int) -> None:
        if not inside and i:
            run.average.update_parameters(run.model)  # type: ignore[attr-defined]

    eager, captured = compare(make_step, between=between)
    assert_same(eager.average.state_dict(), captured.average.state_dict())  # type: ignore[attr-defined]
    assert captured.programs


def test_averages_by_hand() -> None:
    def make_step(run: Trained) -> Any:
        run.shadow = [p.detach().clone() for p in run.model.parameters()]  # type: ignore[attr-defined]
        train = plain_step(run)

        def step(x: Any, y: Any) -> Any:
            loss = train(x, y)
            with norch.no_grad():
                for s, p in zip(run.shadow, run.model.parameters(), strict=True):  # type: ignore[attr-defined]
                    s.mul_(0.9).add_(p, alpha=0.1)
            return loss

        return step

    eager, captured = compare(make_step)
    assert_same(eager.shadow, captured.shadow)  # type: ignore[attr-defined]
    assert captured.programs


def test_fullgraph_names_what_is_no_part_of_a_program() -> None:
    model = nn.Linear(3, 1)
    optimizer = Own(model.parameters())

    @norch.capture(fullgraph=True)
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    x = norch.randn(4, 3)
    step(x)
    with pytest.raises(
        norch.CaptureError, match=r"Own.step\(\) is no part of a program.*test_capture_own_optimizers.py"
    ):
        step(x)
