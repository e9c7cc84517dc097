"""`quantize_dynamic` under PyTorch's paths."""

from __future__ import annotations

import pytest

import norch
from norch import nn
from norch.nn import quantized
from norch.quantization import quantize_dynamic


def model() -> nn.Module:
    norch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Sequential(nn.ReLU(), nn.Linear(16, 16)), nn.LSTM(16, 4)).eval()


def kinds(model: nn.Module) -> list[bool]:
    return [type(part) is quantized.Linear for part in (model[0], model[1][1])]


def test_a_copy_has_weights_of_8_bits() -> None:
    float_model, x = model(), norch.randn(3, 8)
    made = quantize_dynamic(float_model, {nn.Linear, nn.LSTM}, dtype=norch.qint8)
    assert (kinds(made), kinds(float_model), type(made[2])) == ([True, True], [False, False], nn.LSTM)
    assert (made[:2](x) - float_model[:2](x)).abs().max().item() < 0.02
    assert norch.ao.quantization.quantize_dynamic is quantize_dynamic
    assert quantize_dynamic(float_model, inplace=True) is float_model
    assert kinds(float_model) == [True, True]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"1"}, [False, True]),
        ({"1.1"}, [False, True]),
        ({"0"}, [True, False]),
        ({nn.Linear: object(), "1": None}, [True, False]),
        ({"1": object(), nn.Linear: None}, [False, True]),
        ({nn.LSTM}, [False, False]),
    ],
)
def test_which_layers(spec: object, expected: list[bool]) -> None:
    assert kinds(quantize_dynamic(model(), spec)) == expected


def test_other_dtypes_are_not_there() -> None:
    with pytest.raises(NotImplementedError, match="norch has qint8 without a mapping"):
        quantize_dynamic(model(), dtype=norch.float16)


def test_a_model_that_is_prepared_for_quantisation_computes_with_floats() -> None:
    stubs = nn.Sequential(norch.quantization.QuantStub(), nn.Linear(2, 2), norch.ao.quantization.DeQuantStub())
    x = norch.randn(3, 2)
    assert norch.equal(stubs(x), stubs[1](x))
    assert list(stubs.state_dict()) == ["1.weight", "1.bias"]
    parts = norch.nn.quantized.FloatFunctional()
    assert type(parts) is norch.ao.nn.quantized.FloatFunctional
    assert norch.equal(parts.add_relu(x, x), (x + x).relu())
    assert norch.equal(parts.cat([x, x], dim=1), norch.cat([x, x], 1))
    assert norch.equal(parts.matmul(x, parts.mul_scalar(x.T, 2)), parts.add(x @ x.T, parts.mul(x, norch.ones(2)) @ x.T))
    with pytest.raises(RuntimeError, match="not intended to use the 'forward'"):
        parts(x)
