"""autocast over modules: the dtypes of layers and losses, gradients in float32, and training with GradScaler."""

from __future__ import annotations

from typing import Any

import pytest

import norch
from norch import nn
from norch.nn import functional as F
from norch.testing.strict import strict_device
from norch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.usefixtures("on_host")  # regions are those of the CPU

BF16, FLOAT = norch.bfloat16, norch.float32

LAYERS = {
    "nn.Linear(4, 5)(full(3, 4))": "l",
    "nn.Conv2d(3, 4, 3)(full(2, 3, 8, 8))": "l",
    "nn.ConvTranspose2d(3, 4, 3)(full(2, 3, 8, 8))": "l",
    "nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))(full(2, 3, 8, 8))": "l",
    "nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU(), nn.Dropout(0.5))(full(3, 4))": "l",
    "nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.SiLU())(full(2, 3, 8, 8))": "l",
    "nn.Sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, affine=True))(full(2, 3, 8, 8))": "l",
    "nn.LayerNorm(4)(full(3, 4))": "f",
    "nn.Embedding(5, 4)(T.tensor([1, 2]))": "f",
    "nn.Linear(4, 4)(full(3, 4)) + full(3, 4)": "f",
    "nn.PReLU()(full(3, 4))": "l",
    "nn.Bilinear(4, 4, 3)(full(2, 4), full(2, 4))": "f",
    "nn.LSTM(4, 5)(full(3, 2, 4))[0]": "l",
    "nn.LSTM(4, 5, 2, bidirectional=True)(full(3, 2, 4))[1][1]": "l",
    "nn.GRU(4, 5)(full(3, 2, 4))[0]": "f",
    "nn.RNN(4, 5)(full(3, 2, 4))[0]": "l",
    "nn.LSTMCell(4, 5)(full(2, 4))[0]": "f",
    "nn.GRUCell(4, 5)(full(2, 4))": "f",
    "nn.RNNCell(4, 5)(full(2, 4))": "l",
    "nn.MultiheadAttention(4, 2)(full(3, 2, 4), full(3, 2, 4), full(3, 2, 4))[0]": "l",
    "nn.MultiheadAttention(4, 2)(full(3, 2, 4), full(5, 2, 4), full(5, 2, 4), need_weights=False)[0]": "l",
    "nn.TransformerEncoderLayer(4, 2, 8)(full(3, 2, 4))": "f",
    "nn.TransformerDecoderLayer(4, 2, 8)(full(3, 2, 4), full(5, 2, 4))": "f",
    "nn.Upsample(scale_factor=2)(nn.Conv2d(3, 4, 3)(full(2, 3, 8, 8)))": "l",
    "nn.Softmax(-1)(nn.Linear(4, 4)(full(3, 4)))": "l",
    "F.gumbel_softmax(x(3, 4))": "l",
    "F.cross_entropy(x(3, 4), T.tensor([1, 2, 0]))": "f",
    "nn.CrossEntropyLoss(label_smoothing=0.1)(x(3, 4), T.tensor([1, 2, 0]))": "f",
    "nn.MSELoss()(x(3, 4), full(3, 4))": "f",
    "nn.BCEWithLogitsLoss()(x(3, 4), full(3, 4))": "f",
    "nn.BCELoss()(x(3, 4), full(3, 4))": "f",
    "nn.NLLLoss()(x(3, 4), T.tensor([1, 2, 0]))": "f",
    "F.poisson_nll_loss(x(3, 4), x(3, 4))": "f",
    "F.gaussian_nll_loss(x(3, 4), x(3, 4), x(3, 4))": "l",
    "F.hinge_embedding_loss(x(3, 4), x(3, 4))": "f",
    "F.cosine_embedding_loss(x(3, 4), x(3, 4), full(3))": "f",
    "F.margin_ranking_loss(x(3), x(3), full(3))": "f",
    "F.soft_margin_loss(x(3, 4), x(3, 4))": "f",
    "F.triplet_margin_loss(x(3, 4), x(3, 4), full(3, 4))": "f",
    "F.multi_margin_loss(x(3, 4), T.tensor([1, 2, 0]))": "f",
    "F.multilabel_margin_loss(x(3, 4), T.tensor([[1, 2, -1, 0]] * 3))": "f",
    "F.ctc_loss(x(5, 2, 4), T.tensor([[1, 2], [1, 2]]), T.tensor([5, 5]), T.tensor([2, 2]))": "f",
    "F.interpolate(x(2, 3, 8, 8), scale_factor=2, mode='bilinear')": "l",
    "F.local_response_norm(x(2, 3, 8, 8), 2)": "f",
    "F.pairwise_distance(x(3, 4), x(3, 4))": "l",
}
"""The dtype of results on the CPU: "l" for bfloat16, "f" for float32. `x` makes bfloat16 tensors, `full` float32."""


