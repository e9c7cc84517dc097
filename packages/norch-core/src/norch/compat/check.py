"""`norch check script.py`: what a script written for PyTorch uses and norch lacks, without running it.

It follows names that the script imports from `torch`, `torchvision` or `norch` and the dotted names behind them
(`nn.functional.relu`); methods of tensors and modules are not among them, as their types are known only by running.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from .standin import MEANS

_ROOTS = MEANS | {"norch": "norch"}


_COO = "sparse tensors are COO, CSR or CSC: sparse_coo_tensor, sparse_csr_tensor, sparse_csc_tensor"
_INSTEAD = {
    "hspmm": "use spmm",
    "sparse.spdiags": "use norch.diag(diagonal, k).to_sparse()",
    **dict.fromkeys(["sparse_bsr_tensor", "sparse_bsc_tensor"], _COO),
    "vision.models": "there are the models of images that classify, and a U-Net: dir(norch.vision.models)",
}
"""By the name of what norch lacks, or of the module that it is looked for in: what there is."""


class Use(NamedTuple):
    line: int
    name: str
    """As the script means it, from its root: torch.nn.functional.relu."""


def uses(source: str, filename: str = "<script>") -> list[Use]:
    """What the source asks of PyTorch, in order, each name once. Raises SyntaxError."""
    tree = ast.parse(source, filename)
    found: dict[str, int] = {}
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        for name, means in _imported(node):
            found.setdefault(means, node.lineno)  # type: ignore[attr-defined]
            if name:
                known[name] = means
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            names: list[str] = []
            part: ast.expr = node
            while isinstance(part, ast.Attribute):
                names.insert(0, part.attr)
                part = part.value
            if isinstance(part, ast.Name) and part.id in known and isinstance(node.ctx, ast.Load):
                found.setdefault(".".join([known[part.id], *names]), node.lineno)
    return sorted([Use(line, name) for name, line in found.items()])


def _imported(node: ast.AST) -> Iterator[tuple[str | None, str]]:
    """What an import statement binds, and what that means."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            root = alias.name.partition(".")[0]
            if root in _ROOTS:
                yield (alias.asname, alias.name) if alias.asname else (None, alias.name)
                if not alias.asname:
                    yield root, root
    elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] in _ROOTS:
        for alias in node.names:
            if alias.name == "*":
                yield None, node.module or ""
            else:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def lacks(name: str) -> str | None:
    """The part of a dotted name that norch lacks and, after it, why where there is more to say; None if it has it."""
    root, *parts = name.split(".")
    found: Any = import_module(_ROOTS[root])
    path = _ROOTS[root]
    for i, part in enumerate(parts):
        shown = ".".join([root, *parts[: i + 1]])
        try:
            found = getattr(found, part)
        except AttributeError:
            if hasattr(found, "device_type") and not found.is_available():
                return None  # what its backend adds is not known here
            if not hasattr(found, "__path__"):
                return _with_way(shown, path, part) if isinstance(found, type(sys) | type) else None
            try:
                found = import_module(f"{path}.{part}")
            except ImportError:
                return _with_way(shown, path, part)
        path += f".{part}"
        instead = getattr(found, "_instead", None) if isinstance(found, type) else None
        if instead:
            return f"{shown}: {instead}"
    return None


def _with_way(shown: str, path: str, part: str) -> str:
    ours = f"{path}.{part}".removeprefix("norch.")
    instead = _INSTEAD.get(ours, _INSTEAD.get(path.removeprefix("norch.")))
    return f"{shown}: {instead}" if instead else shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script", nargs="+", type=Path, help="Python files; of a folder all that are in it")


def main(options: argparse.Namespace) -> int:
    """Prints `file:line: name` for what is missing. The exit status is 1 if anything is."""
    status = 0
    for given in options.script:
        for file in sorted(given.rglob("*.py")) if given.is_dir() else [given]:
            try:
                found = uses(file.read_text(encoding="utf-8"), str(file))
            except (OSError, SyntaxError, UnicodeDecodeError) as error:
                print(f"{file}: {error}", file=sys.stderr)
                status = 2
                continue
            for use in found:
                missing = lacks(use.name)
                if missing is not None:
                    print(f"{file}:{use.line}: norch lacks {missing}")
                    status = status or 1
    return status
