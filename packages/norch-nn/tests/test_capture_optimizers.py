"""norch.capture and optimisers: captured training is eager training, to the last bit."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest

import norch
import norch.nn.functional as F
from norch import nn, optim
from norch.optim import lr_scheduler, swa_utils


def make_model() -> Any:
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 3))


def batch(i: int) -> tuple[Any, Any]:
    norch.manual_seed(1000 + i)
    return norch.randn(8, 6), norch.randint(0, 3, (8,))


class Trained:
    """A model, its optimiser and a step, and what the losses were."""

    def __init__(self, make_step: Any, make_optimizer: Any, captured: bool) -> None:
        norch.manual_seed(3)
        self.model = make_model()
        self.optimizer = make_optimizer(list(self.model.parameters()))
        self.step = make_step(self)
        self.captured = norch.capture(self.step) if captured else None
        self.losses: list[Any] = []

    def train(self, between: Any, count: int) -> None:
        for i in range(count):
            between(self, i)
            x, y = batch(i)
            norch.manual_seed(i)
            self.losses.append((self.captured or self.step)(x, y).item())

    @property
    def refusals(self) -> list[str]:
        assert self.captured is not None
        return [entry.refusal for entry in self.captured.entries.values() if entry.refusal is not None]

    @property
    def programs(self) -> list[Any]:
        assert self.captured is not None
        return [program for entry in self.captured.entries.values() for program, _ in entry.programs]


def forward_backward(run: Trained, x: Any, y: Any) -> Any:
    loss = F.cross_entropy(run.model(x), y)
    loss.backward()
    return loss


def plain_step(run: Trained) -> Any:
    def step(x: Any, y: Any) -> Any:
        run.optimizer.zero_grad()
        loss = forward_backward(run, x, y)
        run.optimizer.step()
        return loss

    return step


def adam(params: Any) -> Any:
    return optim.AdamW(params, lr=0.01)


def nothing(run: Trained, i: int) -> None:
    pass


def compare(
    make_step: Any = plain_step, make_optimizer: Any = adam, between: Any = nothing, count: int = 14
) -> tuple[Trained, Trained]:
    """Trains eagerly and captured, and checks that losses, model and optimiser are the same."""
    runs = []
    for captured in (False, True):
        run = Trained(make_step, make_optimizer, captured)
        run.train(between, count)
        runs.append(run)
    eager, captured_run = runs
    assert eager.losses == captured_run.losses
    assert_same(eager.model.state_dict(), captured_run.model.state_dict())
    assert_same(eager.optimizer.state_dict(), captured_run.optimizer.state_dict())
    return eager, captured_run


def assert_same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            assert_same(one, other)
    elif isinstance(a, norch.Tensor):
        assert a.cpu().numpy().tobytes() == b.cpu().numpy().tobytes()
    else:
        assert a == b


VARIANTS = [
    (name, options)
    for name, variants in {
        "SGD": [
            {},
            {"momentum": 0.9},
            {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
            {"momentum": 0.9, "dampening": 0.5, "maximize": True},
        ],
        "Adam": [{}, {"amsgrad": True}, {"weight_decay": 0.1}, {"maximize": True}, {"lr": norch.tensor(0.01)}],
        "AdamW": [{}, {"amsgrad": True, "weight_decay": 0.1, "maximize": True}],
        "NAdam": [{}, {"decoupled_weight_decay": True, "weight_decay": 0.1}],
        "RAdam": [{}, {"weight_decay": 0.1, "betas": (0.9, 0.99)}],
        "Adamax": [{}, {"weight_decay": 0.1}],
        "Adagrad": [{}, {"lr_decay": 0.1, "weight_decay": 0.1}],
        "Adadelta": [{}, {"weight_decay": 0.1, "maximize": True}],
        "RMSprop": [{}, {"centered": True, "momentum": 0.9, "weight_decay": 0.1}],
        "Rprop": [{}, {"maximize": True}],
        "ASGD": [{}, {"t0": 3, "weight_decay": 0.1}],
        "Lion": [{"lr": 0.001}, {"lr": 0.001, "weight_decay": 0.1}],
        "SparseAdam": [{}],
    }.items()
    for options in variants
]


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=lambda value: str(value))
def test_optimisers(name: str, options: Any) -> None:
    def make(params: Any) -> Any:
        return getattr(optim, name)(params, **{"lr": 0.01, **options})

    _, captured = compare(make_optimizer=make)
    assert not captured.refusals
    assert captured.programs


def test_a_step_is_one_program_that_computes_what_it_computed() -> None:
    _, captured = compare()
    (program,) = captured.programs
    assert len(program.parts) == 1 or norch.Device("cpu").backend.device_type != "cpu" or program.fed == []


def test_parameter_groups_with_options_of_their_own() -> None:
    def make(params: Any) -> Any:
        groups = [
            {"params": params[:2], "lr": 0.1},
            {"params": params[2:4], "weight_decay": 0.0},
            {"params": params[4:], "betas": (0.5, 0.9)},
        ]
        return optim.AdamW(groups, lr=0.01)

    _, captured = compare(make_optimizer=make)
    assert captured.programs


def test_options_changed_by_hand_between_steps() -> None:
    def between(run: Trained, i: int) -> None:
        group = run.optimizer.param_groups[0]
        group["lr"] = 0.01 / (1 + i)
        if i == 6:
            group["weight_decay"] = 0.2
        if i == 8:
            group["betas"] = (0.7, 0.9)
        if i == 10:
            group["amsgrad"] = True
        if i == 12:
            group["maximize"] = True

    compare(between=between, count=16)


def test_parameters_added_to_the_optimiser() -> None:
    def make(params: Any) -> Any:
        return optim.Adam(params[:4], lr=0.01)

    def between(run: Trained, i: int) -> None:
        if i == 6:
            run.optimizer.add_param_group({"params": list(run.model.parameters())[4:]})

    compare(make_optimizer=make, between=between)


def test_a_parameter_that_is_frozen_for_a_while() -> None:
    def between(run: Trained, i: int) -> None:
        if i in (5, 10):
            run.model[0].weight.requires_grad_(i == 10)
            run.model[0].weight.grad = None

    _, captured = compare(between=between, count=16)
    assert captured.programs


def test_a_gradient_put_where_the_step_made_none() -> None:
    def make_step(run: Trained) -> Any:
        run.model[0].bias.requires_grad_(False)

        def step(x: Any, y: Any) -> Any:
            run.optimizer.zero_grad(set_to_none=False)
            loss = forward_backward(run, x, y)
            run.optimizer.step()
            return loss

        return step

    def between(run: Trained, i: int) -> None:
        if i == 8:
            run.model[0].bias.grad = norch.ones(16)

    _, captured = compare(make_step, between=between, count=16)
    assert captured.programs


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


def test_states_loaded_in_the_middle() -> None:
    saved: dict[str, Any] = {}

    def between(run: Trained, i: int) -> None:
        if i == 5:
            saved["model"] = {k: v.clone() for k, v in run.model.state_dict().items()}
            saved["optimizer"] = copied(run.optimizer.state_dict())
        if i == 9:
            run.model.load_state_dict(saved["model"])
            run.optimizer.load_state_dict(saved["optimizer"])

    _, captured = compare(between=between, count=16)
    assert captured.programs


def copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: copied(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copied(v) for v in value)
    return value.clone() if isinstance(value, norch.Tensor) else value


def test_a_new_optimiser_in_the_place_of_the_old() -> None:
    def between(run: Trained, i: int) -> None:
        if i == 7:
            run.optimizer = optim.Adam(run.model.parameters(), lr=0.02)

    _, captured = compare(between=between, count=16)
    assert captured.programs


@pytest.mark.parametrize("norm", [2.0, math.inf])
def test_gradients_clipped_by_norm(norm: float) -> None:
    def make_step(run: Trained) -> Any:
        def step(x: Any, y: Any) -> Any:
            run.optimizer.zero_grad()
            forward_backward(run, x, y)
            total = nn.utils.clip_grad_norm_(run.model.parameters(), 0.5, norm)
            run.optimizer.step()
            return total

        return step

    _, captured = compare(make_step)
    assert captured.programs


def test_gradients_set_to_zeros_or_forgotten_after_the_step() -> None:
    for set_to_none in (False, True):

        def make_step(run: Trained, set_to_none: bool = set_to_none) -> Any:
            def step(x: Any, y: Any) -> Any:
                loss = forward_backward(run, x, y)
                run.optimizer.step()
                run.optimizer.zero_grad(set_to_none=set_to_none)
                return loss

            return step

        _, captured = compare(make_step)
        assert captured.programs
        grads = [p.grad for p in captured.model.parameters()]
        assert all(g is None if set_to_none else not g.any() for g in grads)


def test_gradients_accumulated_over_micro_steps() -> None:
    def make_step(run: Trained) -> Any:
        def step(x: Any, y: Any) -> Any:
            return forward_backward(run, x, y)

        return step

    def between(run: Trained, i: int) -> None:
        if i and i % 4 == 0:
            run.optimizer.step()
            run.optimizer.zero_grad()

    _, captured = compare(make_step, between=between, count=30)
    assert captured.programs


def test_gradients_accumulated_with_the_optimisers_step_as_an_argument() -> None:
    runs = []
    for capture in (False, True):
        norch.manual_seed(3)
        model = make_model()
        optimizer = adam(model.parameters())

        def step(x: Any, y: Any, last: bool, model: Any = model, optimizer: Any = optimizer) -> Any:
            loss = F.cross_entropy(model(x), y) / 4
            loss.backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
            return loss

        called = norch.capture(step) if capture else step
        losses = []
        for i in range(28):
            x, y = batch(i)
            norch.manual_seed(i)
            losses.append(called(x, y, i % 4 == 3).item())
        runs.append((losses, model.state_dict(), optimizer.state_dict()))
    assert_same(runs[0][0], runs[1][0])
    assert_same(runs[0][1], runs[1][1])
    assert_same(runs[0][2], runs[1][2])


@pytest.mark.parametrize("unscale", [False, True])
def test_a_gradient_scaler_grows_and_falls(unscale: bool) -> None:
    def make_step(run: Trained) -> Any:
        scaler = run.scaler = norch.amp.GradScaler("cpu", init_scale=1000 / 3, growth_interval=3)  # type: ignore[attr-defined]

        def step(x: Any, y: Any) -> Any:
            run.optimizer.zero_grad()
            loss = F.cross_entropy(run.model(x), y)
            scaler.scale(loss).backward()
            if unscale:
                scaler.unscale_(run.optimizer)
                nn.utils.clip_grad_norm_(run.model.parameters(), 0.3)
            scaler.step(run.optimizer)
            scaler.update()
            return loss.detach() * 0 + scaler.get_scale() * 0

        return step

    def between(run: Trained, i: int) -> None:
        with norch.no_grad():
            bias = run.model[4].bias
            if i == 7:
                run.kept = bias.clone()  # type: ignore[attr-defined]
                bias.fill_(math.inf)
            if i == 8:
                bias.copy_(run.kept)  # type: ignore[attr-defined]
        if i == 11:
            run.scaler.update(7.0)  # type: ignore[attr-defined]

    runs = []
    for captured in (False, True):
        run = Trained(make_step, adam, captured)
        scales = []
        for i in range(16):
            between_ = between if i != 11 else nothing
            between_(run, i)
            x, y = batch(i)
            norch.manual_seed(i)
            (run.captured or run.step)(x, y)
            scales.append(run.scaler.get_scale())  # type: ignore[attr-defined]
        runs.append((run, scales))
    (eager, scales), (captured_run, others) = runs
    assert scales == others
    assert max(scales) > 1000 / 3
    assert any(b < a for a, b in pairwise(scales))
    assert_same(eager.model.state_dict(), captured_run.model.state_dict())
    assert_same(eager.optimizer.state_dict(), captured_run.optimizer.state_dict())
    assert captured_run.programs


def test_a_scaler_that_is_turned_off() -> None:
    def make_step(run: Trained) -> Any:
        scaler = norch.amp.GradScaler("cpu", enabled=False)

        def step(x: Any, y: Any) -> Any:
            run.optimizer.zero_grad()
            loss = F.cross_entropy(run.model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(run.optimizer)
            scaler.step(run.optimizer)
            scaler.update()
            return loss

        return step

    _, captured = compare(make_step)
    assert captured.programs
    compare(make_step, lambda params: OfAdam(params, lr=0.01))


# --- Python that is not norch's ---------------------------------------------------------------------------------------


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


class OfAdam(optim.Adam):
    """One that adds to norch's, now and then."""

    count = 0

    def step(self, closure: Any = None) -> Any:
        super().step()
        self.count += 1
        if self.count % 5 == 0:
            with norch.no_grad():
                for p in self.param_groups[0]["params"]:
                    p.mul_(0.9)


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
    assert "test_capture_optimizers.py" in why


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
        assert "test_capture_optimizers.py" in why


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


# --- More than one ----------------------------------------------------------------------------------------------------


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
    with pytest.raises(norch.CaptureError, match=r"Own.step\(\) is no part of a program.*test_capture_optimizers.py"):
        step(x)
