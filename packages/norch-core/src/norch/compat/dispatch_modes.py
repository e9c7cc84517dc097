"""PyTorch's `TorchDispatchMode`: a context that is asked for all ops that run within it, backward passes too.

The ops are norch's, by PyTorch's names where they have some (`aten_calls`): products of a batch and linear layers are
taken apart as PyTorch does, other layers are one op, `aten.layer_norm.default`. Ops are asked for where tools observe
them (`norch.observing`), so that without a mode nothing is on their path. A thread is asked for its own alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from threading import Lock, local
from typing import Any, Self

from .. import observing
from ..observing import IN_PLACE, INTO, TRANSFER, Asker, Observed
from ..spec import Spec, broadcast_shapes
from ..tensor import Tensor
from . import aten as aten_names
from . import aten_calls
from .aten import Overload, aten
from .aten_calls import Call


class _Thread(local):
    def __init__(self) -> None:
        self.modes: list[Any] = []
        self.given: tuple[Call, Callable[[], Any]] | None = None


_thread = _Thread()
_lock = Lock()
_count = 0


class TorchDispatchMode:
    """In `with` of an object of a subclass, its `__torch_dispatch__(func, types, args, kwargs)` gives what ops give.

    `func` is one of `torch.ops.aten`, of which there is one object each, and `func(*args, **kwargs)` what there would
    be without the mode, which is off meanwhile; of nested modes the inner one is asked first. What is computed there is
    recorded for gradients as anything else. `detach`, steps of optimisers, what a view of memory alone gives and the
    replay of a captured step are never asked for.
    """

    def __init__(self, _dispatch_key: Any = None) -> None:
        pass

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Raises NotImplementedError: a subclass says what it gives."""
        raise NotImplementedError(f"{type(self).__name__} defines no __torch_dispatch__")

    def __enter__(self) -> Self:
        global _count
        with _lock:
            if not _count:
                aten_names.asked = _given
                observing.observe(_asker)
            _count += 1
        _thread.modes.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        global _count
        _thread.modes.pop()
        with _lock:
            _count -= 1
            if not _count:
                observing.release(_asker)

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Self:
        """An object of the class, to be entered."""
        return cls(*args, **kwargs)


def _get_current_dispatch_mode() -> Any:
    return _thread.modes[-1] if _thread.modes else None


def _get_current_dispatch_mode_stack() -> list[Any]:
    return list(_thread.modes)


@contextmanager
def _disable_current_modes() -> Iterator[list[Any]]:
    """Within it this thread's modes are off."""
    modes, _thread.modes = _thread.modes, []
    try:
        yield modes
    finally:
        _thread.modes = modes


# --- Asking ---------------------------------------------------------------------------------------------------------


def _given(overload: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any] | None:
    """What computes a call that the mode was asked for, as it was."""
    if _thread.given is None:
        return None
    call, compute = _thread.given
    same = overload is call.overload and len(args) == len(call.args) and kwargs.keys() == call.kwargs.keys()
    return (
        compute if same and all(map(_is_same, (*args, *kwargs.values()), (*call.args, *call.kwargs.values()))) else None
    )


def _is_same(value: Any, other: Any) -> bool:
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        return len(value) == len(other) and all(map(_is_same, value, other))
    return value is other or (type(value) is type(other) and type(value) in (int, float) and value == other)


def _asked(call: Call, compute: Callable[[], Any]) -> Any:
    mode, before = _thread.modes.pop(), _thread.given
    _thread.given = call, compute
    try:
        result = type(mode).__torch_dispatch__(mode, call.overload, (), call.args, dict(call.kwargs))
    finally:
        _thread.given = before
        _thread.modes.append(mode)
    if result is NotImplemented:
        raise TypeError(f"{type(mode).__name__} gives nothing for {call.overload}")
    return result


