"""A step in parts: what cannot be replayed runs as it is, the statements before and after it are captured.

The step's source is taken apart at its statements, and where one of those in a `with`, a loop or an `if` cannot be
replayed, at the statements within. Runs of statements that can be replayed become functions of the local variables that
they read, which return those that later statements read; the others stay where they are, in a function that calls the
parts. All are compiled with the step's file and lines, globals and closure.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from copy import copy
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from .statements import Statement, changed_by, targets, within

_SEES_LOCALS = frozenset({"locals", "vars", "eval", "exec", "dir"})


class Odd(Exception):
    """Why a function is not taken apart."""


UNBOUND = "<no value>"
"""What a part returns for a variable that has no value: this very object."""
_UNBOUND_NAME = "_norch_unbound"


class Part:
    """Consecutive statements that are captured: from the local variables `inputs` to `outputs`, of which `unsure` may
    have no value."""

    def __init__(
        self, statements: list[Statement], inputs: list[str], outputs: list[str], unsure: list[str], ends: bool
    ) -> None:
        self.statements, self.inputs, self.outputs, self.unsure = statements, inputs, outputs, unsure
        self.ends = ends

    @property
    def lines(self) -> tuple[int, int]:
        return self.statements[0].first, self.statements[-1].last


class Split:
    """A function in parts. `run` does what it does; `capture(part function, its outputs)` makes a part's captured form.

    refuse(line): has the statement there run as it is from now on. Raises Odd where the function is none that can be
    taken apart.
    """

    def __init__(self, function: Any, capture: Callable[[FunctionType, Part], Any]) -> None:
        self.bound = (function.__self__,) if isinstance(function, MethodType) else ()
        self.function = getattr(function, "__func__", function)
        self.capture = capture
        if not isinstance(self.function, FunctionType) or hasattr(self.function, "__wrapped__"):
            raise Odd("its source is that of another function")
        self.code = self.function.__code__
        self.tree = _source(self.function)
        local = frozenset((*self.code.co_varnames, *self.code.co_cellvars))
        self.statements = [Statement(node, local) for node in self.tree.body]
        self.local = local
        self._leave_changed()
        self.known: dict[tuple[int, ...], Any] = {}
        self.parts: list[Part] = []
        self.run: Callable[..., Any] = self.function

    def _leave_changed(self) -> None:
        """Python that the step changes itself is not what it was when a part was recorded."""
        every = [s for top in self.statements for s in top.every()]
        changed = {name for s in every for node in s.head for name in changed_by(node)} - self.local
        for statement in self.statements:
            statement.leave(changed)

    def refuse(self, line: int) -> bool:
        """Whether there is a statement at that line."""
        found = [s for s in self.statements if s.first <= line <= s.last]
        for statement in found:
            statement.refuse(line)
        if found:
            self._leave_changed()
            self._build()
        return bool(found)

    def first_left(self) -> int | None:
        """The line of a statement that is no part by what it is."""
        return next((s.first for top in self.statements for s in top.leaves() if s.eager), None)

    def last_line(self) -> int:
        """That of the last statement."""
        last = self.statements[-1]
        while last.blocks:
            last = within(last.blocks)[-1]
        return last.first

    def leave(self, part: Part, output: int) -> bool:
        """`refuse` for the last statement of `part` that assigns its output of that number."""
        lines = [s.first for s in part.statements if part.outputs[output] in s.writes]
        return bool(lines) and self.refuse(lines[-1])

    def captured_parts(self) -> list[tuple[tuple[int, int], Any]]:
        """The first and last line of each part, and what is captured of it."""
        return [(part.lines, self.known[tuple(map(id, part.statements))]) for part in self.parts]

    def leave_readers(self, part: Part, name: str) -> None:
        """`refuse` for the statements of `part` that read one of its inputs."""
        for statement in part.statements:
            statement.eager = statement.eager or name in statement.reads
        self._build()

    def _build(self) -> None:
        arguments = self.tree.args
        given = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
        bound = {a.arg for a in given if a is not None}
        self.parts, self.cells = [], {_UNBOUND_NAME: CellType(UNBOUND)}
        body = self._block(self.statements, bound, set(), set(self.code.co_cellvars))
        self.run = self._compile(self.tree.name, arguments, body, self.cells)
        self.run.__defaults__, self.run.__kwdefaults__ = self.function.__defaults__, self.function.__kwdefaults__

    def _block(
        self, statements: list[Statement], bound: set[str], earlier: set[str], later: set[str]
    ) -> list[ast.stmt]:
        """The statements with calls of parts among them.

        bound: names that surely have values before them. earlier: names that may have. later: names whose values matter
        behind them.
        """
        body: list[ast.stmt] = []
        bound, earlier = set(bound), set(earlier)
        at = 0
        while at < len(statements):
            group: list[Statement] = []
            known = set(bound)
            while at < len(statements) and self._joins(statements[at], known, earlier):
                group.append(statements[at])
                known |= statements[at].surely
                at += 1
            after = later.union(*[s.reads | (s.writes - s.surely) for s in statements[at + (not group) :]])
            if group:
                part = self._part(group, bound, after)
                name = f"_norch_part_{len(self.parts)}"
                key = tuple(map(id, group))
                if key not in self.known:
                    self.known[key] = self.capture(self._function(part), part)
                self.cells[name] = CellType(self.known[key])
                self.parts.append(part)
                body += _call(part, name)
            else:
                group, known = [statements[at]], bound | statements[at].surely
                body.append(self._opened(statements[at], bound, earlier, after))
                at += 1
            bound = known
            earlier |= {name for s in group for name in s.writes}
        return body

    def _opened(self, statement: Statement, bound: set[str], earlier: set[str], later: set[str]) -> ast.stmt:
        """A statement that runs as it is, with parts in its blocks."""
        if not statement.blocks:
            return statement.node
        node: Any = copy(statement.node)
        if isinstance(node, ast.For | ast.While):  # the next turn sees what this one assigns
            earlier, later = earlier | statement.writes, later | statement.reads | statement.writes
        elif isinstance(node, ast.With):
            bound = bound.union(*(targets(i.optional_vars) for i in node.items))
        if isinstance(node, ast.For):
            bound = bound | targets(node.target)
        blocks = [self._block(block, bound, earlier, later) for block in statement.blocks]
        node.body = blocks[0]
        if len(blocks) > 1:
            node.orelse = blocks[1]
        return node  # type: ignore[no-any-return]

    def _joins(self, statement: Statement, known: set[str], earlier: set[str]) -> bool:
        """Whether a statement can be in a part, where the names `known` surely have values before it, and those
        `earlier` had perhaps before the part."""
        unsure = statement.writes - statement.surely - known
        return not statement.eager and not (earlier - known) & (statement.reads | unsure)

    def _part(self, group: list[Statement], bound: set[str], later: set[str]) -> Part:
        written, inputs = set[str](), dict[str, None]()
        for statement in group:
            needed = (statement.reads | (statement.writes - statement.surely)) & bound
            inputs |= dict.fromkeys(sorted(needed - written))
            written |= statement.surely
        kept = {name for s in group for name in s.writes} & later
        return Part(
            group, list(inputs), sorted(kept), sorted(kept - bound - written), isinstance(group[-1].node, ast.Return)
        )

    def _function(self, part: Part) -> FunctionType:
        body = [s.node for s in part.statements]
        if not part.ends:
            last = body[-1]
            body += [_at(_if_unbound(name), last.end_lineno or last.lineno, anew=True) for name in part.unsure]
            names: list[ast.expr] = [ast.Name(name, ast.Load()) for name in part.outputs]
            body.append(_at(ast.Return(ast.Tuple(names, ast.Load())), last.end_lineno or last.lineno))
        arguments = ast.arguments([], [ast.arg(name) for name in part.inputs], None, [], [], None, [])
        return self._compile(self.tree.name, arguments, body, self.cells)

    def _compile(
        self, name: str, arguments: ast.arguments, body: list[ast.stmt], cells: dict[str, CellType]
    ) -> FunctionType:
        closure = dict(zip(self.code.co_freevars, self.function.__closure__ or (), strict=True)) | cells
        code = _code(name, arguments, body, [*closure], self.code)
        return FunctionType(
            code, self.function.__globals__, name, None, tuple([closure[free] for free in code.co_freevars])
        )


def _source(function: FunctionType) -> ast.FunctionDef:
    """The function's definition, with the lines of its file."""
    code = function.__code__
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise Odd("it is a generator or a coroutine")
    try:
        lines, first = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        raise Odd("its source is not to be had") from None
    definition = tree.body[0] if len(tree.body) == 1 else None
    if not isinstance(definition, ast.FunctionDef):
        raise Odd("its source is no function of its own")
    ast.increment_lineno(tree, first - 1)
    same = _code(definition.name, definition.args, definition.body, [*code.co_freevars], code)
    if _outline(same) != _outline(code):
        raise Odd("its source is not that of its code")
    for node in ast.walk(definition):
        if isinstance(node, ast.Global | ast.Nonlocal):
            raise Odd("it assigns variables of others")
        if isinstance(node, ast.Name) and node.id in _SEES_LOCALS:
            raise Odd(f"it calls {node.id}()")
    return definition


