"""norch.capture and optimisers: captured training is eager training, to the last bit."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from capture_training import (
    OfAdam,
    Trained,
    adam,
    assert_same,
    batch,
    compare,
    copied,
    forward_backward,
    make_model,
    nothing,
)

import norch
import norch.nn.functional as F
from norch import nn, optim

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
        "Adafactor": [{}, {"weight_decay": 0.1, "maximize": True}],
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
