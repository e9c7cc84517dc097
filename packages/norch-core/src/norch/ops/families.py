"""Constructors of ops. Each family states its rule for shapes, dtypes and layouts once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature as signature_of
from types import FunctionType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from ..backend.contract import BINARY, COMPARISON, OTHER, UNARY, declare
from ..dispatch.arguments import recover
from ..dispatch.codegen import call_path
from ..dispatch.op import Op
from ..dispatch.plan import Inferred
from ..dtype import BOOL, FLOATING, DType, bool_, float64, get_default_dtype, int64, result_dtype
from ..errors import DTypeError
from ..overriding import ENTRIES
from ..spec import Spec, broadcast_shapes, elementwise_layout
from ..tensor_base import TakenOver
from .registry import operator as register_operator
from .registry import public as register

if TYPE_CHECKING:
    from ..tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

UnaryFunction = Callable[["Tensor"], "Tensor"]
BinaryFunction = Callable[["Tensor", "Tensor | float"], "Tensor"]

# What dtypes an elementwise op computes in.
ANY, NUMBER, FLOAT, BITS, INTS = "any", "number", "float", "bits", "ints"

_REFUSES = {
    NUMBER: ({BOOL}, "bool; convert it first, or use a logical op"),
    BITS: ({FLOATING}, "a floating dtype"),
    INTS: ({FLOATING, BOOL}, "a dtype that is no integer"),
}

_OPS: dict[str, Op] = {}


def by_name() -> dict[str, Op]:
    """The primitive and composite ops by name."""
    return _OPS


def _register(op: Op) -> Op:
    _OPS[op.name] = op
    return op


def _compute_dtype(op: str, dtype: DType, takes: str) -> DType:
    """The dtype an op of family `takes` computes in, for operands whose common dtype is `dtype`."""
    if takes == FLOAT:
        return dtype if dtype.is_floating_point else get_default_dtype()
    if takes in _REFUSES and dtype.category in _REFUSES[takes][0]:
        raise DTypeError(f"{op}(): cannot take {_REFUSES[takes][1]}, got {dtype}")
    return dtype


def describe(*values: Any) -> tuple[list[tuple[DType, int]], list[type]]:
    """Specs and scalar types as `result_dtype` takes them."""
    return [(v.dtype, v.ndim) for v in values if isinstance(v, Spec)], [v for v in values if type(v) is type]


def infer_elementwise(op: str, values: tuple[Any, ...], takes: str = ANY, out: DType | None = None) -> Inferred:
    """Broadcasts and promotes `values` (specs and scalar types)."""
    specs = [v for v in values if type(v) is Spec]
    common = _compute_dtype(op, result_dtype(*describe(*values)), takes)
    shape = broadcast_shapes(*[s.shape for s in specs], op=op)
    device = next((s.device for s in specs if s.ndim or s.device.type != "cpu"), specs[0].device)
    layout = elementwise_layout(shape, specs)
    return Inferred((Spec(shape, layout, out or common, device),), ((common, shape),) * len(values))


def unary(
    name: str,
    vjp: Callable[..., Any] | None,
    doc: str,
    *,
    takes: str = FLOAT,
    also: tuple[str, ...] = (),
    public: bool = True,
) -> UnaryFunction:
    """An elementwise op on one tensor: a function, a method and an in-place method.

    takes: FLOAT (bools and integers are computed in the default dtype), NUMBER (all but bool), BITS (bool and
    integers), ANY. also: more names, as of `registry.public`. public: False where another function has the names.
    """

    def infer(x: Spec) -> Inferred:
        return infer_elementwise(name, (x,), takes)

    declare(name, UNARY)
    op = _register(Op(name, ("x",), 1, infer, vjp))
    function, entry = _documented(op, _unary_signature, doc, _UNARY_NOTE[takes])
    return register(*also, inplace=True, entry=entry)(function) if public else function  # type: ignore[no-any-return]


def binary(
    name: str,
    vjp: tuple[Callable[..., Any], Callable[..., Any]] | None,
    doc: str,
    *,
    takes: str = ANY,
    out: DType | None = None,
    also: tuple[str, ...] = (),
    operator: str | None = None,
    symmetric: bool = False,
    inplace: bool = True,
    public: bool = True,
) -> BinaryFunction:
    """An elementwise op on two operands, of which either may be a Python scalar; they broadcast and promote.

    takes: as of `unary`. out: the result's dtype, where it is not the operands'. also, inplace: as of
    `registry.public`. operator: Python's, such as "add". symmetric: the operands may be exchanged. public: False where
    another function has the names.
    """

    def infer(a: Spec | type, b: Spec | type) -> Inferred:
        return infer_elementwise(name, (a, b), takes, out)

    declare(name, BINARY if out is None else COMPARISON)
    op = _register(Op(name, ("a", "b"), 2, infer, vjp, mixed=(0, 1)))
    note = "Operands broadcast, and promote to a common dtype."
    function, entry = _documented(op, binary_signature, doc, note)
    if operator is not None:
        reflected = None if out is bool_ else function if symmetric else _reflected(function, f"r{operator}")
        register_operator(operator, function, reflected)
    return register(*also, inplace=inplace, entry=entry)(function) if public else function  # type: ignore[no-any-return]


def comparison(name: str, doc: str, *also: str) -> BinaryFunction:
    """A binary op whose result is bool, and Python's operator of that name."""
    return binary(name, None, doc, out=bool_, also=also, operator=name)


