"""norch.capture and modules: what a captured step sees of modes, hooks, replaced parts and loaded states."""

from __future__ import annotations

from typing import Any

import pytest
from module_cases import CASES

import norch
import norch.nn.functional as F
from norch import nn, switches


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.25)
        self.fc = nn.Linear(4, 3)
        self.slope = 0.1

    def forward(self, x: Any) -> Any:
        x = self.drop(F.leaky_relu(self.norm(self.conv(x)), self.slope))
        return self.fc(x.mean((2, 3)))


class Pair:
    """One model trained eagerly and one in a captured step, on the same data."""

    def __init__(self, make: Any = Net) -> None:
        self.models, self.steps = [], []
        for _ in range(2):
            norch.manual_seed(0)
            model = make()
            self.models.append(model)
            self.steps.append(_step(model, norch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)))
        self.captured = norch.capture(self.steps[1])
        self.steps[1] = self.captured
        self.count = 0

    def change(self, function: Any) -> None:
        for model in self.models:
            function(model)

    def run(self, steps: int = 5) -> None:
        """Steps of both, which must be the same to the last bit."""
        for _ in range(steps):
            norch.manual_seed(100 + self.count)
            x, y = norch.randn(6, 1, 6, 6), norch.randint(0, 3, (6,))
            losses = []
            for step in self.steps:
                norch.manual_seed(self.count)
                losses.append(step(x, y).item())
            assert losses[0] == losses[1], self.count
            self.count += 1
        for (name, a), b in zip(self.models[0].state_dict().items(), self.models[1].state_dict().values(), strict=True):
            assert (a == b).all(), name

    @property
    def replays(self) -> bool:
        """Whether a call now would be replayed."""
        return not replayed_kernels_only(self)


def _step(model: Any, optimizer: Any) -> Any:
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        if loss.requires_grad:
            loss.backward()
            optimizer.step()
        return loss.detach()

    return step


def replayed_kernels_only(pair: Pair) -> bool:
    """Whether a step calls the model's Python."""
    called = []
    forward = Net.forward

    def noting(self: Any, x: Any) -> Any:
        called.append(self)
        return forward(self, x)

    Net.forward = noting  # type: ignore[method-assign]
    try:
        pair.run(1)
    finally:
        Net.forward = forward  # type: ignore[method-assign]
    return pair.models[1] in called


def test_train_and_eval_have_a_program_each_and_find_it_again() -> None:
    pair = Pair()
    pair.run()
    assert pair.replays
    pair.change(lambda m: m.eval())
    pair.run()
    assert pair.replays
    pair.change(lambda m: m.train())
    assert pair.replays
    pair.change(lambda m: m.eval())
    assert pair.replays


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m.drop, "p", 0.5),
        lambda m: setattr(m, "slope", -1),
        lambda m: setattr(m.norm, "momentum", 0.3),
        lambda m: setattr(m.norm, "momentum", None),
        lambda m: setattr(m.conv, "padding", (1, 1)),
        lambda m: m.norm.eval(),
        lambda m: setattr(m, "drop", nn.Identity()),
        lambda m: m.fc.register_forward_hook(lambda module, args, out: out * 2),
        lambda m: m.fc.register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
        lambda m: m.fc.register_full_backward_hook(lambda module, into, out: (into[0] * 2,)),
        lambda m: m.conv.requires_grad_(False),
        lambda m: setattr(m.fc, "bias", None),
        lambda m: delattr(m, "slope") or setattr(m, "slope", 0.5),
        lambda m: setattr(m.fc.weight, "data", m.fc.weight.data * 0.5),
        lambda m: m.fc.weight.data.mul_(0.5),
        lambda m: setattr(m.fc, "weight", nn.Parameter(m.fc.weight.detach() * 0.5)),
        lambda m: m.load_state_dict({k: v * 0 + 0.25 for k, v in m.state_dict().items()}),
        lambda m: m.load_state_dict({k: v.clone() for k, v in m.state_dict().items()}, assign=True),
        lambda m: nn.utils.parametrizations.weight_norm(m.fc),
    ],
)
def test_changes_between_steps(change: Any) -> None:
    pair = Pair()
    pair.run()
    assert pair.replays
    pair.change(change)
    pair.run()


def test_modules_moved_to_another_dtype() -> None:
    def step(model: Any) -> Any:
        return lambda x: model(x.to(next(model.parameters()).dtype)).sum()

    models = [Net().eval() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    eager, captured = step(models[0]), norch.capture(step(models[1]))
    x = norch.randn(2, 1, 5, 5)
    with norch.no_grad():
        for dtype in (norch.float32, norch.float64, norch.float32):
            for model in models:
                model.to(dtype)
            for _ in range(5):
                assert eager(x).item() == captured(x).item()


def test_a_hook_that_is_removed_gives_its_program_back() -> None:
    pair = Pair()
    pair.run()
    before = switches.fingerprint
    handles: list[Any] = []
    pair.change(lambda m: handles.append(m.fc.register_forward_hook(lambda module, args, out: -out)))
    pair.run()
    for handle in handles:
        handle.remove()
    assert switches.fingerprint == before
    assert pair.replays


def test_an_attribute_that_the_step_changes_is_not_captured() -> None:
    class Counting(Net):
        def forward(self, x: Any) -> Any:
            self.slope += 0.01
            return super().forward(x)

    pair = Pair(Counting)
    pair.run(8)
    assert pair.models[1].slope == pair.models[0].slope


def test_a_mode_put_back_within_the_step_is_captured() -> None:
    class Peeking(Net):
        def forward(self, x: Any) -> Any:
            self.eval()
            with norch.no_grad():
                scale = super().forward(x).abs().mean()
            self.train()
            return super().forward(x) * scale

    pair = Pair(Peeking)
    pair.run(8)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_making_a_module_is_no_switch(case: Any) -> None:
    before = switches.fingerprint
    getattr(nn, case.name)(*case.args, **case.kwargs)
    assert switches.fingerprint == before


def test_equal_values_and_first_values_are_no_switches() -> None:
    module = nn.Linear(2, 2)
    before = switches.fingerprint
    module.training = True
    module.note = 1
    module.in_features = 2
    module.cache = norch.ones(2)
    module.cache = norch.ones(2)
    assert switches.fingerprint == before
    module.note = -1
    other = switches.fingerprint
    module.note = -2
    assert len({before, other, switches.fingerprint}) == 3
    module.note = 1
    assert switches.fingerprint == before
