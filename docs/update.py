"""Keeps the code and the output on the pages of this folder true: python docs/update.py

A comment before each code block says what it is. In contract.md: which part of norch.backend.contract. The blocks of
backends.md, capture.md, errors.md, profiler.md and webgpu.md are played from top to bottom in an empty folder, those of
adding-ops.md in a copy of the tree, as a reader would:

    file NAME       a file that `norch new-backend abacus` wrote
    section NAME    a part of its backend.py, which the reader appends to the new one
    write NAME      the reader writes this file; append NAME: appends this to it
    diff NAME       the reader changes these lines of it
    python, prints  a session in Python: see sessions.py
    run             commands after "$ " and what they print; "run, last 9 lines" leaves out the others. The test takes
                    what is printed "in any order"

tests/test_docs.py fails where a page is not what this would write (numbers apart).
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path

import choose_tables

from norch.backend import contract
from norch.scaffold import new_backend

sys.path.insert(0, str(Path(__file__).parent))
import charts
from sessions import PICTURES, Session

DOCS = Path(__file__).parent
BLOCK = re.compile(r"^<!-- ([^\n]*) -->\n```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BACKEND = "src/norch_abacus/backend.py"


def updated(text: str, content: Callable[[str, str], str]) -> str:
    """A page with each block replaced by what `content` makes of its marker and its text."""

    def block(found: re.Match[str]) -> str:
        marker, language, old = found.groups()
        return f"<!-- {marker} -->\n```{language}\n{content(marker, old)}```"

    return BLOCK.sub(block, text)


# --- Pages that are played ------------------------------------------------------------------------------------------


class Reader:
    """Somebody who follows a page, in `folder`. `path`: where Python finds what is written there."""

    session: Session | None = None

    def __init__(self, folder: Path, path: list[str]) -> None:
        self.folder = self.here = folder
        self.path = path

    def content(self, marker: str, text: str) -> str:
        what, _, rest = marker.partition(" ")
        if what.rstrip(",") == "python":
            self.session = self.session or Session(self.here, "session.py", self.path)
            return self.session.block(text, fails=rest == "fails")
        if what.rstrip(",") == "prints":
            assert self.session
            return text if rest == "cuda" and not has_gpu() else without_ends(self.session.printed)
        if what.rstrip(",") == "run":
            return self._run(text, rest)
        if what == "write":
            (self.here / rest).write_text(text)
        elif what == "append":
            self._append(rest, f"\n\n{text}")
        elif what == "diff":
            file = self.here / rest
            file.write_text(patched(file.read_text(), text))
        else:
            raise ValueError(f"no such kind of block: {marker}")
        return text

    def _append(self, name: str, text: str) -> None:
        with (self.here / name).open("a") as file:
            file.write(text)

    def _run(self, text: str, rest: str) -> str:
        lines = []
        for line in text.splitlines():
            if line.startswith("$ "):
                lines += [line, *_shown(self._output(line[2:]), rest)]
        found = "\n".join(lines) + "\n"
        return text if _without_times(text) == _without_times(found) else found

    def _output(self, command: str) -> list[str]:
        place = self.folder / ".place"
        python = shlex.quote(sys.executable)
        script = (
            f'norch() {{ {python} -m norch "$@"; }}\npython() {{ {python} "$@"; }}\npip() {{ :; }}\n'
            f"{command}\npwd > {shlex.quote(str(place))}\n"
        )
        path = os.pathsep.join([*self.path, *sys.path])
        # A reader who has norch-cpu, too, has written no kernel for it yet.
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "NORCH_BACKEND_CPU": "numpy"}
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.here, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600,
        )  # fmt: skip
        self.here = Path(place.read_text().strip())
        return [line.rstrip() for line in done.stdout.replace(f"{self.folder}/", "").splitlines()]


def played(text: str, path: list[str] | None = None) -> str:
    """A page that is played in an empty folder; the pictures that it draws are kept in `DRAWN`."""
    with tempfile.TemporaryDirectory() as folder:
        reader = Reader(Path(folder).resolve(), path or [])
        try:
            text = updated(text, reader.content)
        finally:
            if reader.session:
                reader.session.close()
        if reader.session:
            DRAWN.update(reader.session.pictures())
    return text


DRAWN: dict[str, str] = {}
"""By file name: the pictures that the pages have drawn."""


@cache
def has_gpu() -> bool:
    import norch

    return norch.cuda.is_available()


def without_ends(text: str) -> str:
    """Without spaces at the ends of lines, which editors take away."""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def _without_times(text: str) -> list[str]:
    """The lines in some order: that of a table may be by time."""
    return sorted(re.sub(r"\s+", " ", re.sub(r"[\d.]+ ?s$|\d+\.\d\d", "#", line)) for line in text.splitlines())


def _shown(lines: list[str], rest: str) -> list[str]:
    """All lines, or what the marker asks for: "first 3 and last 9 lines"."""
    first, last = (re.search(rf"{word} (\d+)", rest) for word in ("first", "last"))
    if not first and not last:
        return lines
    head, tail = (int(found[1]) if found else 0 for found in (first, last))
    if len(lines) <= head + tail:
        return lines
    return [*lines[:head], "...", *lines[len(lines) - tail :]]


# --- backends.md ----------------------------------------------------------------------------------------------------


class Author(Reader):
    """Somebody who writes a backend, in a folder that is empty at first."""

    def __init__(self, folder: Path) -> None:
        self.finished = new_backend("abacus", folder / ".finished")
        self.site = folder / ".site" / "norch_abacus-0.1.0.dist-info"
        self.site.mkdir(parents=True)
        # As `pip install -e` leaves it. tests/test_new_backend.py proves that the package really installs.
        (self.site / "METADATA").write_text("Metadata-Version: 2.1\nName: norch-abacus\nVersion: 0.1.0\n")
        (self.site / "entry_points.txt").write_text("[norch]\nabacus = norch_abacus\n")
        super().__init__(folder, [str(self.site.parent), str(folder / "norch-abacus" / "src")])

    def content(self, marker: str, text: str) -> str:
        what, _, rest = marker.partition(" ")
        if what == "file":
            return (self.finished / rest).read_text()
        if what == "section":
            text = sections((self.finished / BACKEND).read_text())[rest]
            self._append(BACKEND, text if rest == "Start" else f"\n\n{text}")
            return text
        return super().content(marker, text)


def sections(text: str) -> dict[str, str]:
    """The parts of a backend.py, each of which begins with a line "# --- Name"."""
    start, *parts = re.split(r"^# --- (.*)\n", text, flags=re.MULTILINE)
    found = {"Start": start.rstrip() + "\n"}
    for name, part in zip(parts[::2], parts[1::2]):
        found[name] = f"# --- {name}\n{part.rstrip()}\n"
    return found


def guide(text: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return updated(text, Author(Path(folder).resolve()).content)


# --- adding-ops.md --------------------------------------------------------------------------------------------------

COPIED = ("pyproject.toml", "packages/norch-core", "packages/norch-cpu/csrc", "packages/norch-cuda/csrc")


def contributor(folder: Path) -> Reader:
    """Somebody who changes a copy of the tree."""
    for name in COPIED:
        source, to = DOCS.parent / name, folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            # What was compiled comes along: none is written there, and each command would compile all of norch.
            shutil.copytree(source, to, ignore=shutil.ignore_patterns(".*", "build"))
        else:
            shutil.copy(source, to)
    return Reader(folder, [str(folder / "packages" / "norch-core" / "src")])


def patched(text: str, diff: str) -> str:
    """`text` with a diff's lines exchanged. Raises ValueError unless what it shows of the text is there once."""
    lines = [line or " " for line in diff.splitlines()]
    old, new = ("".join(f"{line[1:]}\n" for line in lines if line[0] in signs) for signs in (" -", " +"))
    if text.count(old) != 1:
        raise ValueError(f"{text.count(old)} places in the file are\n{old}")
    return text.replace(old, new)


