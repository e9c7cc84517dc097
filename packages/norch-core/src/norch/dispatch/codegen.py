"""The functions of composites. Each is written for its parameters when the op is defined, as dataclasses write
`__init__`: binding arguments, making the key, launching and recording in a loop over parameters takes three times as
long, and that is what a small model costs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ..autograd.graph import Node, is_recording, resolve, tick
from ..errors import NorchError
from .call import finish, run
from .plan import raise_failure

if TYPE_CHECKING:
    from .op import Op

MOST_OPTIONAL = 3
"""Optional operands for which each combination has a launch of its own."""


def composite_call(op: Op, function: Callable[..., Any], optional: frozenset[int]) -> Callable[..., Any]:
    """A function with the signature of `function` that runs `op`. `optional`: operands that may be None.

    It is written when it is first called: most programs call few composites, and writing all takes as long as the rest
    of importing norch.
    """
    scope: dict[str, Any] = {
        "_op": op, "_plans": op.plans, "_keeps": op.keeps, "_new": object.__new__, "_Node": Node, "_run": run,
        "_finish": finish, "_resolve": resolve, "_tick": tick, "_is_recording": is_recording,
        "_raise_failure": raise_failure, "_NorchError": NorchError, "_Tensor": _tensor_class,
    }  # fmt: skip
    if _tensor_class is None:
        _scopes.append(scope)
    call = FunctionType(_unwritten.__code__, scope, op.name)

    def write(*args: Any, **kwargs: Any) -> Any:
        exec(compile(_source(op, function, optional), f"<norch composite {op.name}>", "exec"), scope)
        # The same function from here on, so that whoever has it calls the written code and nothing before it.
        call.__defaults__, call.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        call.__code__ = scope["_call"].__code__
        return call(*args, **kwargs)

    scope["_write"] = write
    return call


def _unwritten(*args: Any, **kwargs: Any) -> Any:
    return _write(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821


_tensor_class: Any = None
_scopes: list[dict[str, Any]] = []


def bind(tensor_class: Any) -> None:
    """Tells this module the class of results (most composites are defined before that class is)."""
    global _tensor_class
    _tensor_class = tensor_class
    for scope in _scopes:
        scope["_Tensor"] = tensor_class
    _scopes.clear()


def _source(op: Op, function: Callable[..., Any], optional: frozenset[int]) -> str:
    code = function.__code__
    names, tensors = op.params, op.tensors
    parameters = list(names[: code.co_argcount])
    if code.co_kwonlyargcount:
        parameters += ["*", *names[code.co_argcount :]]
    arguments = ", ".join(names)
    key = "".join(f"{_key(op, i, optional)}, " for i in range(len(names)))
    lines = [
        f"def _call({', '.join(parameters)}):",
        "    try:",
        f"        plan = _plans[{key}]",
        "    except (AttributeError, TypeError) as error:",
        "        if isinstance(error, _NorchError):",
        "            raise",
        "        plan = None",
        "    if plan is None:  # a scalar, a list, or a mistake",
        f"        return _run(_op, {arguments})",
    ]
    absent = [i for i in tensors if i in optional]
    if len(absent) > MOST_OPTIONAL:
        return "\n".join([*lines, f"    return _finish(plan, ({arguments},))"])
    by_parts = " or _is_recording()" if op.rules is None else ""
    lines += [
        "    make = plan.make",
        f"    if make is None{by_parts}:",
        f"        return _finish(plan, ({arguments},))",
        "    out = _new(_Tensor)",
        "    try:",
        *_launches(op, absent),
        "    except Exception as error:",
        "        _raise_failure(plan, error)",
        "    out.spec = plan.out",
        "    out.offset = 0",
        "    out.node = out.base = out._grad = None",
        *(_recording(op, optional) if op.rules is not None else ()),
        "    return out",
    ]
    return "\n".join(lines)


def _key(op: Op, at: int, optional: frozenset[int]) -> str:
    name = op.params[at]
    if at in op.scalars:
        return f"type({name})"
    if at not in op.tensors:
        return name
    return f"None if {name} is None else {name}.spec" if at in optional else f"{name}.spec"


def _launches(op: Op, absent: list[int]) -> list[str]:
    """A call of the kernel for each combination of optional operands that are there."""
    lines = []
    for at, there in enumerate(product((True, False), repeat=len(absent))):
        missing = {i for i, given in zip(absent, there, strict=True) if not given}
        if absent:
            tests = [f"{op.params[i]} is {'None' if i in missing else 'not None'}" for i in absent]
            lines.append(f"        {'elif' if at else 'if'} {' and '.join(tests)}:")
        flat = []
        for i, name in enumerate(op.params):
            if i in op.scalars:
                flat.append(name)
            elif i in op.tensors and i not in missing:
                flat.append(f"{name}.buffer, {name}.offset")
        lines.append(f"        {'    ' if absent else ''}out.buffer = buffer = make({', '.join(flat)})")
    return lines


def _recording(op: Op, optional: frozenset[int]) -> list[str]:
    assert op.rules is not None
    wanted = [i for i, rule in zip(op.tensors, op.rules, strict=True) if rule is not None]
    lines = []
    for i in wanted:
        name = op.params[i]
        lines.append(f"    node{i} = {f'None if {name} is None else ' if i in optional else ''}{name}.node")
    lines.append(f"    if ({' or '.join(f'node{i} is not None' for i in wanted)}) and _is_recording():")
    lines.append("        wanted = 0")
    for i in wanted:
        name = op.params[i]
        lines += [
            f"        if node{i} is not None:",
            f"            if {name}.base is not None:",
            f"                node{i} = _resolve({name})",
            f"            if node{i} is not None:",
            f"                wanted |= {1 << i}",
        ]
    edges = "".join(f"node{i}, " if i in wanted else "None, " for i in op.tensors)
    kept = "".join(f"{n} if keeps[{i}] else None, " if i in op.tensors else f"{n}, " for i, n in enumerate(op.params))
    return [
        *lines,
        "        if wanted:",
        "            keeps, keeps_result = _keeps[wanted]",
        "            out.node = node = _Node()",
        "            node.order = _tick()",
        "            node.plan = plan",
        f"            node.edges = ({edges})",
        "            node.hooks = None",
        f"            node.values = ({''.join(f'{n}, ' for n in op.params)}) if keeps is None else ({kept})",
        "            node.result = ((buffer, 0),) if keeps_result else None",
    ]
