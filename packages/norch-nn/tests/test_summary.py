"""norch.summary: its figures are those that torchvision publishes, that torchinfo prints and that PyTorch counts; the
model is afterwards what it was."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import norch
from norch import nn
from norch.testing.strict import strict_device
from norch.vision import models

PUBLISHED = {
    "alexnet": (61_100_840, 0.714),
    "resnet18": (11_689_512, 1.814),
    "resnet50": (25_557_032, 4.089),
    "resnext50_32x4d": (25_028_904, 4.230),
    "mobilenet_v2": (3_504_872, 0.301),
    "densenet121": (7_978_856, 2.834),
    "efficientnet_b0": (5_288_548, 0.386),
    "vit_b_16": (86_567_656, 17.564),
    "convnext_tiny": (28_589_128, 4.456),
}
"""Parameters, and billions of multiply-adds of a picture of 224 x 224, as torchvision documents its weights."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_figures(name: str) -> None:
    with norch.device("meta"):  # shapes are enough
        found = norch.summary(getattr(models, name)(), (1, 3, 224, 224))
    parameters, billions = PUBLISHED[name]
    assert found.parameters == found.trainable == parameters
    assert found.flops / 2e9 == pytest.approx(billions, abs=0.0005)


def models_of(nn: Any) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Models of norch's modules, or PyTorch's, and the shape of an input."""
    convolutions = nn.Sequential(
        nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
        nn.ConvTranspose2d(8, 6, 3, stride=2, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3),
    )  # fmt: skip
    return {
        "convolutions": (convolutions, (2, 4, 9, 9)),
        "dilated": (nn.Sequential(nn.Conv1d(3, 4, 3, dilation=2), nn.Conv1d(4, 4, 1)), (2, 3, 20)),
        "volumes": (nn.Sequential(nn.Conv3d(2, 3, 3), nn.ConvTranspose3d(3, 2, 2)), (1, 2, 5, 5, 5)),
        "linear": (nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.Linear(7, 2)), (3, 4, 5)),
        "bilinear": (nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Linear(3, 3), nn.Flatten()), (4, 6)),
    }


@pytest.mark.parametrize("name", models_of(nn))
def test_flops_are_those_that_pytorch_counts(name: str) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    model, shape = models_of(torch.nn)[name]
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(torch.ones(shape))
    assert norch.summary(models_of(nn)[name][0], shape).flops == counter.get_total_flops()


@pytest.mark.parametrize("name", models_of(nn))
def test_layers_are_those_of_torchinfo(name: str) -> None:
    torch, torchinfo = pytest.importorskip("torch"), pytest.importorskip("torchinfo")
    model, shape = models_of(torch.nn)[name]
    known = torchinfo.summary(model, input_data=torch.ones(shape), verbose=0)
    found = norch.summary(models_of(nn)[name][0], shape)
    layers = [layer for _, layer in found.model.all()]
    assert [layer.kind for layer in layers] == [info.class_name for info in known.summary_list]
    assert [layer.outputs for layer in layers] == [info.output_size for info in known.summary_list]
    assert [layer.total("parameters") for layer in layers] == [info.num_params for info in known.summary_list]
    assert (found.parameters, found.trainable) == (known.total_params, known.trainable_params)
    assert found.parameter_bytes == known.total_param_bytes
    leaves = sum([layer.nbytes for layer in layers if not layer.layers and layer.parameters])
    assert 2 * leaves == known.total_output_bytes  # torchinfo counts each twice, for its gradient


@pytest.mark.parametrize(("bias", "layers", "sides"), [(True, 1, 1), (False, 2, 2)])
def test_flops_of_recurrent_layers_are_those_of_their_products(bias: bool, layers: int, sides: int) -> None:
    length, count, width, hidden = 5, 3, 4, 6
    for kind, gates in ((nn.RNN, 1), (nn.GRU, 3), (nn.LSTM, 4)):
        model = kind(width, hidden, layers, bias=bias, bidirectional=sides == 2)
        inputs = [width] + [hidden * sides] * (layers - 1)
        expected = sum([2 * length * count * gates * hidden * (n + hidden) * sides for n in inputs])
        assert norch.summary(model, (length, count, width)).flops == expected


def test_flops_of_attention_are_those_of_its_two_products() -> None:
    class Net(nn.Module):
        def forward(self, q: norch.Tensor, k: norch.Tensor, v: norch.Tensor) -> norch.Tensor:
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    q, k, v = norch.ones(2, 3, 5, 8), norch.ones(2, 3, 7, 8), norch.ones(2, 3, 7, 4)
    assert norch.summary(Net(), (q, k, v)).flops == 2 * 2 * 3 * (5 * 7 * 8 + 5 * 7 * 4)


def test_flops_do_not_depend_on_the_dtype_nor_on_what_the_backend_has() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
    expected = 2 * (4 * 4 * 27 + 32)
    with norch.autocast("cpu", dtype=norch.bfloat16):
        assert norch.summary(model, (1, 3, 4, 4)).flops == expected
    strict_device()  # it has primitives only, and memory that the host does not see
    assert norch.summary(model.to("strict"), (1, 3, 4, 4), mode="train").flops == expected
    assert model[1].running_mean.tolist() == [0, 0, 0, 0]
    assert norch.explain(model[1].bias).layout.cells[0].value == "0."


# --- Models of many kinds -------------------------------------------------------------------------------------------


class Shared(nn.Module):
    """A layer called twice with one shape and then with others, one that is not called, tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.layer = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight
        self.parts = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.unused = nn.Linear(2, 2)
        self.scale = nn.Parameter(norch.ones(1), requires_grad=False)

    def forward(self, x: norch.Tensor, long: bool = False) -> dict[str, Any]:
        h = self.layer(self.layer(self.embed(x))) * self.scale
        for i in range(6 if long else 1):
            self.layer(norch.ones(i + 1, 4))
        for part in self.parts:
            h = part(h)
        return {"logits": self.head(h), "states": (h, None)}