def _unary_signature(input: Tensor) -> Tensor: ...  # type: ignore[empty-body]


def binary_signature(input: Tensor, other: Tensor | float) -> Tensor: ...  # type: ignore[empty-body]


def _first(function: Any, count: int) -> Any:
    """A function with the first `count` arguments of `function` and those by name, or itself. It is not for calling."""
    code = function.__code__
    if code.co_argcount == count:
        return function
    names = code.co_varnames[:count] + code.co_varnames[code.co_argcount :]
    code = code.replace(co_varnames=names, co_nlocals=len(names), co_argcount=count)
    shown = FunctionType(code, {}, function.__name__)
    shown.__kwdefaults__ = function.__kwdefaults__
    shown.__annotations__ = {k: v for k, v in function.__annotations__.items() if k in (*names, "return")}
    return shown


def taking_out(function: Any) -> Any:
    """A function with the signature of `function` and the argument `out`, by name. It is not for calling."""
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    names = (*code.co_varnames[:count], "out", *code.co_varnames[count:])
    code = code.replace(co_varnames=names, co_nlocals=len(names), co_kwonlyargcount=code.co_kwonlyargcount + 1)
    shown = FunctionType(code, {}, function.__name__, function.__defaults__)
    shown.__kwdefaults__ = {**(function.__kwdefaults__ or {}), "out": None}
    shown.__annotations__ = {**function.__annotations__, "out": "Tensor | None"}
    return shown


def _reflected(function: BinaryFunction, name: str) -> BinaryFunction:
    """`__rsub__` from `sub`: the same op with its operands exchanged."""
    call = call_path(op_of(function), binary_signature, reflected=True)
    call.__name__ = call.__qualname__ = name
    return call


_UNARY_NOTE = {
    FLOAT: "Elementwise, shape kept; bools and integers give the default dtype.",
    NUMBER: "Elementwise, shape and dtype kept; not for bool.",
    BITS: "Elementwise, shape and dtype kept; for bool and integers.",
    ANY: "Elementwise, shape and dtype kept.",
}


def _documented(op: Op, signature: Callable[..., Any], doc: str, note: str) -> tuple[Any, Any]:
    """The call path of an op, and that of the function of its name, which takes `out` as well."""
    function: Any = call_path(op, signature)
    entry: Any = call_path(op, signature, takes_out=(), shown=taking_out(signature))
    frame = sys._getframe(1)
    while frame.f_globals is globals() and frame.f_back is not None:
        frame = frame.f_back
    for named in (function, entry):
        named.__module__ = frame.f_globals["__name__"]
        named.__name__ = named.__qualname__ = op.name
        named.__doc__ = f"{doc}\n\n{note} Raises DTypeError for anything but tensors and scalars of fitting dtype."
        named.op = op
    return function, of_method(entry, function)


