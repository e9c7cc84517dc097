"""Training a small model eagerly and captured: what the tests of norch.capture with optimisers share."""

from __future__ import annotations

from typing import Any

import norch
import norch.nn.functional as F
from norch import nn, optim


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


def copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: copied(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copied(v) for v in value)
    return value.clone() if isinstance(value, norch.Tensor) else value


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