def result(expression: str, lib: Any, short: Any) -> Any:
    lib.manual_seed(0)
    scope = {"T": lib, "nn": lib.nn, "F": lib.nn.functional, "full": lib.rand, "x": lambda *s: lib.rand(*s).to(short)}
    with lib.autocast("cpu"):
        return eval(expression, scope).dtype


@pytest.mark.parametrize("expression", LAYERS)
def test_dtypes_of_layers_and_losses(expression: str) -> None:
    assert result(expression, norch, BF16) is {"l": BF16, "f": FLOAT}[LAYERS[expression]]


@pytest.mark.parametrize("expression", LAYERS)
def test_dtypes_beside_pytorch(expression: str) -> None:
    torch = pytest.importorskip("torch")
    try:
        found = result(expression, torch, torch.bfloat16)
    except RuntimeError:  # PyTorch's LSTM in bfloat16 needs AVX-512
        assert "nn.LSTM" in expression
        assert torch.backends.cpu.get_cpu_capability() == "AVX2"
        return
    assert found is {"l": torch.bfloat16, "f": torch.float32}[LAYERS[expression]]


MODULES = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2)), (4, 6)),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)),
        (4, 3, 6, 6),
    ),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (3, 5, 8)),
    "lstm": (lambda: nn.LSTM(6, 5, 2, bidirectional=True), (4, 3, 6)),
    "gru": (lambda: nn.GRU(6, 5), (4, 3, 6)),
    "rnn": (lambda: nn.RNN(6, 5), (4, 3, 6)),
    "lstm cell": (lambda: nn.LSTMCell(6, 5), (4, 6)),
    "gru cell": (lambda: nn.GRUCell(6, 5), (4, 6)),
    "projected lstm": (lambda: nn.LSTM(6, 5, proj_size=3), (4, 3, 6)),
}


@pytest.mark.parametrize("device", ["cpu", "strict"])
@pytest.mark.parametrize("name", MODULES)
def test_gradients_of_modules_are_float32_and_near_those_without(name: str, device: str) -> None:
    strict_device()
    norch.manual_seed(3)
    make, shape = MODULES[name]
    module, x = make().to(device), norch.randn(*shape).to(device)

    def gradients(enabled: bool) -> tuple[Any, list[Any]]:
        module.zero_grad()
        with norch.autocast(device, enabled=enabled):
            out = module(x)
            out = out[0] if isinstance(out, tuple) else out
            loss = F.mse_loss(out, norch.ones_like(out))
        loss.backward()
        return loss, [p.grad for p in module.parameters()]

    (loss, found), (exact, expected) = gradients(True), gradients(False)
    assert loss.dtype is FLOAT
    assert abs(loss.item() - exact.item()) < 0.02 * exact.item()
    for a, b in zip(found, expected, strict=True):
        assert a.dtype is FLOAT
        assert (a - b).norm().item() < 0.06 * b.norm().item() + 5e-3


def test_checkpoint_computes_again_as_it_did() -> None:
    layer, x = nn.Linear(4, 4), norch.rand(3, 4, requires_grad=True)
    seen = []

    def part(value: Any) -> Any:
        out = layer(value)
        seen.append(out.dtype)
        return out.sin()

    with norch.autocast("cpu", dtype=norch.float16):
        loss = F.mse_loss(checkpoint(part, x, use_reentrant=False), norch.zeros(3, 4))
    loss.backward()
    assert seen == [norch.float16] * 2
    assert layer.weight.grad.dtype is x.grad.dtype is FLOAT
    seen.clear()
    checkpoint(part, x).sum().backward()
    assert seen == [FLOAT] * 2


