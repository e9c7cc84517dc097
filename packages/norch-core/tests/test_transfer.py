"""Moving tensors: `to` and its like, to another dtype, to another device, and what ops move by themselves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import norch
from norch import DeviceError, DTypeError, Tensor
from norch.ops.nn.loss import mse_loss
from norch.testing.strict import strict_device

FORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "dtype": lambda x, other: x.to(norch.float64),
    "Python type": lambda x, other: x.to(float).to(norch.float64),
    "dtype=": lambda x, other: x.to(dtype=norch.float64),
    "device, dtype": lambda x, other: x.to("strict", norch.float64),
    "device=, dtype=": lambda x, other: x.to(device=norch.device("strict"), dtype=norch.float64),
    "other": lambda x, other: x.to(other),
    "other=": lambda x, other: x.to(other=other),
    "non_blocking": lambda x, other: x.to("strict", norch.float64, non_blocking=True),
    "positional": lambda x, other: x.to("strict", norch.float64, True),
    "type_as": lambda x, other: x.type_as(other),
    "type": lambda x, other: x.type(norch.float64),
    "double": lambda x, other: x.double(),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str) -> None:
    device = strict_device()
    x = norch.tensor([[1, 2], [3, -4]], dtype=norch.int32, device=device).t()
    other = norch.zeros(5, dtype=norch.float64, device=device)
    result = FORMS[form](x, other)
    assert result.dtype is norch.float64
    assert result.device == device
    assert result.tolist() == [[1, 3], [2, -4]]
    assert x.dtype is norch.int32


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("bool", norch.bool), ("byte", norch.uint8), ("char", norch.int8), ("short", norch.int16), ("int", norch.int32),
        ("long", norch.int64), ("half", norch.float16), ("bfloat16", norch.bfloat16), ("float", norch.float32),
        ("double", norch.float64),
    ],
)  # fmt: skip
def test_casts_by_name(name: str, dtype: norch.dtype) -> None:
    x = norch.tensor([0.0, 1.75, 3.0])
    result = getattr(x, name)()
    assert result.dtype is dtype
    expected = [False, True, True] if name == "bool" else [0, 1.75, 3] if dtype.is_floating_point else [0, 1, 3]
    assert result.tolist() == expected
    assert getattr(result, name)() is result


def test_nothing_to_do_gives_the_tensor_itself() -> None:
    x = norch.ones(2)
    for same in (x.to("cpu"), x.to(norch.float32), x.to(x), x.to(), x.cpu(), x.float(), x.to("cpu", norch.float32)):
        assert same is x
    copy = x.to(norch.float32, copy=True)
    assert copy.data_ptr() != x.data_ptr()
    assert x.to(norch.float64, copy=True).dtype is norch.float64


def test_what_to_refuses() -> None:
    x = norch.ones(2)
    with pytest.raises(DTypeError, match=r"to\(\): expected a dtype, a device or a tensor, got 1.5"):
        x.to(1.5)
    with pytest.raises(DTypeError, match=r"expected a dtype, a device or a tensor, got <class"):
        norch.ones(1).to(norch.Tensor)
    with pytest.raises(TypeError, match=r"to\(\): unexpected argument 'layout'"):
        x.to(norch.float64, layout=None)
    with pytest.raises(DeviceError, match="nowhere"):
        x.to("nowhere")


def test_a_moved_tensor_has_memory_of_its_own() -> None:
    device = strict_device()
    base = norch.arange(6.0)
    for view in (base[2:4], base.view(2, 3).t(), base[1::2], base[:0], base[3]):
        there = view.to(device)
        assert there.device == device
        assert there.is_contiguous()
        assert there.tolist() == view.tolist()
        back = there.cpu()
        back.fill_(9)
        assert there.tolist() == view.tolist()
    assert base.tolist() == [0, 1, 2, 3, 4, 5]


def test_gradients_go_back_to_dtype_and_device() -> None:
    device = strict_device()
    x = norch.tensor([1.0, 2.0], dtype=norch.float16, requires_grad=True)
    y = x.to(device, norch.float64)
    assert not y.is_leaf
    (y * 3).sum().backward()
    assert x.grad.dtype is norch.float16
    assert x.grad.device.type == "cpu"
    assert x.grad.tolist() == [3, 3]
    x.grad = None
    whole = x.to(norch.int64)
    assert not whole.requires_grad  # integers have no gradient
    assert not whole.double().requires_grad
    (x.float() * x.double()).sum().backward()
    assert x.grad.tolist() == [2, 4]


def test_one_element_on_the_cpu_goes_where_the_other_operand_is() -> None:
    device = strict_device()
    x = norch.tensor([1.0, 2.0], device=device)
    on_cpu = norch.arange(4.0) + 1
    for element in (on_cpu[2], norch.tensor(3.0), norch.tensor(3), on_cpu.double()[2], on_cpu.view(2, 2).t()[0, 1]):
        assert (x * element).tolist() == [3, 6]
        assert (element - x).tolist() == [2, 1]
        for result in (x * element, element - x, norch.where(x > 1, element, x), norch.where(x > 1, x, element)):
            assert result.dtype is norch.float32
            assert result.device == device
        assert norch.where(x > 1, element, x).tolist() == [1, 3]
    with pytest.raises(DeviceError, match="cpu.*strict|strict.*cpu"):
        x * on_cpu[:1]
    w = norch.tensor(3.0, requires_grad=True)
    (x * w).sum().backward()
    assert w.grad.device.type == "cpu"
    assert w.grad.item() == 3


@pytest.mark.parametrize("shape", [(), (2,)], ids=["0-d", "vector"])
def test_a_0_d_tensor_on_the_cpu_goes_where_a_0_d_tensor_is(shape: tuple[int, ...]) -> None:
    device = strict_device()
    here = norch.tensor(3.0, requires_grad=True)
    there = norch.full(shape, 2.0, device=device, requires_grad=True)
    for result, value in ((here * there, 6), (there / here, 2 / 3), (norch.where(there > 1, here, there), 3)):
        assert result.device == device
        np.testing.assert_allclose(result.detach().cpu().numpy(), np.full(shape, value, np.float32), rtol=1e-6)
    (here * there).sum().backward()
    assert (here.grad.device.type, there.grad.device) == ("cpu", device)
    assert there.grad.mean().item() == 3
    normal = norch.distributions.Normal(0, 1).icdf(norch.full(shape, 0.5, device=device))
    assert normal.device == device


def test_a_0_d_tensor_on_the_cpu_takes_nothing_from_elsewhere() -> None:
    here, there = norch.tensor(3.0), norch.tensor(2.0, device=strict_device())
    for call in (
        lambda: here.add_(there),
        lambda: norch.add(here, there, out=norch.empty(())),
        lambda: norch.stack([here, there]),
        lambda: norch.complex(there, here),
        lambda: mse_loss(here, there),
    ):
        with pytest.raises(DeviceError, match="cpu.*strict|strict.*cpu"):
            call()
    assert here.item() == 3


@pytest.mark.parametrize("value", [7.0, norch.tensor(7.0)], ids=["number", "0-d"])
def test_indices_on_the_cpu_are_brought_to_the_tensor(value: object) -> None:
    x = norch.zeros(2, 3, device=strict_device())
    mask = norch.tensor([[True, False, False], [False, False, True]])
    x[mask] = value
    assert x.tolist() == [[7, 0, 0], [0, 0, 7]]
    assert x[mask].tolist() == [7, 7]
    x[norch.tensor([1])] = value
    assert x.tolist() == [[7, 0, 0], [7, 7, 7]]