def adding_ops(text: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return updated(text, contributor(Path(folder).resolve()).content)


# --- distributed.md -------------------------------------------------------------------------------------------------


class Launcher(Reader):
    """Somebody who starts programs in several processes, but none that needs more than this machine."""

    def content(self, marker: str, text: str) -> str:
        if marker == "parsed":
            ast.parse(text)
        return text if marker in ("parsed", "shown") else super().content(marker, text)


def network() -> str:
    """What benchmarks/network_model.py prints."""
    command = [sys.executable, str(DOCS.parent / "benchmarks" / "network_model.py")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def distributed(text: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        text = updated(text, Launcher(Path(folder).resolve(), []).content)
    before, start, rest = text.partition("<!-- network -->\n")
    _, end, after = rest.partition("<!-- end -->\n")
    return f"{before}{start}{network()}{end}{after}"


# --- contract.md ----------------------------------------------------------------------------------------------------


def contract_part(marker: str, text: str) -> str:
    """`primitives`: the table of Backend's docstring; `families`: the ops that it calls UNARY, …; `required` and
    `optional`: its methods; else the source of what has that name."""
    if marker == "families":
        width = len("COMPARISON") + 3
        families = {n: " ".join(getattr(contract, n)) for n in ("UNARY", "BINARY", "COMPARISON", "REDUCTION")}
        lines = [f"{n:<{width}}{ops}" for n, ops in families.items()]
        return "\n".join(textwrap.fill(line, 118, subsequent_indent=" " * width) for line in lines) + "\n"
    if marker == "primitives":
        documentation = inspect.getdoc(contract.Backend) or ""
        found = re.search(r"^(=+ +=+\n.*\n=+ +=+)$", documentation, re.MULTILINE | re.DOTALL)
        assert found
        return re.sub(r"^=+ +=+\n", "", f"{found[1]}\n", flags=re.MULTILINE)
    if marker in ("required", "optional"):
        names = [n for n, value in vars(contract.Backend).items() if inspect.isfunction(value)]
        required = contract.Backend.__abstractmethods__
        return "\n\n".join(_method(n) for n in names if (n in required) == (marker == "required"))
    return _source(getattr(contract, marker))


def _method(name: str) -> str:
    """A method's signature and docstring."""
    (tree,) = ast.parse(_source(getattr(contract.Backend, name))).body
    assert isinstance(tree, ast.FunctionDef)
    documentation = inspect.getdoc(getattr(contract.Backend, name)) or ""
    arguments, returns = ast.unparse(tree.args), ast.unparse(tree.returns) if tree.returns else "None"
    signature = f"def {name}({arguments}) -> {returns}:\n"
    if len(signature) > 120:  # as ruff format has it
        signature = f"def {name}(\n    {arguments}\n) -> {returns}:\n"
    return signature + textwrap.indent(f'"""{documentation}"""\n', "    ")


def _source(thing: object) -> str:
    return textwrap.dedent(inspect.getsource(thing))


def contract_page(text: str) -> str:
    return updated(text, contract_part)


def benchmarks(text: str) -> str:
    text, pictures = charts.page(text)
    DRAWN.update(pictures)
    return text


PAGES = {
    "adding-ops.md": adding_ops,
    "backends.md": guide,
    "benchmarks.md": benchmarks,
    "capture.md": played,
    "data.md": played,
    "devices.md": played,
    "index.md": played,
    "memory.md": played,
    "mixed-precision.md": played,
    "training.md": played,
    "choose.md": choose_tables.filled,
    "contract.md": contract_page,
    "distributed.md": distributed,
    "errors.md": played,
    "profiler.md": played,
    "explain.md": played,
    "webgpu.md": played,
    "graph.md": played,
    "tutorial/autograd.md": played,
    "tutorial/gpu.md": played,
    "tutorial/tensors.md": played,
    "tutorial/training.md": played,
    "tutorial/backend.md": played,
}


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for name in sys.argv[1:] or PAGES:
        update = PAGES[name]
        page = DOCS / name
        page.write_text(update(page.read_text()))
    for name, picture in DRAWN.items():
        (PICTURES / name).write_text(picture)


if __name__ == "__main__":
    main()