def _outline(code: CodeType) -> Any:
    """What code that was compiled in another module has in common: instructions may differ."""
    constants = {repr(c) for c in code.co_consts if not isinstance(c, CodeType)}
    return set(code.co_names), code.co_varnames, constants, {line for *_, line in code.co_lines()}


def _code(name: str, arguments: ast.arguments, body: list[ast.stmt], free: Sequence[str], like: CodeType) -> CodeType:
    """The code of a function with these variables of an enclosing function."""
    line = like.co_firstlineno
    inner = ast.FunctionDef(name, arguments, body, [], None, None)
    use: list[ast.expr] = [ast.Name(variable, ast.Load()) for variable in free]
    outer = ast.FunctionDef(
        "_norch_outer",
        ast.arguments([], [ast.arg(variable) for variable in free], None, [], [], None, []),
        [_at(inner, line), _at(ast.Expr(ast.Tuple(use, ast.Load())), line)],
        [],
        None,
        None,
    )
    module = ast.Module([_at(outer, line)], [])
    for node in (inner, outer):
        if "type_params" in node._fields:
            node.type_params = []  # type: ignore[attr-defined]
    flags = like.co_flags & _FUTURES
    compiled = compile(ast.fix_missing_locations(module), like.co_filename, "exec", flags, dont_inherit=True)
    middle = next(c for c in compiled.co_consts if isinstance(c, CodeType))
    return next(c for c in middle.co_consts if isinstance(c, CodeType) and c.co_name == name)


