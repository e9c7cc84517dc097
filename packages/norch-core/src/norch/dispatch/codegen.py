"""The call paths of ops: from arguments to a kernel and, where a gradient is wanted, a node of the graph.

Each is written for its op's signature when it is first called, as dataclasses write `__init__`: binding arguments,
making the key, launching and recording in a loop over parameters takes three times as long, and that is what a small
model costs. What is written here in one piece for all: the lookup of the plan, the launch of its kernel, the tensor
that is returned, the node that is recorded. What none of them can take is left to `norch.dispatch.call.run`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from types import FunctionType
from typing import TYPE_CHECKING, Any

from .. import observing
from ..autograd.graph import BUILD_NODE, UNTRACKED, is_recording, next_sequence_number, resolve
from ..autograd.lines import names_for
from ..tensor_base import BUILD_RESULT, TakenOver, TensorBase
from .failure import raise_failure
from .plan import SCALARS

if TYPE_CHECKING:
    from .op import Op

MAX_OPTIONAL = 3
"""Optional operands for which each combination has a launch of its own."""

TENSOR, SCALAR = "tensor", "scalar"

general_paths: dict[str, Callable[..., Any]] = {}
"""What a call path leaves a call to, by its name there. `norch.dispatch.call`, which knows ops, fills it."""


def call_path(
    op: Op,
    prototype: Callable[..., Any] | None = None,
    *,
    reflected: bool = False,
    into: bool = False,
    method: str | None = None,
    otherwise: Callable[..., Any] | None = None,
    takes_out: tuple[str, ...] | None = None,
    shown: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """A function that runs `op`.

    prototype: a function whose signature it gets, with a parameter for each of the op's; those of the op itself, all
        required, unless given.
    reflected: the two operands come in the opposite order, as those of `__rsub__` do.
    into: the first argument is the tensor that the result is written into, unrecorded. It has the result's shape and
        takes its dtype, and does not partly overlap an operand.
    method: the name of an in-place method, whose first operand is also what it writes into. `otherwise` is called
        instead where the graph takes part, memory overlaps, or an argument is more than a tensor or a scalar.
    takes_out: given where there is an argument `out`, a tensor that the result is written into, and these others. All
        come by name; `otherwise`, if given, takes the others.
    shown: a function whose signature `inspect.signature` gives, where that is not the prototype's.
    """
    scope: dict[str, Any] = {"__name__": __name__, "_op": op}
    call: Any = FunctionType(_unwritten.__code__, scope, method or op.name)
    if prototype is not None:
        call.__wrapped__ = shown or prototype

    def write(*args: Any, **kwargs: Any) -> Any:
        scope.update(
            _plans=op.into_plans if into or method else op.plans, _saves=op.saves, _new=object.__new__,
            _Tensor=TensorBase._result_class, _UNTRACKED=UNTRACKED, _SCALARS=SCALARS, _resolve=resolve,
            _next_sequence_number=next_sequence_number, _is_recording=is_recording, _raise_failure=raise_failure,
            _otherwise=otherwise, _TakenOver=TakenOver, **general_paths, **names_for(call),
        )  # fmt: skip
        writer = _Writer(op, prototype, reflected, takes_out)
        source = writer.in_place(method) if method else writer.into() if into else writer.call()
        exec(compile(source, f"<norch {method or op.name}>", "exec"), scope)
        # The same function from here on, so that whoever has it calls the written code and nothing before it.
        path = observing.unobserved(call)
        for function in (call, path):
            if prototype is not None:
                function.__defaults__, function.__kwdefaults__ = prototype.__defaults__, prototype.__kwdefaults__
            if takes_out is not None:
                function.__defaults__ = (None,) * (2 + len(takes_out))
        path.__code__ = scope["_call"].__code__
        return path(*args, **kwargs)

    scope["_write"] = write
    observing.add(call, _described_into if into else _described_in_place if method else _described)
    return call  # type: ignore[no-any-return]


def _described(call: Any) -> observing.Observed:
    op = call.__globals__["_op"]
    return observing.Observed(observing.OP, op.name, op)


def _described_in_place(call: Any) -> observing.Observed:
    op = call.__globals__["_op"]
    return observing.Observed(observing.OP, f"{op.name}_", op)


def _described_into(call: Any) -> observing.Observed:
    op = call.__globals__["_op"]
    return observing.Observed(observing.INTO, op.name, op)


def _unwritten(*args: Any, **kwargs: Any) -> Any:
    return _write(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821


class _Writer:
    """Writes the source of one call path."""

    def __init__(
        self, op: Op, prototype: Callable[..., Any] | None, reflected: bool, takes_out: tuple[str, ...] | None
    ) -> None:
        self.op, self.reflected, self.takes_out = op, reflected, takes_out
        self.lines: list[str] = []
        if prototype is None:
            names = list(op.params)
            self.parameters = ", ".join(names) + (", _shift" if op.place is not None else "")
        else:
            code = prototype.__code__
            names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
            only = ["*", *names[code.co_argcount :]] if code.co_kwonlyargcount else []
            self.parameters = ", ".join([*names[: code.co_argcount], *only])
        self.names = names[::-1] if reflected else names
        self.arguments = ", ".join(self.names)
        self.optional = [i for i in op.tensors if i in op.optional]

    def write(self, depth: int, text: str) -> None:
        self.lines += [f"{'    ' * depth}{line}" for line in text.splitlines()]

    # --- The three kinds of call path ---

    def call(self) -> str:
        if self.takes_out is not None:
            # After what no call gives, since Python calls functions with arguments by name alone 20 ns more slowly.
            more = ["_extra", "out", *self.takes_out]
            self.write(0, f"def _call({self.parameters}, {', '.join(f'{name}=None' for name in more)}):")
            self.write(1, f"if {' or '.join(f'{name} is not None' for name in more)}:")
            others = ", ".join([f"{name}={name}" for name in more])
            self.write(2, f"return _with_out(_op, _otherwise, ({self.arguments},), {others})")
        else:
            self.write(0, f"def _call({self.parameters}):")
        if self.op.kind == "view":
            self.view()
        elif self.op.variadic:
            self.body(1, {})
        else:
            lead = self.op.tensors[-1 if self.reflected else 0] if self.op.tensors else None
            self.branches(1, [i for i in self.op.mixed if i != lead], {}, lead)
        return "\n".join(self.lines)

    def into(self) -> str:
        self.write(0, f"def _call(_out, {self.parameters}):")
        self.lookup(1, {}, "_out.spec, ", f"_into(error, _op, _out, {self.arguments})")
        self.launch(1, f"plan.kernel(_out.buffer, _out.offset, {self.flat({})})")
        return "\n".join(self.lines)

    def in_place(self, method: str) -> str:
        """`x.add_(y)`: the kernel writes over its first operand."""
        first, *rest = self.names
        self.write(0, f"def _call({first}, *args, **more):")
        self.write(1, f"if more or len(args) != {len(rest)}:\n    return _otherwise({first}, *args, **more)")
        if rest:
            self.write(1, f"{', '.join(rest)}, = args")
        self.write(1, f"if {first}.node is not None or {first}.base is not None:")
        self.write(2, f"root = {first} if {first}.base is None else {first}.base")
        tracked = f"(root.node is not None or ({first}.node is not None and {first}.node is not _UNTRACKED))"
        self.write(2, f"if {tracked} and _is_recording():")
        self.write(3, f"return _otherwise({self.arguments})")
        self.in_place_branches(1, [i for i in self.op.mixed if i], {}, method)
        return "\n".join(self.lines)

    def in_place_branches(self, depth: int, mixed: list[int], kinds: dict[int, str], method: str) -> None:
        if mixed:
            at, *rest = mixed
            name = self.names[at]
            self.write(depth, f"if isinstance({name}, _Tensor):")
            self.in_place_branches(depth + 1, rest, {**kinds, at: TENSOR}, method)
            self.write(depth, f"elif type({name}) in _SCALARS:")
            self.in_place_branches(depth + 1, rest, {**kinds, at: SCALAR}, method)
            self.write(depth, f"return _otherwise({self.arguments})")
            return
        first = self.names[0]
        others = [self.names[i] for i in self.op.tensors if i and kinds.get(i) != SCALAR]
        for name in others:
            tracked = f"({name}.node is not _UNTRACKED or {name}.base.node is not None)"
            self.write(depth, f"if {name}.node is not None and {tracked} and _is_recording():")
            self.write(depth + 1, f"return _otherwise({self.arguments})")
        self.write(depth, f"try:\n    plan = _plans[{first}.spec, {self.key(kinds)}]")
        self.write(depth, f"except _TakenOver:\n    return _otherwise({self.arguments})")
        tests = ["not plan.in_place"]
        for name in others:
            same = f"{name}.spec is not {first}.spec or {name}.offset != {first}.offset"
            tests.append(f"{name}.buffer is {first}.buffer and ({same})")
        self.write(depth, f"if {' or '.join(tests)}:\n    return _otherwise({self.arguments})")
        self.launch(depth, f"plan.kernel({first}.buffer, {first}.offset, {self.flat(kinds)})")
        modified = f"(_next_sequence_number(), {method!r}, _line and _line())"
        self.write(depth, f"{first}.buffer.modified = {modified}\nreturn {first}")

    # --- Parts of them ---

    def branches(self, depth: int, mixed: list[int], kinds: dict[int, str], lead: int | None) -> None:
        """A body for each combination of tensors and scalars; `lead` is taken for a tensor."""
        if not mixed:
            self.body(depth, kinds)
            return
        at, *rest = mixed
        name = self.names[at]
        if not self.reflected:
            self.write(depth, f"if isinstance({name}, _Tensor):")
            self.branches(depth + 1, rest, {**kinds, at: TENSOR}, lead)
        scalar = f"type({name}) in _SCALARS"
        first = lead is not None and lead in self.op.mixed
        self.write(depth, f"if {scalar} and isinstance({self.names[lead]}, _Tensor):" if first else f"if {scalar}:")  # type: ignore[index]
        self.branches(depth + 1, rest, {**kinds, at: SCALAR}, lead)
        self.write(depth, f"return _again(None, _op, {self.arguments})")

    def body(self, depth: int, kinds: dict[int, str]) -> None:
        op = self.op
        self.lookup(depth, kinds, "", f"_again(error, _op, {self.arguments})")
        if len(self.optional) > MAX_OPTIONAL:
            self.write(depth, f"return _execute(plan, ({self.arguments},))")
            return
        self.write(depth, "make = plan.make")
        by_parts = ""
        if op.rules is None and op.decompose is not None and not op.variadic:
            operands = [i for i in op.tensors if kinds.get(i) != SCALAR]
            tests = []
            for i in operands:
                name = self.names[i]
                is_given = f"{name} is not None and " if i in op.optional else ""
                # A view of a constant has a node too, which resolves to none.
                tests.append(f"{is_given}{name}.node is not None and _resolve({name})")
            by_parts = f" or (_is_recording() and ({' or '.join(tests)}))" if tests else ""
        self.write(depth, f"if make is None{by_parts}:\n    return _execute(plan, ({self.arguments},))")
        self.write(depth, "out = _new(_Tensor)\ntry:")
        for i, there in enumerate(product((True, False), repeat=len(self.optional))):
            absent = {at for at, given in zip(self.optional, there, strict=True) if not given}
            inner = depth + 1
            if self.optional:
                tests = [f"{self.names[at]} is {'None' if at in absent else 'not None'}" for at in self.optional]
                self.write(inner, f"{'elif' if i else 'if'} {' and '.join(tests)}:")
                inner += 1
            if op.variadic:
                self.write(inner, f"if len({self.names[0]}) == 2:\n    x, y = {self.names[0]}")
                self.write(inner + 1, "flat = (x.buffer, x.offset, y.buffer, y.offset)")
                self.write(inner + 1, "tracked = x.node is not None or y.node is not None")
                self.write(inner, f"else:\n    flat, tracked = [], False\n    for x in {self.names[0]}:")
                self.write(inner + 2, "flat += (x.buffer, x.offset)\nif x.node is not None:\n    tracked = True")
            self.write(
                inner, f"out.buffer = buffer = make({'*flat, ' if op.variadic else ''}{self.flat(kinds, absent)})"
            )
        self.write(depth, "except Exception as error:\n    _raise_failure(plan, error)")
        self.write(depth, BUILD_RESULT)
        if op.rules is not None:
            (self.record_variadic if op.variadic else self.record)(depth, kinds)
        self.write(depth, "return out")

    def lookup(self, depth: int, kinds: dict[int, str], before: str, otherwise: str) -> None:
        self.write(depth, f"try:\n    plan = _plans[{before}{self.key(kinds)}]")
        self.write(depth, f"except (AttributeError, TypeError) as error:\n    return {otherwise}")  # a list, a mistake

    def key(self, kinds: dict[int, str]) -> str:
        parts = []
        for i, name in enumerate(self.names):
            if i == self.op.place:
                continue
            if self.op.variadic and not i:
                parts.append(f"tuple([x.spec for x in {name}])")
            elif i in self.op.scalars and self.op.kind == "primitive":
                parts.append("int")
            elif i in self.op.scalars or i in self.op.numbers or kinds.get(i) == SCALAR:
                parts.append(f"type({name})")
            elif i not in self.op.tensors:
                parts.append(name)
            else:
                parts.append(f"None if {name} is None else {name}.spec" if i in self.op.optional else f"{name}.spec")
        return ", ".join(parts) + ("," if self.op.variadic else "")  # a key that is one tuple is a tuple of it

    def flat(self, kinds: dict[int, str], absent: set[int] | frozenset[int] = frozenset()) -> str:
        """Buffers, offsets and scalars, as a kernel takes them."""
        parts = []
        for i, name in enumerate(self.names):
            if i in self.op.scalars or i in self.op.numbers or kinds.get(i) == SCALAR:
                parts.append(name)
            elif i in self.op.tensors and i not in absent and not self.op.variadic:
                parts.append(f"{name}.buffer, {name}.offset")
        return ", ".join(parts)

    def launch(self, depth: int, call: str) -> None:
        self.write(depth, f"try:\n    {call}\nexcept Exception as error:\n    _raise_failure(plan, error)")

    def view(self) -> None:
        """The same buffer under another spec."""
        op, x = self.op, self.names[0]
        self.lookup(1, {}, "", f"_again(error, _op, {self.arguments})")
        shift = "plan.shift" if op.place is None else "plan.shift + _shift"
        self.write(
            1, f"out = _new(_Tensor)\nout.spec = plan.out\nout.buffer = {x}.buffer\nout.offset = {x}.offset + {shift}"
        )
        self.write(1, f"out._grad = None\nbase = {x}.base\nout.base = {x} if base is None else base\nsource = {x}.node")
        self.write(1, "if source is None:\n    out.node = _UNTRACKED if base is None else None")
        self.write(1, "else:\n    out.node = _UNTRACKED if source is _UNTRACKED else None")
        self.write(2, "if _is_recording():")
        self.write(3, f"if base is not None:\n    source = _resolve({x})\nif source is not None:")
        saved, _ = op.saves[1] if op.rules else ((False,), False)
        rest = "".join(f"{name}, " for name in self.names[1:])
        self.node(4, "(source,)", f"({x if saved is None or saved[0] else 'None'}, {rest})", f"((None, {shift}),)")
        self.write(1, "return None if plan.out is None else out")

    def record(self, depth: int, kinds: dict[int, str]) -> None:
        op, names = self.op, self.names
        assert op.rules is not None
        wanted = [
            i for i, rule in zip(op.tensors, op.rules, strict=True) if rule is not None and kinds.get(i) != SCALAR
        ]
        if not wanted:
            return
        for i in wanted:
            self.write(
                depth, f"node{i} = {f'None if {names[i]} is None else ' if i in op.optional else ''}{names[i]}.node"
            )
        self.write(depth, f"if ({' or '.join(f'node{i} is not None' for i in wanted)}) and _is_recording():")
        depth += 1
        for i in wanted:
            outer = f"node{i} is not None and " if i in op.optional else ""
            self.write(depth, f"if {outer}{names[i]}.base is not None:\n    node{i} = _resolve({names[i]})")
        if len(wanted) > 2:
            self.write(depth, f"wanted = {' | '.join(f'(node{i} is not None) << {i}' for i in wanted)}\nif wanted:")
            self.write(depth + 1, "saved, saved_outputs = _saves[wanted]")
            some = "".join(
                f"{n} if saved[{i}] else None, " if i in op.tensors else f"{n}, " for i, n in enumerate(names)
            )
            inputs = f"({self.arguments}, ) if saved is None else ({some})"
            self.node(depth + 1, self.edges(wanted), inputs, "((buffer, 0),) if saved_outputs else None")
            return
        for n, there in enumerate(product((True, False), repeat=len(wanted))):
            live = [i for i, given in zip(wanted, there, strict=True) if given]
            if not live:
                continue
            tests = " and ".join(f"node{i} is not None" for i in live)
            self.write(depth, f"{'elif' if n else 'if'} {tests}:")
            saved, outputs = op.saves[sum(1 << i for i in live)]
            inputs = "".join(
                "None, " if saved is not None and not saved[i] else f"{name}, " for i, name in enumerate(names)
            )
            self.node(depth + 1, self.edges(live), f"({inputs})", "((buffer, 0),)" if outputs else "None")

    def edges(self, wanted: list[int]) -> str:
        return f"({''.join(f'node{i}, ' if i in wanted else 'None, ' for i in self.op.tensors)})"

    def record_variadic(self, depth: int, kinds: dict[int, str]) -> None:
        """Saves no operand: a rule of a variadic op asks for their specs."""
        x, *rest = self.names
        self.write(depth, "if tracked and _is_recording():")
        self.write(depth + 1, f"edges = tuple([None if x.node is None else _resolve(x) for x in {x}])")
        self.write(depth + 1, "if any([e is not None for e in edges]):")
        self.node(depth + 2, "edges", f"(None, {''.join(f'{n}, ' for n in rest)})", "None")

    def node(self, depth: int, edges: str, inputs: str, outputs: str) -> None:
        self.write(depth, BUILD_NODE.format(edges=edges, saved_inputs=inputs, saved_outputs=outputs))