def test_shared_modules_and_weights_and_dicts() -> None:
    model = Shared()
    found = norch.summary(model, norch.zeros(2, 3, dtype=norch.int64))
    rows = {(layer.path, str(layer.outputs)): layer for _, layer in found.model.all()}
    twice = rows["layer", "[2, 3, 4]"]
    assert (twice.calls, twice.parameters, twice.flops) == (2, 20, 2 * 2 * 6 * 16)
    assert rows["layer", "[1, 4]"].is_shared
    assert rows["unused", "None"].calls == 0
    assert found.parameters == sum([p.numel() for p in model.parameters()]) == 28 + 20 + 40 + 6 + 1
    assert found.parameters - found.trainable == 1
    assert sum([layer.parameters for layer in rows.values() if not layer.is_shared]) == found.parameters
    assert found.model.outputs == {"logits": [2, 3, 7], "states": [2, 3, 4]}
    text = str(found).splitlines()
    assert text[2].split() == [
        "Shared",
        "{logits:",
        "[2,",
        "3,",
        "7],",
        "states:",
        "[2,",
        "3,",
        "4]}",
        "1",
        "frozen",
        "--",
    ]
    assert any(line.startswith("  layer (Linear) x2 ") for line in text)
    assert any(line.startswith("  parts.0 (Linear) ") for line in text)
    assert any(line.startswith("  unused (Linear), not called ") for line in text)
    assert "parameters  95, 94 of them trainable" in text


def test_many_shapes_of_one_module_are_one_row() -> None:
    found = norch.summary(Shared(), norch.zeros(1, 1, dtype=norch.int64), long=True)
    assert "layer (Linear), other shapes x3" in str(found)


def test_depth() -> None:
    model = nn.Sequential(nn.Sequential(nn.Sequential(nn.Linear(2, 2))))
    lines = str(norch.summary(model, (1, 2), depth=1)).splitlines()
    assert lines[3].split() == ["0", "(Sequential)", "[1,", "2]", "6", "8"]
    assert len(str(norch.summary(model, (1, 2))).splitlines()) == len(lines) + 2


def test_without_an_example_there_are_parameters_only() -> None:
    found = norch.summary(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    assert [line.split() for line in str(found).splitlines()[2:5]] == [
        ["Sequential", "--"], ["0", "(Linear)", "9"], ["1", "(ReLU)", "--"],
    ]  # fmt: skip
    assert (found.parameters, found.flops) == (9, 0)


def test_ways_to_give_an_example() -> None:
    class Net(nn.Module):
        def forward(self, a: norch.Tensor, b: norch.Tensor, times: int = 1) -> norch.Tensor:
            return a @ b * times

    a, b = norch.ones(2, 3), norch.ones(3, 4)
    for example, more in (
        ((a, b), {}),
        ({"a": a, "b": b}, {}),
        ((a,), {"b": b}),
        ([a, b, 2], {}),
        (None, dict(a=a, b=b)),
    ):
        assert norch.summary(Net(), example, **more).flops == 2 * 2 * 3 * 4
    assert norch.summary(nn.Linear(3, 2), np.ones((1, 3), np.float32)).flops == 12
    double = nn.Linear(3, 2).double()
    assert norch.summary(double, (1, 3)).input_bytes == 24


def test_lazy_modules_stay_lazy() -> None:
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.Flatten(), nn.LazyLinear(2))
    before = norch.get_rng_state().tolist()
    found = norch.summary(model, (1, 3, 5, 5))
    assert found.parameters == 4 * 27 + 4 + 2 * 36 + 2
    assert type(model[0]) is nn.LazyConv2d
    assert norch.get_rng_state().tolist() == before


