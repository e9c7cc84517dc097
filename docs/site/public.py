"""What a user can import: the public names of norch's namespaces, taken from the live objects.

Most of norch's functions are made when it is imported, from a table of ops, so that reading its source finds few.
"""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

UNLISTED = ("extra_repr", "reset_parameters")
KINDS = (FunctionType, staticmethod, classmethod, property)


@dataclass
class Entry:
    """Something public. `names`: all of its names in its namespace, its own first; `members`: those of a class."""

    namespace: str
    names: list[str]
    value: Any
    members: list[Entry] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def path(self) -> str:
        return f"{self.namespace}.{self.name}"

    @cached_property
    def function(self) -> Any:
        """What was written: without what lies around it when it is called."""
        found = getattr(self.value, "of_method", self.value)
        found = getattr(found, "fget", None) or getattr(found, "__func__", found)
        return inspect.unwrap(found, stop=lambda f: hasattr(f, "op")) if callable(found) else found

    @cached_property
    def text(self) -> str:
        return inspect.getdoc(self.value) or inspect.getdoc(self.function) or ""

    @property
    def first(self) -> str:
        """The first sentence of its docstring, in one line."""
        line = " ".join(self.text.partition("\n\n")[0].split())
        end = next(
            (i + 1 for i, c in enumerate(line) if c == "." and line[i + 1 : i + 2] in ("", " ") and i > 12), None
        )
        return line[:end].rstrip(":")

    @cached_property
    def signature(self) -> str:
        """Without annotations; empty for what is not called."""
        if isinstance(self.value, property) or not callable(self.value):
            return ""
        try:
            found = inspect.signature(self.value)
        except (TypeError, ValueError):
            return "(...)"
        parameters = [p.replace(annotation=p.empty) for p in found.parameters.values()]
        shown = [p for p in parameters if not p.name.startswith("_")]
        if shown and shown[0].name in ("self", "cls"):
            shown = shown[1:]
        if [p.name for p in shown] == ["args", "kwargs"] and hasattr(self.function, "op"):
            operands = ("input", "other")[: len(self.function.op.params)]
            return f"({', '.join(operands)}, *, out=None)"
        return str(found.replace(parameters=shown, return_annotation=found.empty))

    @property
    def source(self) -> tuple[str, int] | None:
        """File and line."""
        module = sys.modules.get(getattr(self.function, "__module__", None) or "")
        file = getattr(module, "__file__", None)
        if not file or not callable(self.function):
            return None
        found = places(file)
        own = getattr(self.function, "__name__", self.name)  # which instances that are called have not
        names = (getattr(self.function, "__qualname__", ""), f"entry {own}", self.name)
        return next(((file, found[n]) for n in names if n in found), None)


@cache
def places(file: str) -> dict[str, int]:
    """The lines of a file where classes, functions and names begin; "entry add": where the table of ops has `add`."""
    found: dict[str, int] = {}

    def look(node: ast.AST, inside: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                found.setdefault(f"{inside}{child.name}", child.lineno)
                look(child, f"{inside}{child.name}.")
            elif isinstance(child, ast.Assign):
                for target in child.targets:
                    found.setdefault(f"{inside}{ast.unparse(target)}", child.lineno)
                call = child.value
                if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant):
                    found.setdefault(f"entry {call.args[0].value}", child.lineno)

    look(ast.parse(Path(file).read_text(encoding="utf-8")), "")
    return found


def entries(namespace: str, module: Any) -> list[Entry]:
    """By name. One object is one entry, whatever the number of its names."""
    found: dict[int, Entry] = {}
    for name, value in exported(module).items():
        known = found.get(id(value))
        if known is None:
            found[id(value)] = Entry(namespace, [name], value, members(f"{namespace}.{name}", value))
        elif name == getattr(value, "__name__", None):
            known.names.insert(0, name)
        else:
            known.names.append(name)
    for entry in found.values():
        if entry.members:
            entry.members = members(entry.path, entry.value)
    return sorted(found.values(), key=lambda e: e.name.lower())


def exported(module: Any) -> dict[str, Any]:
    """The functions, classes and constants of norch's under their public names."""
    names = getattr(module, "__all__", None)
    if names is None:
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and module.__name__ != "norch":
            names = written(Path(file).read_text(encoding="utf-8"), hasattr(module, "__path__"))
        else:
            names = dir(module)
    values = {n: getattr(module, n) for n in names if not n.startswith("_") and hasattr(module, n)}
    return {n: v for n, v in values.items() if _is_ours(v)}


def _is_ours(value: Any) -> bool:
    if isinstance(value, ModuleType) or not (callable(value) or type(value).__module__.startswith("norch.dtype")):
        return False
    return (getattr(value, "__module__", None) or type(value).__module__).startswith("norch")


def written(source: str, package: bool) -> list[str]:
    """What a module defines, and what it imports `as` the same name, or a package from its own modules."""
    names: list[str] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.ImportFrom):
            names += [a.name for a in node.names if a.asname == a.name or (package and node.level == 1)]
        elif isinstance(node, ast.Assign):
            names += [n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    return names


def members(path: str, owner: Any) -> list[Entry]:
    """The public methods and properties that a class defines itself, and documents otherwise than its bases do."""
    if not isinstance(owner, type):
        return []
    own = [(n, v) for n, v in sorted(vars(owner).items()) if isinstance(v, KINDS) and n[0] != "_" and n not in UNLISTED]
    found = [Entry(path, [n], v) for n, v in own if inspect.getdoc(getattr(v, "__func__", v))]
    inherited = owner.__mro__[1:]
    found = [e for e in found if not e.text.startswith("Raises")]  # what it refuses
    return [e for e in found if not any(inspect.getdoc(getattr(b, e.name, None)) == e.text for b in inherited)]
