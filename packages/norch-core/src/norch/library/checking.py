"""`opcheck`: whether an op of `norch.library` does what its schema and its registrations say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..autograd.mode import no_grad
from ..func.trees import flatten, tree_map
from ..tensor_base import TensorBase
from .namespaces import find
from .op import CustomOp

_ALL = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def opcheck(
    op: str | CustomOp,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = _ALL,
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:
    """What each of `test_utils`, a test or several, says of `op(*args, **kwargs)`, by its name: "SUCCESS", or the
    exception.

    - "test_schema": no argument has changed that the schema does not say is written.
    - "test_autograd_registration": results require grad where an argument does and there is a gradient.
    - "test_faketensor": on the device "meta" the results have the same shapes and dtypes.
    - "test_aot_dispatch_dynamic", "test_aot_dispatch_static": the backward pass runs, and gives the arguments'
      gradients in their shapes.

    raise_exception: raise the first instead. atol, rtol: taken for PyTorch's sake. Raises ValueError for other tests,
    RuntimeError for a name that no op has.
    """
    names = [test_utils] if isinstance(test_utils, str) else list(test_utils)
    unknown = [name for name in names if name not in _TESTS]
    if unknown:
        raise ValueError(f"opcheck(): test_utils has {unknown}; there are {', '.join(_TESTS)}")
    results: dict[str, Any] = {}
    for name in names:
        try:
            _TESTS[name](find(op), args, kwargs or {})
            results[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise RuntimeError(f"opcheck(): {name} of {find(op).qualname} failed: {error}") from error
            results[name] = error
    return results


def _copied(tree: Any) -> Any:
    def copy(x: Any) -> Any:
        return x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, TensorBase) else x  # type: ignore[attr-defined]

    return tree_map(copy, tree)


def _tensors(tree: Any) -> list[Any]:
    return [x for x in flatten(tree)[0] if isinstance(x, TensorBase)]


def _schema(op: CustomOp, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    given, by_name = _copied((args, kwargs))
    with no_grad():
        op(*given, **by_name)
    written = {argument.name for argument in op.schema.arguments if argument.is_write}
    before = op.schema.signature.bind(*args, **kwargs).arguments
    for name, value in op.schema.signature.bind(*given, **by_name).arguments.items():
        for now, then in zip(_tensors(value), _tensors(before[name]), strict=True):
            same = (now == then) | ((now != now) & (then != then))
            if name not in written and not bool(same.all()):
                raise RuntimeError(f"argument {name} has changed, which {op.schema} does not say")


def _registration(op: CustomOp, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    given, by_name = _copied((args, kwargs))
    wanted = any(x.requires_grad for x in _tensors((given, by_name)))
    made = [x for x in _tensors(op(*given, **by_name)) if x.dtype.is_floating_point]
    if wanted and made and not any(x.requires_grad for x in made):
        raise RuntimeError("no result requires grad, though an argument does; call register_autograd")


def _fake(op: CustomOp, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    given, by_name = _copied((args, kwargs))
    shadows, shadows_by_name = tree_map(
        lambda x: x.detach().to("meta") if isinstance(x, TensorBase) else x,  # type: ignore[attr-defined]
        (args, kwargs),
    )
    with no_grad():
        real, shadow = op(*given, **by_name), op(*shadows, **shadows_by_name)
    pairs = [[(tuple(x.shape), x.dtype) for x in _tensors(tree)] for tree in (real, shadow)]
    if pairs[0] != pairs[1]:
        raise RuntimeError(f"its results have shapes and dtypes {pairs[0]}, on the device 'meta' {pairs[1]}")


def _backward(op: CustomOp, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    given, by_name = _copied((args, kwargs))
    made = [x for x in _tensors(op(*given, **by_name)) if x.requires_grad]
    for x in made:
        x.backward(x.new_ones(x.shape), retain_graph=True)
    for x in _tensors((given, by_name)):
        if x.grad is not None and x.grad.shape != x.shape:
            raise RuntimeError(f"the gradient of a tensor of shape {tuple(x.shape)} has shape {tuple(x.grad.shape)}")


_TESTS: dict[str, Callable[[CustomOp, tuple[Any, ...], dict[str, Any]], None]] = {
    "test_schema": _schema,
    "test_autograd_registration": _registration,
    "test_faketensor": _fake,
    **dict.fromkeys(("test_aot_dispatch_dynamic", "test_aot_dispatch_static"), _backward),
}
