"""Plays the Python of a page as one session, and writes what it gives beside it.

    python          is run. A comment behind an expression, or on the lines below it, is what it gives
    python, fails   raises; the message is what it prints
    prints          what the block before printed
    prints, cuda    the same, written only where there is a GPU

What a session saves as *.svg becomes a picture of docs/pictures/, unless only a GPU draws it.
"""

from __future__ import annotations

import ast
import json
import linecache
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Any, cast

PICTURES = Path(__file__).parent / "pictures"


class Session:
    """Python that runs beside this one, in `folder`; names last from block to block. `name` is its file's."""

    def __init__(self, folder: Path, name: str, path: list[str]) -> None:
        self.folder, self.printed = folder, ""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*path, *sys.path]), "PYTHONDONTWRITEBYTECODE": "1"}
        environment.setdefault("NORCH_BACKEND_CPU", "numpy")
        self.child = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), name], cwd=folder, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.asks, self.answers = cast(IO[str], self.child.stdin), cast(IO[str], self.child.stdout)

    def block(self, text: str, fails: bool) -> str:
        """Runs a block; its text with the results. Raises RuntimeError where it fails and should not, or should."""
        self.asks.write(json.dumps(text) + "\n")
        self.asks.flush()
        answer = json.loads(self.answers.readline())
        self.printed = answer["printed"]
        if (answer["error"] is not None) != fails:
            raise RuntimeError(f"{answer['error'] or 'no error'}\nin\n{text}")
        if fails:
            self.printed += answer["error"] + "\n"
        return str(answer["text"])

    def close(self) -> None:
        self.asks.close()
        self.child.wait(60)
        self.answers.close()

    def pictures(self) -> dict[str, str]:
        """By name: what the session drew."""
        return {path.name: path.read_text(encoding="utf-8") for path in sorted(self.folder.glob("*.svg"))}


# --- In the child ---------------------------------------------------------------------------------------------------


def results(text: str, values: dict[int, str]) -> str:
    """A block with the values of expressions, by the line on which they end, in the comments behind or below them."""
    lines = text.splitlines()
    made: list[str] = []
    number = 0
    while number < len(lines):
        line, number = lines[number], number + 1
        if number not in values:
            made.append(line)
            continue
        code, sign, _ = line.partition("  # ")
        below = number
        while below < len(lines) and lines[below].startswith("#"):
            below += 1
        shown = values[number].splitlines()
        if sign and len(shown) == 1:
            made.append(f"{code}  # {shown[0]}")
        elif sign or below > number:
            made += [code, *(f"# {part}" for part in shown)]
            number = below
        else:
            made.append(line)
    return "\n".join(made) + "\n"


def run(text: str, file: Path, names: dict[str, Any]) -> dict[int, str]:
    """Runs a block, appended to `file`, so that tools find its source; what expressions give, by their last line."""
    before = file.read_text() if file.exists() else ""
    file.write_text(before + text)
    linecache.checkcache()  # errors show lines of it
    first = before.count("\n")
    values: dict[int, str] = {}
    for node in ast.parse(text).body:
        ast.increment_lineno(node, first)
        if isinstance(node, ast.Expr):
            value = eval(compile(ast.Expression(node.value), str(file), "eval"), names)
            if value is not None:
                values[node.end_lineno - first] = repr(value)
        else:
            exec(compile(ast.Module([node], []), str(file), "exec"), names)
    return values


def main() -> None:
    import contextlib
    import io
    import shutil

    which = shutil.which  # pictures are laid out by norch, also where Graphviz is installed
    shutil.which = lambda name, *given, **named: None if name == "dot" else which(name, *given, **named)  # type: ignore
    file = Path(sys.argv[1])
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(file)}
    sys.path[0] = ""  # this folder's modules, as in a session
    for message in sys.stdin:
        text, printed, error, values = json.loads(message), io.StringIO(), None, {}
        with contextlib.redirect_stdout(printed):
            try:
                values = run(text, file, names)
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}"
        answer = {"text": results(text, values), "printed": printed.getvalue(), "error": error}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
