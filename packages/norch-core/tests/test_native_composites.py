"""Composites on a backend that compiles them all: launched, recorded and differentiated as one op each.

The reference compiles primitives only, so that this path would else be tried by native packages alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from native_backend import NativeBackend

import norch
from norch.backend.registry import register, unregister
from norch.dtype import float32, float64, int64
from norch.ops.families import by_name
from norch.testing.samples import SAMPLES, checks

Tensor = norch.Tensor


@pytest.fixture(scope="module")
def native() -> Iterator[NativeBackend]:
    backend = NativeBackend()
    register(backend)
    yield backend
    unregister("native")


COMPOSITES = {name for name, op in by_name().items() if op.kind == "composite"}
RECORDS = [s for name, s in SAMPLES.items() if name.split(".")[0] in COMPOSITES and float64 in s.dtypes]
WITHOUT_KERNEL = {"batch_norm", "dropout"}
"""Their records take another way: running statistics, and nothing dropped."""


@pytest.mark.parametrize("sample", RECORDS, ids=lambda s: s.name)
def test_values_and_gradients(sample: Any, native: NativeBackend) -> None:
    native.calls.clear()
    checks.check_values(sample, "native", dtypes=(float32, float64))
    checks.check_values(sample, "native", "offset", dtypes=(float32,))
    assert native.calls or sample.name in WITHOUT_KERNEL
    if sample.differentiable:
        checks.check_gradients(sample, "native")


# Of each: the shapes of its operands, and the call.
CALLS: dict[str, tuple[tuple[tuple[int, ...], ...], Callable[..., Tensor]]] = {
    "relu": (((2, 3),), lambda x: norch.relu(x)),
    "softmax": (((2, 3),), lambda x: norch.softmax(x, 1)),
    "silu": (((2, 3),), lambda x: norch.silu(x)),
    "clamp": (((2, 3),), lambda x: norch.clamp(x, -0.5, 0.5)),
    "add with alpha": (((2, 3), (3,)), lambda a, b: norch.add(a, b, alpha=0.5)),
    "mse_loss": (((2, 3), (2, 3)), lambda a, b: norch.mse_loss(a, b)),
    "linear": (((2, 3), (4, 3), (4,)), lambda x, w, b: norch.linear(x, w, b)),
    "linear without bias": (((2, 3), (4, 3)), lambda x, w: norch.linear(x, w)),
    "layer_norm": (((2, 3), (3,), (3,)), lambda x, w, b: norch.layer_norm(x, (3,), w, b)),
    "layer_norm with a bias only": (((2, 3), (3,)), lambda x, b: norch.layer_norm(x, (3,), None, b)),
    "attention": (((2, 3), (4, 3), (4, 3)), lambda q, k, v: norch.scaled_dot_product_attention(q, k, v)),
}
each_call = pytest.mark.parametrize("name", CALLS)


def operands(name: str, **options: Any) -> list[Tensor]:
    norch.manual_seed(0)
    return [norch.randn(*shape, device="native", dtype=float64, **options) for shape in CALLS[name][0]]


@each_call
def test_one_node_is_recorded(name: str, native: NativeBackend) -> None:
    tensors, call = operands(name), CALLS[name][1]
    assert call(*tensors).grad_fn is None
    for at in range(len(tensors)):
        given = [t.clone().requires_grad_(i == at) for i, t in enumerate(tensors)]
        node = call(*given).grad_fn
        assert [edge is not None for edge, _ in node.next_functions].count(True) == 1
        assert next(edge for edge, _ in node.next_functions if edge is not None).name() == "accumulate_grad"
        with norch.no_grad():
            assert call(*given).grad_fn is None


@each_call
def test_gradients_of_some_operands_are_those_of_all(name: str, native: NativeBackend) -> None:
    tensors, call = operands(name, requires_grad=True), CALLS[name][1]
    seed = norch.randn(*call(*tensors).shape, device="native", dtype=float64)
    everything = norch.autograd.grad(call(*tensors), tensors, seed)
    for at, expected in enumerate(everything):
        given = [t if i == at else t.detach() for i, t in enumerate(tensors)]
        (found,) = norch.autograd.grad(call(*given), given[at], seed)
        np.testing.assert_allclose(found.cpu().numpy(), expected.cpu().numpy(), 1e-12, 1e-12)


@each_call
def test_views_of_what_changed_in_place(name: str, native: NativeBackend) -> None:
    """An operand's node is that of its base as it is now."""
    tensors, call = operands(name), CALLS[name][1]
    x = tensors[0].clone().requires_grad_()

    def changed(copy: bool) -> Tensor:
        y = x * 1
        view = y[:]
        y.mul_(3)
        return call(view.clone() if copy else view, *tensors[1:])

    expected, found = (norch.autograd.grad(changed(copy).sum(), x)[0] for copy in (True, False))
    np.testing.assert_allclose(found.cpu().numpy(), expected.cpu().numpy(), 1e-12, 1e-12)


@each_call
def test_saved_tensors_are_watched_and_freed(name: str, native: NativeBackend) -> None:
    tensors, call = operands(name), CALLS[name][1]
    x = tensors[0].clone().requires_grad_()
    out = call(x * 1, *tensors[1:])
    out.sum().backward(retain_graph=True)
    out.sum().backward()
    if name == "add with alpha":  # saves nothing, so that nothing was freed
        out.sum().backward()
        return
    with pytest.raises(norch.AutogradError, match="retain_graph=True"):
        out.sum().backward()


def test_scalars_lists_and_mistakes(native: NativeBackend) -> None:
    with pytest.raises(norch.DTypeError, match=r"relu\(\).*list"):
        norch.relu([1.0])  # type: ignore[arg-type]
    with pytest.raises(norch.ShapeError, match="linear"):
        norch.linear(norch.ones(2, 3, device="native"), norch.ones(4, 2, device="native"))
    with pytest.raises(norch.DTypeError, match="softmax"):
        norch.softmax(norch.ones(3, dtype=int64, device="native"), 0)
    with pytest.raises(norch.DeviceError, match="linear"):
        norch.linear(norch.ones(2, 3, device="native"), norch.ones(4, 3))
    with pytest.raises(TypeError):
        norch.softmax(norch.ones(3, device="native"), 0, nonsense=1)  # type: ignore[call-arg]
