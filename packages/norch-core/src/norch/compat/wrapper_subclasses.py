"""Subclasses of Tensor that stand for others, by PyTorch's protocol `__torch_dispatch__`.

`Tensor._make_wrapper_subclass(cls, size, dtype=...)` makes an object of a class that says by `__torch_dispatch__(func,
types, args, kwargs)` what PyTorch's op `func` (`aten.mul.Tensor`) gives for it. It has a shape, a dtype and a device
but no memory: its spec is one that no plan is looked up by, so that each op on it comes here. The class is asked below
autograd: recording is off, and what it gives is recorded as the result of the op.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn
from weakref import ref

from ..autograd.graph import Leaf, Node, Output, init_node, is_recording, resolve, set_recording
from ..autograd.rules import ALL
from ..dispatch.op import Op
from ..dtype import get_default_dtype
from ..errors import NorchError
from ..ops.creation import fill_spec, spec_for
from ..overriding_methods import CALLED
from ..spec import Spec
from ..tensor import Tensor
from ..tensor_base import TakenOver, TensorBase, make_tensor
from . import aten_calls
from .aten import aten
from .aten_calls import Call


class NoMemory:
    """In place of the buffer of a tensor that stands for others."""

    __slots__ = ("__weakref__", "modified", "nbytes", "of")

    def __init__(self, kind: type, nbytes: int) -> None:
        self.of, self.nbytes, self.modified = kind, nbytes, None

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a {self.of.__name__} stands for other tensors and has no memory of its own")


class Dispatched(TakenOver, NorchError, RuntimeError):
    """Raised where a plan is looked up for a tensor that stands for others."""

    def run(self, op: Any, args: tuple[Any, ...]) -> Any:
        try:
            return run(op, args)
        except Exception as found:
            raise found from None

    def into(self, op: Any, out: Any, args: tuple[Any, ...]) -> None:
        _into(op, out, args)


class WrapperSpec(Spec):
    """The spec of such a tensor, which `owner()` gives. Specs made from it are ordinary."""

    __slots__ = ("owner", "plain")
    owner: Any
    plain: Spec

    def __hash__(self) -> int:
        raise Dispatched("a tensor that stands for others was used where memory is needed; its class should say how")


def make(
    cls: type[Any],
    size: Any,
    strides: Any = None,
    storage_offset: int | None = None,
    memory_format: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    **policies: Any,
) -> Any:
    """An object of `cls`: see `Tensor._make_wrapper_subclass`."""
    if getattr(cls, "__torch_dispatch__", None) is None:
        raise TypeError(f"_make_wrapper_subclass(): {cls.__name__} defines no __torch_dispatch__")
    cls.left_to = staticmethod(left_to)
    given = spec_for(tuple(size), dtype or get_default_dtype(), device, "_make_wrapper_subclass")
    plain = given if strides is None else given.like(given.shape, tuple(strides))
    spec: WrapperSpec = object.__new__(WrapperSpec)
    for name in ("shape", "strides", "dtype", "device", "ndim", "numel", "nbytes", "is_contiguous", "overlaps"):
        setattr(spec, name, getattr(plain, name))
    out = make_tensor(spec, NoMemory(cls, plain.nbytes), storage_offset or 0, kind=cls)
    spec.owner, spec.plain = ref(out), plain
    if requires_grad:
        out.node = Leaf(out)
    return out


# --- Asking the classes ---------------------------------------------------------------------------------------------


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _asked(call: Call) -> list[Any]:
    """One of each class that has a say, subclasses before what they are of."""
    found: list[Any] = []
    for value in _flat((*call.args, *call.kwargs.values())):
        if isinstance(value, TensorBase) and value.left_to is not None:
            if all(type(value) is not type(other) for other in found):
                at = next((i for i, other in enumerate(found) if isinstance(value, type(other))), len(found))
                found.insert(at, value)
    return found


def ask(call: Call) -> Any:
    """What the classes of arguments give, unrecorded. Raises TypeError where none gives anything."""
    found = _asked(call)
    types = tuple([type(value) for value in found])
    recording = is_recording()
    set_recording(False)
    try:
        for value in found:
            result = type(value).__torch_dispatch__(call.overload, types, call.args, dict(call.kwargs))
            if result is not NotImplemented:
                return result
    finally:
        set_recording(recording)
    known = f"types that implement __torch_dispatch__: {list(types)}"
    raise TypeError(f"no implementation found for '{call.overload}' on {known}")


def _plain(value: Any) -> Any:
    """The ordinary spec of a tensor."""
    spec = value.spec if isinstance(value, TensorBase) else value
    return spec.plain if type(spec) is WrapperSpec else spec


class _Node(Node):
    """A recorded op whose results are of such classes: it keeps them as they are."""

    __slots__ = ()

    def saved_result(self, at: int | None = None) -> Any:
        saved = self.saved_outputs
        if saved is None or self.saved_inputs is None:
            raise self.freed()
        if at is None:
            if len(saved) > 1:
                return tuple([self.saved_result(i) for i in range(len(saved))])
            at = 0
        result = saved[at].detach()
        result.node = self if len(saved) == 1 else Output(self, at)
        return result


def _edges(op: Op, args: tuple[Any, ...]) -> list[Any] | None:
    """The nodes of the op's operands; None where nothing is to be recorded."""
    if not is_recording():
        return None
    operands = args[0] if op.variadic else [args[i] for i in op.tensors]
    edges = [resolve(x) if isinstance(x, Tensor) else None for x in operands]
    return edges if any(edge is not None for edge in edges) else None