def with_out(like: Any, *options: str, also: tuple[str, ...] = (), inplace: bool = False) -> Callable[[F], F]:
    """Registers a function that does what `like`, a binary op's, does, but for `options` given by name.

    What is found under its names is the call path of that op, which takes `out`; the method is the function itself.
    """

    def make(function: F) -> F:
        named: Any = function
        shown = _first(function, len(like.op.params))
        if shown is not function:
            named.__signature__ = signature_of(shown)
        code = shown.__code__
        signature: Any = FunctionType(code.replace(co_kwonlyargcount=0), {})
        entry: Any = call_path(like.op, signature, takes_out=options, otherwise=function)
        named.op = entry.op = like.op
        entry.__wrapped__ = shown if "out" in code.co_varnames else taking_out(shown)
        entry.__name__, entry.__qualname__, entry.__doc__ = named.__name__, named.__name__, named.__doc__
        return register(*also, inplace=inplace, check=False, entry=of_method(entry, function))(function)

    return make


def of_method(entry: Any, function: Any) -> Any:
    """The function `entry`, which is found under its name in norch, and does what the method `function` does."""
    entry.__module__, entry.of_method = __name__.partition(".")[0], function
    return entry


def op_of(function: Any) -> Op:
    """The op behind a public function."""
    op: Op = function.op
    return op


def has_kernel(op: Op, *key: Any) -> bool:
    """Whether a composite has a kernel for the specs and attributes of a call; not for what stands for tensors."""
    try:
        return op.plans[key].kernel is not None
    except TakenOver:
        return False


def primitive(
    name: str,
    params: str,
    tensors: int | tuple[int, ...],
    infer: Callable[..., Inferred],
    vjp: Callable[..., Any] | tuple[Callable[..., Any] | None, ...] | None = None,
    *,
    family: list[str] = OTHER,
    elementwise: bool = False,
    **more: Any,
) -> Op:
    """A primitive whose public function calls the op's `call`, in one of the contract's lists. more: as of `Op`."""
    declare(name, family, elementwise)
    return _register(Op(name, tuple(params.split()), tensors, infer, vjp, **more))


def view(name: str, params: str, infer: Callable[..., Any], vjp: Callable[..., Any], *, place: str | None = None) -> Op:
    """A view op: `infer(spec, *attrs)` gives the new spec and the offset's shift, or None where only a copy does.

    place: a parameter that only moves the view. `infer` is then asked with 0 for it, and `call` gets one more argument,
    the shift in elements.
    """
    names = tuple(params.split())
    return Op(name, names, 1, infer, vjp, kind="view", place=None if place is None else names.index(place))