_FUTURES = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names} - {inspect.CO_NESTED})
"""The bits of `co_flags` that say what was imported from `__future__`: those that `compile` takes."""


def _at(node: Any, line: int, anew: bool = False) -> Any:
    """`node`, and what in it has no place yet, or all of it, at a line."""
    for part in ast.walk(node):
        if "lineno" in part._attributes and (anew or getattr(part, "lineno", None) is None):
            part.lineno = part.end_lineno = line  # type: ignore[attr-defined]
            part.col_offset = part.end_col_offset = 0  # type: ignore[attr-defined]
    return node


def _call(part: Part, name: str) -> list[ast.stmt]:
    call = ast.Call(ast.Name(name, ast.Load()), [ast.Name(n, ast.Load()) for n in part.inputs], [])
    made: list[ast.stmt]
    if part.ends:
        made = [ast.Return(call)]
    elif part.outputs:
        made = [ast.Assign([ast.Tuple([ast.Name(n, ast.Store()) for n in part.outputs], ast.Store())], call)]
        made += ast.parse("\n".join(f"if {n} is {_UNBOUND_NAME}: del {n}" for n in part.unsure)).body
    else:
        made = [ast.Expr(call)]
    return [_at(node, part.statements[0].first, anew=True) for node in made]


def _if_unbound(name: str) -> ast.stmt:
    """Gives a variable that has no value the one that says so."""
    return ast.parse(f"try: {name}\nexcept NameError: {name} = {_UNBOUND_NAME}").body[0]