def _record(op: Op, args: tuple[Any, ...], edges: list[Any], outputs: tuple[Any, ...]) -> None:
    kinds = [_plain(a) if isinstance(a, TensorBase | Spec) else a for a in args]
    if op.variadic:
        key: Any = (tuple([_plain(x) for x in args[0]]), *args[1:])
    else:
        key = tuple([
            type(a) if i in op.slots and a is not None and not isinstance(a, Spec) else a for i, a in enumerate(kinds)
        ])  # fmt: skip
        if op.place is not None:
            key = tuple([a for i, a in enumerate(key[: len(op.params)]) if i != op.place])
    plan = op.plans[key if len(key) > 1 else key[0]]
    wanted = 0
    if op.rules is not None and not op.variadic:
        edges = [edge if rule is not None else None for edge, rule in zip(edges, op.rules, strict=True)]
        wanted = sum(1 << at for at, edge in zip(op.tensors, edges, strict=True) if edge is not None)
        if not wanted:
            return
        saved, which = op.saves[wanted]
        inputs = args if saved is None else tuple([v if k else None for v, k in zip(args, saved, strict=False)])
    else:
        inputs, which = (None, *args[1:]), 0
    kept = None
    if op.kind == "view":
        kept = [(None, op.infer(kinds[0], *args[1 : len(op.params)])[1])]
    node: Node = init_node(Node() if op.kind == "view" else _Node(), plan, tuple(edges), inputs, kept)
    if which:
        node.saved_outputs = [out.detach() if i or which == ALL else None for i, out in enumerate(outputs)]
    for i, out in enumerate(outputs):
        if out.dtype.is_floating_point:
            out.node = node if len(outputs) == 1 else Output(node, i)


def _of_its_own(result: Any, args: tuple[Any, ...]) -> Any:
    """A tensor that a class gave, as one that may be given a node."""
    if not isinstance(result, Tensor):
        return result
    if result.left_to is None or any(result is a for a in _flat(args)):
        return result.detach()
    return result


def run(op: Op, args: tuple[Any, ...]) -> Any:
    """The result of an op on arguments of which some stand for others."""
    if isinstance(args[0], WrapperSpec):
        return _made(op, args)
    edges = _edges(op, args)
    if op.name == "linear":
        return _linear(*args)
    if edges is not None and op.rules is None and op.decompose is not None:
        return op.decompose(*args)
    if op.kind == "view" and op.name == "reshape" and op.plans[_plain(args[0]), args[1]].out is None:
        return None  # there is no such view
    result = ask(aten_calls.named(op, args))
    if edges is None:
        return result
    several = isinstance(result, tuple | list)
    outputs = tuple([_of_its_own(out, args) for out in (result if several else (result,))])
    _record(op, args, edges, outputs)
    return outputs if several else outputs[0]


def _linear(input: Any, weight: Any, bias: Any) -> Any:
    """As PyTorch takes it apart: a product with the transposed weight."""
    rows = input if input.dim() == 2 else input.reshape(-1, input.shape[-1])
    columns = weight.t()
    if bias is not None and _edges_of(rows, columns, bias) is None:
        out = ask(Call(aten.addmm.default, (bias, rows, columns)))
    else:
        out = rows.mm(columns)
        out = out if bias is None else out + bias
    return out if input.dim() == 2 else out.reshape(*input.shape[:-1], out.shape[-1])


def _edges_of(*tensors: Any) -> Any:
    return next((x for x in tensors if is_recording() and resolve(x) is not None), None)


def _made(op: Op, args: tuple[Any, ...]) -> Any:
    """A new tensor of the shape of one that stands for others."""
    owner = args[0].owner()
    if op.name in ("fill", "empty"):
        return ask(aten_calls.filled(args[0], owner, args[1] if op.name == "fill" else None))
    return op.call(args[0].plain, *args[1:])


def _into(op: Op, out: Any, args: tuple[Any, ...]) -> None:
    """`op`, its result written into the memory of `out`."""
    if op.name == "fill":
        zero = type(args[1]) in (int, float) and args[1] == 0
        ask(Call(aten.zero_.default, (out,)) if zero else Call(aten.fill_.Scalar, (out, args[1])))
        return
    if op.name in ("scatter", "scatter_add", "index_put", "index_add"):
        hash(out.spec if out.left_to is not None else next(a.spec for a in args if getattr(a, "left_to", None)))
    source = args[0] if op.name == "copy" else op.call(*[_plain(a) if isinstance(a, Spec) else a for a in args])
    ask(Call(aten.copy_.default, (out, source)))


def left_to(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a method gives that works on memory itself, of a tensor that stands for others."""
    if name in ("detach", "pin_memory"):
        packet = aten.detach if name == "detach" else aten._pin_memory
        return ask(Call(packet.default, args))
    if name == "item":
        return ask(Call(aten._local_scalar_dense.default, args))
    if name == "index":
        return ask(Call(aten.index.Tensor, args))
    if name == "index_put_":
        ask(Call(aten.index_put_.default, args))
        return args[0]
    if name == "sparse.mm":
        first, second, reduce = args
        if reduce != "sum":
            return ask(Call(aten._sparse_mm_reduce_impl.default, args))[0]
        zeros = fill_spec(spec_for((first.shape[0], second.shape[1]), second.dtype, second.device, "mm"), 0)
        return ask(Call(aten._sparse_addmm.default, (zeros, first, second), {"beta": 0}))
    if name == "to":
        return ask(Call(aten._to_copy.default, args, kwargs))
    ask(aten_calls.in_place(_OPERATORS.get(name, name), args, kwargs))
    return args[0]


_OPERATORS = CALLED | {f"__i{name}__": f"bitwise_{name}_" for name in ("and", "or", "xor")}
_OPERATORS |= {"__ifloordiv__": "floor_divide_"}