def composite(
    infer: Callable[..., Any],
    vjp: Callable[..., Any] | dict[str, Callable[..., Any]] | None = None,
    *,
    name: str | None = None,
    joint: bool = False,
    native: str = "any",
    elementwise: bool = False,
    plugin: Mapping[str, Any] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Makes an op of a function that computes it from other ops. Its name and parameters are the op's.

    Parameters annotated `Tensor` or `Tensor | None` are the operands; `Scalar` ones are passed by value, `Number` ones
    converted to the dtype that `infer` gives them; all others are hashable attributes. infer gets specs for tensors,
    types for scalars, and the attributes, in order, and returns Inferred or the Spec(s) of the result. vjp is one rule
    (of the only operand; or with `joint` of all), or a rule by operand name. native: "floating" where backends are
    asked for kernels of floating results only. elementwise: `is_elementwise` of `Op`. plugin: for an op that is not
    norch's own: its `kernels` and `owner`, as of `Op`.
    """

    def make(function: Callable[P, R]) -> Callable[P, R]:
        title = name or function.__name__
        code = function.__code__
        params = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        notes = function.__annotations__
        tensors = tuple(i for i, p in enumerate(params) if notes[p] in ("Tensor", "Tensor | None", "Tensor | Scalar"))
        scalars = tuple(i for i, p in enumerate(params) if notes[p] == "Scalar")
        # To an op of a plug-in `Number` may be a class of the standard library.
        numbers = tuple(i for i, p in enumerate(params) if notes[p] == "Number" and plugin is None)
        optional = tuple(i for i in tensors if notes[params[i]] == "Tensor | None")
        mixed = tuple(i for i in tensors if notes[params[i]] == "Tensor | Scalar")
        operand_places = sorted((*tensors, *scalars))
        attributes = [(p, i) for i, p in enumerate(params) if i not in operand_places]

        def full_infer(*values: Any) -> Inferred:
            for i in tensors:
                if isinstance(values[i], type) and i not in mixed:
                    raise DTypeError(f"{title}(): {params[i]} must be a Tensor, got a Python {values[i].__name__}")
            found = infer(*values)
            if isinstance(found, Inferred):
                return found
            outputs = found if type(found) is tuple else (found,)
            given = [values[i] for i in operand_places if values[i] is not None]
            operands = tuple([v if type(v) is Spec else (_scalar_operand(v), ()) for v in given])
            attrs = {p: values[i] for p, i in attributes}
            attrs["given"] = tuple([values[i] is not None for i in tensors])
            is_native = native == "any" or outputs[0].dtype.is_floating_point
            return Inferred(outputs, operands, attrs, native=is_native)

        rules: Any = vjp
        if isinstance(vjp, dict):
            rules = tuple([vjp.get(params[i]) for i in tensors])
        elif vjp is not None and not joint:
            rules = (vjp,)
        more: dict[str, Any] = dict(optional=optional, mixed=mixed, scalars=scalars, numbers=numbers, **(plugin or {}))
        op = Op(
            title,
            params,
            tensors,
            full_infer,
            rules,
            kind="composite",
            decompose=function,
            is_elementwise=elementwise,
            **more,
        )
        if plugin is None:
            _register(op)
        call: Any = wraps(function)(call_path(op, function))
        call.op = op
        return cast("Callable[P, R]", call)

    return make


def _scalar_operand(kind: type) -> DType:
    return {bool: bool_, int: int64, float: float64}[kind]


def floating(op: str, *specs: Spec | None) -> DType:
    """The common floating dtype of operands. Raises DTypeError where one is not floating."""
    for spec in specs:
        if spec is not None and not spec.dtype.is_floating_point:
            found = " and ".join(str(s.dtype) for s in specs if s is not None)
            raise DTypeError(f"{op}(): expected a floating dtype, got {found}")
    return result_dtype([(s.dtype, s.ndim) for s in specs if s is not None])


def one_dtype(op: str, *specs: Spec | None) -> DType:
    """The dtype that operands have, a floating or an integer one. Raises DTypeError where they differ, and for bool."""
    found = [s.dtype for s in specs if s is not None]
    if any(d is not found[0] for d in found):
        raise DTypeError(f"{op}(): operands of dtypes {', '.join(map(str, found))}; convert them to one")
    return _compute_dtype(op, found[0], NUMBER)


def accepts_axis(function: Callable[P, R]) -> Callable[P, R]:
    """Lets callers write `axis` and `keepdims`, the array API's names, for `dim` and `keepdim`."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if not kwargs:
                return function(*args)  # type: ignore[call-arg]
            if "axis" in kwargs:
                kwargs["dim"] = kwargs.pop("axis")
            if "keepdims" in kwargs:
                kwargs["keepdim"] = kwargs.pop("keepdims")
            return function(*args, **kwargs)
        except Exception as error:
            return recover(error, function, args, kwargs, None, call)  # type: ignore[no-any-return]

    call.explains = True  # type: ignore[attr-defined]
    ENTRIES.add(call.__code__)  # type: ignore[attr-defined]
    return call