def test_dtypes_on_other_devices() -> None:
    """As on a GPU: all of recurrence in float16, softmax, norms and resizing in float32."""
    strict_device()

    def full(*size: int) -> Any:
        return norch.rand(*size).to("strict")

    low, x = norch.float16, full(3, 2, 4)
    with norch.autocast("strict"):
        for layer in (nn.LSTM(4, 5), nn.GRU(4, 5), nn.RNN(4, 5), nn.MultiheadAttention(4, 2)):
            args = (x, x, x) if isinstance(layer, nn.MultiheadAttention) else (x,)
            assert layer.to("strict")(*args)[0].dtype is low
        for cell in (nn.GRUCell(4, 5), nn.RNNCell(4, 5)):
            assert cell.to("strict")(x[0]).dtype is low
        assert nn.LSTMCell(4, 5).to("strict")(x[0])[0].dtype is low
        for found in (
            nn.LayerNorm(4).to("strict")(x.half()),
            nn.Softmax(-1)(x.half()),
            F.softmin(x.half(), -1),
            F.interpolate(full(1, 2, 4, 4).half(), scale_factor=2),
            F.cross_entropy(x[0].half(), norch.tensor([1, 2], device="strict")),
            F.gumbel_softmax(x.half()),
        ):
            assert found.dtype is FLOAT
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            nn.BCELoss()(full(3), full(3))


def test_functional_call_and_parametrised_weights() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    with norch.autocast("cpu"):
        out = norch.func.functional_call(layer, dict(layer.named_parameters()), (norch.rand(2, 4),))
        grad = norch.func.grad(lambda p: norch.func.functional_call(layer, p, (norch.rand(2, 4),)).float().sum())(
            dict(layer.named_parameters())
        )
    assert out.dtype is BF16
    assert {g.dtype for g in grad.values()} == {FLOAT}


def test_what_prepares_or_follows_a_step_is_left_alone() -> None:
    weight = norch.zeros(8, 8, requires_grad=True)
    with norch.autocast("cpu"):
        nn.init.orthogonal_(weight)
        found = weight.detach()
        with norch.autocast("cpu", enabled=False):
            assert norch.allclose(found @ found.mT, norch.eye(8), atol=1e-5)
        weight.grad = found * 1.001
        exact = weight.grad.norm()
        assert nn.utils.clip_grad_norm_([weight], 1.0).item() == pytest.approx(exact.item(), rel=1e-6)


def _train(lib: Any, dtype: Any, weights: dict[str, Any], steps: int = 12) -> list[float]:
    """The losses of a small network that learns a line."""
    layers = lib.nn
    model = layers.Sequential(layers.Linear(3, 16), layers.Tanh(), layers.LayerNorm(16), layers.Linear(16, 1))
    model.load_state_dict({k: lib.tensor(v) for k, v in weights.items()})
    optimizer = lib.optim.AdamW(model.parameters(), lr=0.05)
    scaler = lib.amp.GradScaler("cpu", 1024.0, enabled=dtype is lib.float16)
    x = lib.linspace(-1, 1, 24).reshape(8, 3)
    y = x.sum(1, keepdim=True)
    losses = []
    for _ in range(steps):
        with lib.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            loss = layers.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        lib.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_training(dtype: str) -> None:
    norch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 1))
    weights = {k: v.tolist() for k, v in model.state_dict().items()}
    full = _train(norch, None, weights)
    found = _train(norch, getattr(norch, dtype), weights)
    assert found != full
    assert found[-1] < 0.2 * found[0]
    assert found == pytest.approx(full, rel=0.1, abs=0.02)
    torch = pytest.importorskip("torch")
    assert found == pytest.approx(_train(torch, getattr(torch, dtype), weights), rel=0.05, abs=0.01)