class _Modes(Asker):
    def give(self, what: Observed, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not _thread.modes:
            return function(*args, **kwargs)
        if what.kind == IN_PLACE:
            done = function(*args, **kwargs)  # which may be False, where the op is called as it is
            if done:
                _asked(aten_calls.in_place(args[3], (args[1], *args[2]), {}), lambda: args[1])
            return done
        if what.kind == TRANSFER:
            if not isinstance(args[0], Tensor):
                return function(*args, **kwargs)
            read = Call(aten._local_scalar_dense.default, args[:1])
            call = Call(aten._to_copy.default, args[:1], {"device": args[1]}) if what.name == "to" else read
            return _asked(call, lambda: self.give(what, function, args, kwargs))
        op: Any = what.op
        if what.kind == INTO:

            def write() -> Any:
                self.give(what, function, args, kwargs)
                return args[0]

            _asked(_written(op, *args), write)
            return None
        if op.name == "linear":
            return _linear(lambda *given: self.give(what, function, given, {}), *args)
        if op.name == "matmul" and max(args[0].dim(), args[1].dim()) > 2 and args[0].dim() + args[1].dim() != 6:
            return _product(lambda *given: self.give(what, function, given, {}), *args)
        if op.name in _CONVOLUTIONS:
            return _of_convolution(lambda: self.give(what, function, args, kwargs), _CONVOLUTIONS[op.name], *args)
        if op.name == "linear_input_grad" and args[0].dim() == 2:
            call = Call(aten.mm.default, args[:2])
        elif op.name == "linear_weight_grad" and args[0].dim() == 2:
            call = Call(aten.mm.default, (args[0].t(), args[1]))
        elif what.name != op.name:
            call = aten_calls.in_place(what.name, args, kwargs)
        elif isinstance(args[0], Spec):
            call = _made(op, *args)
        else:
            call = aten_calls.named(op, args)._replace(kwargs=kwargs) if kwargs else aten_calls.named(op, args)
        return _asked(call, lambda: self.give(what, function, args, kwargs))


_asker = _Modes()


# --- Calls by PyTorch's names ----------------------------------------------------------------------------------------


def _written(op: Any, out: Tensor, *args: Any) -> Call:
    """A call whose result is written into the memory of `out`."""
    if op.name == "fill":
        zero = type(args[1]) in (int, float) and args[1] == 0
        return Call(aten.zero_.default, (out,)) if zero else Call(aten.fill_.Scalar, (out, args[1]))
    if op.name == "copy":
        return Call(aten.copy_.default, (out, args[0]))
    call = aten_calls.named(op, args)
    return call._replace(overload=call.overload.overloadpacket.out, kwargs={**call.kwargs, "out": out})


def _made(op: Any, spec: Spec, *args: Any) -> Call:
    """A call that makes a tensor of nothing."""
    options = {"dtype": spec.dtype, "device": spec.device}
    names = {"uniform": aten.rand, "normal": aten.randn}
    if op.name == "random" and args[0] in names:
        return Call(names[args[0]].default, (list(spec.shape),), options)
    if op.name == "empty" or (op.name == "fill" and args[0] in (0, 1)):
        packet = aten.empty if op.name == "empty" else aten.ones if args[0] else aten.zeros
        return Call(packet.memory_format if op.name == "empty" else packet.default, (list(spec.shape),), options)
    if op.name == "fill":
        return Call(aten.full.default, (list(spec.shape), args[0]), options)
    return Call(getattr(aten, op.name).default, (list(spec.shape), *args), options)


def _linear(function: Callable[..., Any], input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if input.dim() != 2:
        return _linear(function, input.reshape(-1, input.shape[-1]), weight, bias).reshape(*input.shape[:-1], -1)
    given = (input, weight.t())
    call = Call(aten.mm.default, given) if bias is None else Call(aten.addmm.default, (bias, *given))
    return _asked(call, lambda: function(input, weight, bias))  # type: ignore[no-any-return]


def _product(function: Callable[..., Any], a: Tensor, b: Tensor) -> Tensor:
    """Of more dims than two: rows of all matrices in one product, or a batch of products."""
    if a.dim() == 1 or b.dim() == 1:
        return _asked(Call(aten.matmul.default, (a, b)), lambda: function(a, b))  # type: ignore[no-any-return]
    if b.dim() == 2:
        return (a.reshape(-1, a.shape[-1]) @ b).reshape(*a.shape[:-1], b.shape[-1])
    batch = broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]), op="matmul")
    parts = [x.expand(*batch, *x.shape[-2:]).reshape(prod(batch), *x.shape[-2:]) for x in (a, b)]
    return (parts[0] @ parts[1]).reshape(*batch, a.shape[-2], b.shape[-1])


_CONVOLUTIONS = {f"conv{n}d_{of}_grad": of == "weight" for n in (2, 3) for of in ("input", "weight")}


def _of_convolution(
    compute: Callable[[], Any], of_weight: bool, grad: Tensor, other: Tensor, shape: Any, stride: Any, pads: Any,
    dilation: Any, groups: int,
) -> Any:  # fmt: skip
    """A gradient of a convolution. PyTorch's op gives all of them: of the input or the weight that norch's does not
    take there is a tensor of its shape alone."""
    before = [pad[0] for pad in pads] if isinstance(pads[0], tuple) else list(pads[::2])
    with _disable_current_modes():
        shown = grad.detach().new_empty((1,) * len(shape)).expand(shape)
    given = (grad, other, shown) if of_weight else (grad, shown, other)
    more = (None, list(stride), before, list(dilation), False, [0] * len(stride), groups)
    call = Call(aten.convolution_backward.default, (*given, *more, [not of_weight, of_weight, False]))
    result = _asked(call, lambda: (None, compute(), None) if of_weight else (compute(), None, None))
    return result[int(of_weight)]
