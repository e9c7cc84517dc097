"""Schemas of ops, "scaled(Tensor x, float factor=1.0) -> Tensor": made of a function's annotations, and read."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from inspect import Parameter, Signature, signature
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from ..device import Device
from ..dtype import DType
from ..tensor import Tensor

Tag = Enum(
    "Tag",
    "core cudagraph_unsafe data_dependent_output dynamic_output_shape flexible_layout generated inplace inplace_view "
    "maybe_aliasing_or_mutating needs_contiguous_strides needs_exact_strides needs_fixed_stride_order "
    "nondeterministic_bitwise nondeterministic_seeded out out_variant pointwise pt2_compliant_tag reduction view_copy",
)
"""What programs tell PyTorch's compiler of their ops, which norch does not read."""


class Argument(NamedTuple):
    """An argument of an op. type: as schemas write it. is_write: whether the op changes it in place."""

    name: str
    type: str
    default_value: Any = None
    kwarg_only: bool = False
    is_write: bool = False


class Schema:
    """What an op takes and gives, as `torch._C.FunctionSchema`. `str` of it is what `Library.define` reads."""

    def __init__(self, name: str, text: str) -> None:
        found = re.fullmatch(r"\s*\((.*)\)\s*->\s*(.*?)\s*", text, re.DOTALL)
        if found is None:
            raise ValueError(f"define(): expected 'name(Tensor x, ...) -> Tensor', got {name + text!r}")
        self.name, self._text = name, f"({found[1]}) -> {found[2]}"
        self.arguments: list[Argument] = []
        self.returns = _parts(re.sub(r"^\((.*)\)$", r"\1", found[2]))
        self.signature = self._read(found[1])

    def _read(self, arguments: str) -> Signature:
        parameters: list[Parameter] = []
        kind: Any = Parameter.POSITIONAL_OR_KEYWORD
        for part in _parts(arguments):
            if part == "*":
                kind = Parameter.KEYWORD_ONLY
                continue
            declared, equals, default = part.partition("=")
            value: Any = default
            with suppress(ValueError, SyntaxError):
                value = literal_eval(default)
            type_, _, name = declared.strip().rpartition(" ")
            only = kind is Parameter.KEYWORD_ONLY
            self.arguments.append(Argument(name, type_, value if equals else None, only, "!" in type_))
            parameters.append(Parameter(name, kind, default=value if equals else Parameter.empty))
        return Signature(parameters)

    @property
    def is_mutable(self) -> bool:
        """Whether the op changes an argument in place."""
        return any(argument.is_write for argument in self.arguments)

    def __str__(self) -> str:
        return self.name + self._text

    __repr__ = __str__


def _parts(listed: str) -> list[str]:
    """What stands between the commas that are in no brackets."""
    return [part for each in re.split(r",(?![^\[(]*[\])])", listed) if (part := each.strip())]


_TYPES: dict[Any, str] = {
    Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", DType: "ScalarType", Device: "Device",
    int | float | bool: "Scalar", int | float: "Scalar",
}  # fmt: skip


def _type_name(annotation: Any) -> str | None:
    """What a schema calls an annotation; None for one that no schema has."""
    with suppress(TypeError):  # of what cannot be hashed
        if annotation in _TYPES:
            return _TYPES[annotation]
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        rest = tuple([each for each in inner if each is not NoneType])
        name = _type_name(Union[rest])  # noqa: UP007  (of as many as there are)
        return None if name is None or len(rest) == len(inner) else f"{name}?"
    if origin in (list, Sequence) and len(inner) == 1:
        name = _type_name(inner[0])
        return None if name is None else f"{name}[]"
    return None


def _returned(annotation: Any) -> str | None:
    if annotation in (None, NoneType):
        return "()"
    if get_origin(annotation) is not tuple:
        return _type_name(annotation)
    names = [_type_name(each) for each in get_args(annotation)]
    return None if None in names else f"({', '.join(map(str, names))})"


def _written(default: Any) -> str:
    return f'"{default}"' if isinstance(default, str) else str(default)


def infer_schema(
    prototype_function: Callable[..., Any], /, *, mutates_args: str | Iterable[str], op_name: str | None = None
) -> str:
    """The schema of `prototype_function`, by its annotations: "(Tensor x, *, SymInt n=1) -> Tensor".

    Arguments are tensors, ints, floats, bools, strings, dtypes and devices, lists of these, and None. mutates_args: the
    names of those that the function changes in place, or "unknown". op_name: what it begins with.

    Raises ValueError for a parameter without an annotation, or with one that no schema has, and for names in
    `mutates_args` that are no parameters.
    """
    with suppress(NameError):
        hints = get_type_hints(prototype_function)
    parameters = signature(prototype_function).parameters
    names = set() if mutates_args == "unknown" else {mutates_args} if isinstance(mutates_args, str) else {*mutates_args}
    if names - set(parameters):
        raise ValueError(
            f"infer_schema(func): mutates_args names {sorted(names - set(parameters))}, which are no parameters"
        )
    parts: list[str] = []
    for at, (name, parameter) in enumerate(parameters.items()):
        if parameter.kind is Parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        type_ = _type_name(hints[name]) if name in hints else None
        if type_ is None or parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            why = f"has an annotation that no schema has, {hints[name]}" if name in hints else "has no annotation"
            raise ValueError(f"infer_schema(func): parameter {name} {why}")
        if name in names or (mutates_args == "unknown" and type_.startswith("Tensor")):
            type_ = type_.replace("Tensor", f"Tensor(a{at}!)", 1)
        default = "" if parameter.default is Parameter.empty else f"={_written(parameter.default)}"
        parts.append(f"{type_} {name}{default}")
    returned = _returned(hints.get("return"))
    if returned is None:
        raise ValueError(f"infer_schema(func): no schema has the annotation of the results, {hints['return']}")
    return f"{op_name or ''}({', '.join(parts)}) -> {returned}"


def unannotated(parameters: Signature, mutates_args: str | Iterable[str]) -> str:
    """A schema of the parameters' names, for a function whose annotations say nothing."""
    names = {mutates_args} if isinstance(mutates_args, str) else {*mutates_args}
    parts = [f"Any(a{at}!) {name}" if name in names else f"Any {name}" for at, name in enumerate(parameters.parameters)]
    return f"({', '.join(parts)}) -> Any"