# --- The model afterwards -------------------------------------------------------------------------------------------


class Moody(nn.Module):
    """Its forward pass changes all that it can."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.drop = nn.Dropout(0.5)
        self.linear = nn.Linear(3, 3)
        self.register_buffer("calls", norch.zeros(()))
        self.history: list[Any] = []
        self.cache: dict[str, Any] = {"kept": 1}
        self.plain = norch.zeros(2)
        self.keys = [(norch.zeros(2), norch.ones(2))]
        self.count = 0

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        self.calls += 1
        self.plain.add_(1)
        self.keys[0][1][0] = 5
        self.count += 1
        self.history.append(x)
        self.cache["x"] = x
        self.new = x
        self.register_buffer("late", x)
        random.random(), np.random.rand()
        self.drop.p = 0.25
        return self.linear(self.drop(self.norm(x.mul_(2))))


def state_of(model: Moody) -> Any:
    attributes = {n: {k: id(v) for k, v in m.__dict__.items()} for n, m in model.named_modules()}
    buffers = {n: (b.tolist(), id(b.buffer), b._version) for n, b in model.named_buffers()}
    randomness = norch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()
    others = (
        model.plain.tolist(),
        model.keys[0][1].tolist(),
        model.history.copy(),
        model.cache.copy(),
        model.count,
        model.drop.p,
    )
    grads = [p.grad for p in model.parameters()]
    return (
        attributes,
        buffers,
        randomness,
        others,
        grads,
        [m.training for m in model.modules()],
        list(model.state_dict()),
    )


@pytest.mark.parametrize("mode", ["eval", "train", "same"])
def test_the_model_is_as_it_was(mode: str) -> None:
    model, x = Moody(), norch.arange(12.0).reshape(4, 3)
    model.drop.eval()
    model.linear(x).sum().backward()
    before = state_of(model)
    found = norch.summary(model, x, mode=mode)
    assert found.flops == 2 * 4 * 9
    assert state_of(model) == before
    assert x.tolist() == norch.arange(12.0).reshape(4, 3).tolist()
    assert model(x).requires_grad


@norch.no_grad()
def test_captured_steps_need_not_be_recorded_again() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    step, x = norch.capture(lambda x: model(x)), norch.ones(2, 3)
    for i in range(6):
        if i == 4:
            norch.summary(model, x)
        step(x)
    assert (step.report().recorded, step.report().replayed) == (2, 3)


def test_a_graph_that_was_made_before_can_be_differentiated() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    x = norch.arange(12.0).reshape(4, 3)
    loss = model(x).square().sum() + (model[1].running_mean * model[0].weight).sum()
    norch.summary(model, x, mode="train")
    loss.backward()


def test_hooks_of_users_run_and_compiled_modules_are_looked_into() -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    seen: list[str] = []
    handle = model[0].register_forward_hook(lambda *_: seen.append("called"))
    assert norch.summary(model, (1, 3)).flops == 18
    assert seen == ["called"]
    handle.remove()
    model.compile()
    for _ in range(5):
        assert norch.summary(model, (1, 3)).flops == 18
        model(norch.ones(1, 3))


def test_errors_name_the_layer() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(4, 3)))
    model.eval()
    with pytest.raises(norch.ShapeError) as raised:
        norch.summary(model, (1, 3), mode="train")
    assert raised.value.__notes__ == ["norch.summary(): in 1.0 (Linear)"]
    assert not model.training
    assert "forward" not in model.__dict__
    with pytest.raises(norch.DTypeError, match=r"summary\(\): expected a module"):
        norch.summary(norch.ones(1), (1, 3))
    with pytest.raises(norch.DTypeError, match=r"explain\(\): give a function"):
        norch.explain(model)
    with pytest.raises(ValueError, match="mode must be"):
        norch.summary(model, (1, 3), mode="test")


def test_outputs_of_many_kinds() -> None:
    @dataclass
    class Output:
        logits: Any
        states: Any = None

    endless: list[Any] = []
    endless.append(endless)

    class Net(nn.Module):
        def forward(self, x: norch.Tensor) -> Any:
            return Output(x @ x, {"all": [x, None, (x,)], "endless": endless})

    found = norch.summary(Net(), (2, 2))
    assert found.model.outputs == {"logits": [2, 2], "states": {"all": ([2, 2], [2, 2])}}
    assert found.flops == 16


def test_notebooks_show_a_table() -> None:
    page = norch.summary(nn.Sequential(nn.Linear(3, 2)), (1, 3))._repr_html_()
    assert page.startswith("<table><thead><tr><th>layer (type)</th>")
    assert '<td>[1, 2]</td><td style="text-align: right">8</td><td style="text-align: right">12</td>' in page
