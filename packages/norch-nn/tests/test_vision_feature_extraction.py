"""What the modules inside of a model give: `create_feature_extractor`."""

from __future__ import annotations

from copy import deepcopy

import pytest

import norch
from norch import nn
from norch.vision.models.feature_extraction import create_feature_extractor


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.relu, self.second = nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return self.relu(self.second(self.relu(self.first(x))) + x)


def make() -> nn.Module:
    norch.manual_seed(0)
    return nn.Sequential(Block(), Block(), nn.Dropout(0.5), nn.Linear(3, 2))


def test_results_are_those_of_the_modules() -> None:
    model = make().eval()
    x = norch.randn(4, 3)
    extractor = create_feature_extractor(model, {"0": "block", "1.relu": "before", "1.relu_1": "after"})
    found = extractor(x)
    assert list(found) == ["block", "before", "after"]
    block = model[0](x)
    before = model[1].relu(model[1].first(block))
    for name, wanted in {"block": block, "before": before, "after": model[1](block)}.items():
        assert norch.equal(found[name], wanted), name
    assert extractor.state_dict().keys() == model.state_dict().keys()
    found["after"].sum().backward()
    assert model[0].first.weight.grad is not None
    assert not model[0]._forward_hooks


def test_what_comes_later_does_not_run() -> None:
    model = make()
    model[3].forward = lambda x: pytest.fail("ran")
    assert list(create_feature_extractor(model, ["1"])(norch.randn(2, 3))) == ["1"]


def test_training_and_evaluation_have_their_own_nodes() -> None:
    extractor = create_feature_extractor(make(), train_return_nodes={"2": "x"}, eval_return_nodes={"1": "y"})
    x = norch.randn(64, 3)
    assert (extractor(x)["x"] == 0).any()
    twin = deepcopy(extractor).eval()
    assert list(twin(x)) == ["y"]
    assert list(extractor(x)) == ["x"]
    twin.state_dict()["0.first.weight"].zero_()
    assert not norch.equal(twin.eval()(x)["y"], extractor.eval()(x)["y"])


def test_refusals() -> None:
    model = make()
    with pytest.raises(ValueError, match="Sequential has no module flatten, 7"):
        create_feature_extractor(model, ["flatten", "7"])
    with pytest.raises(ValueError, match="name return_nodes, or"):
        create_feature_extractor(model)
    with pytest.raises(RuntimeError, match=r"did not call 0\.relu_4"):
        create_feature_extractor(model, ["0.relu_4"])(norch.randn(2, 3))
