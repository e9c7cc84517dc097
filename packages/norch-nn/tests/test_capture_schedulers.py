"""norch.capture and schedulers: their Python runs in replays, and what they say is what kernels get."""

from __future__ import annotations

from typing import Any

import pytest
from capture_training import (
    Trained,
    adam,
    assert_same,
    compare,
    nothing,
    plain_step,
)

from norch.optim import lr_scheduler, swa_utils

SCHEDULERS = [
    lambda o: lr_scheduler.StepLR(o, 3, 0.5),
    lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.9**epoch),
    lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4),
    lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o, 0.1, 4), lr_scheduler.ExponentialLR(o, 0.9)], [5]
    ),
    lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.9)]),
    lambda o: swa_utils.SWALR(o, 0.001, 5),
]


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("make", SCHEDULERS)
def test_schedulers(make: Any, inside: bool) -> None:
    def make_step(run: Trained) -> Any:
        run.scheduler = make(run.optimizer)  # type: ignore[attr-defined]
        train = plain_step(run)

        def step(x: Any, y: Any) -> Any:
            loss = train(x, y)
            if inside:
                run.scheduler.step()  # type: ignore[attr-defined]
            return loss

        return step

    def between(run: Trained, i: int) -> None:
        if not inside and i:
            run.scheduler.step()  # type: ignore[attr-defined]

    eager, captured = compare(make_step, between=between)
    assert_same(_plain(eager.scheduler), _plain(captured.scheduler))  # type: ignore[attr-defined]
    assert captured.programs


def _plain(scheduler: Any) -> Any:
    return {k: v for k, v in scheduler.state_dict().items() if isinstance(v, int | float | list) and k != "_schedulers"}


def test_a_scheduler_that_reads_the_loss() -> None:
    def make_step(run: Trained) -> Any:
        run.scheduler = lr_scheduler.ReduceLROnPlateau(run.optimizer, patience=1)  # type: ignore[attr-defined]
        train = plain_step(run)

        def step(x: Any, y: Any) -> Any:
            loss = train(x, y)
            run.scheduler.step(loss)  # type: ignore[attr-defined]
            return loss

        return step

    eager, captured = compare(make_step)
    assert eager.optimizer.param_groups[0]["lr"] < 0.01
    assert captured.programs


def test_an_error_in_a_scheduler_comes_after_the_step_it_follows() -> None:
    def make_step(run: Trained) -> Any:
        def rate(epoch: int) -> float:
            if epoch == 8:
                raise RuntimeError("no rate")
            return 0.9**epoch

        scheduler = lr_scheduler.LambdaLR(run.optimizer, rate)
        train = plain_step(run)

        def step(x: Any, y: Any) -> Any:
            loss = train(x, y)
            scheduler.step()
            return loss

        return step

    runs = []
    for captured in (False, True):
        run = Trained(make_step, adam, captured)
        with pytest.raises(RuntimeError, match="no rate"):
            run.train(nothing, 14)
        runs.append(run)
    assert_same(runs[0].losses, runs[1].losses)
    assert_same(runs[0].model.state_dict(), runs[1].model.state_dict())
    assert_same(runs[0].optimizer.state_dict(), runs[1].optimizer.state_dict())
