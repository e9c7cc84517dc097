"""Builds the documentation site, or serves it while pages are written: hatch run docs:build, hatch run docs:serve

docs/ and the files that its pages link to are what readers see on GitHub too. Here they are copied to build/site/pages,
with what only the site has: the pages of the API reference, links from names to their entries there, pictures within
the page. Zensical makes HTML of that in build/site/html, and fails on links and anchors that lead nowhere; this file
fails on what Zensical does not look at: pictures, files of the repository, and names of norch that there are not.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
DOCS, ROOT = HERE.parent, HERE.parents[1]
SITE = ROOT / "build" / "site"
WORKER = "https://unpkg.com/iframe-worker/shim"
REPOSITORY = "https://github.com/norch-project/norch"
COMMENT = re.compile(r"^<!-- .* -->\n", re.MULTILINE)
FENCE = re.compile(r"^(```.*?^```$|(?:(?:^    [^\n]*|^)\n)+)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s]+)(\))|((?:src|href)=\")([^\"]+)(\")")
CODE = re.compile(r"(?<![`\[])`([^`\n]+)`(?!`|\]\()")
NOT_THERE = ("norch.abacus", "norch.squareplus")  # as the pages say
NAME = re.compile(r"(?:norch|nn|functional|optim|linalg|autograd|Tensor)(?:\.\w+)+|\w+Error\b")


class Problems(Exception):
    """What is wrong with the pages."""


def stage() -> None:
    """Writes what the site is built from. Raises Problems."""
    from reference import reference  # it imports norch

    for name in ("norch_cuda._ext", "norch_cpu.native"):
        sys.modules.setdefault(name, _Compiled(name))
    made = reference()
    problems = [f"not in the reference: {name}" for name in made.missing]
    pages = SITE / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    texts = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
    texts |= {f"reference/{name}": text for name, text in made.pages.items()}
    for name, text in texts.items():
        page = Page(name, made.anchors, problems)
        to = pages / name
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(page.staged(text), encoding="utf-8")
    for path in DOCS.rglob("*"):
        if path.suffix in (".png", ".svg"):
            to = pages / path.relative_to(DOCS)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to)
    for path in HERE.glob("assets/*"):
        (pages / "assets").mkdir(exist_ok=True)
        shutil.copy(path, pages / "assets")
    listed = [f"reference/{name}" for name in ("index.md", *(n for n in made.pages if n != "index.md"))]
    text = (HERE / "zensical.toml").read_text(encoding="utf-8")
    text = text.replace('"reference/index.md"', ", ".join(f'"{name}"' for name in listed))
    (SITE / "zensical.toml").write_text(text, encoding="utf-8")
    there = set(_leaves(tomllib.loads(text)["project"]["nav"]))
    problems += [f"docs/site/zensical.toml: the navigation has no {name}" for name in set(texts) - there]
    problems += [f"docs/site/zensical.toml: there is no page {name}" for name in there - set(texts)]
    if problems:
        raise Problems("\n".join(sorted(set(problems))))


def _leaves(nav: Any) -> Iterator[str]:
    """The pages of a navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from _leaves(part)


class _Compiled(ModuleType):
    """Stands for what a wheel has compiled, so that the Python around it can be read."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__module__": "compiled"})


class Page:
    """A page on its way from the repository to the site. `anchors`: where the reference has each name."""

    def __init__(self, name: str, anchors: dict[str, str], problems: list[str]) -> None:
        self.name, self.anchors, self.problems = name, anchors, problems
        self.up = "../" * name.count("/")
        self.is_reference = name.startswith("reference/")

    def staged(self, text: str) -> str:
        parts = FENCE.split(COMMENT.sub("", text))
        for i in range(0, len(parts), 2):
            parts[i] = CODE.sub(self._code, LINK.sub(self._link, parts[i]))
        return re.sub(r"^!\[([^\]]*)\]\(([^)]+\.svg)\)$", self._picture, "".join(parts), flags=re.MULTILINE)

    def _link(self, found: re.Match[str]) -> str:
        before, target, after = found.groups()[:3] if found[1] else found.groups()[3:]
        path, _, anchor = target.partition("#")
        if ":" in target or not path:
            return found[0]
        real = Path(os.path.normpath((DOCS / self.name).parent / path))
        if self.is_reference and not path.startswith("../../"):
            return found[0]
        if not real.exists():
            self.problems.append(f"docs/{self.name}: there is no {path}")
        if real.is_relative_to(DOCS) and (real.suffix in (".md", ".png", ".svg")):
            return found[0]
        if not real.is_relative_to(ROOT):
            self.problems.append(f"docs/{self.name}: {path} is outside of the repository")
            return found[0]
        kind = "tree" if real.is_dir() else "blob"
        place = f"{REPOSITORY}/{kind}/main/{real.relative_to(ROOT).as_posix()}"
        return f"{before}{place}{'#' + anchor if anchor else ''}{after}"

    def _code(self, found: re.Match[str]) -> str:
        """Code that is a name of norch, linked to its entry."""
        name = NAME.match(found[1])
        if name is None:
            return found[0]
        path = name[0] if name[0].startswith("norch.") else f"norch.{name[0]}"
        path = path.replace("norch.functional.", "norch.nn.functional.")
        place = self._place(path)
        rest = found[1][len(name[0]) :]
        if place is None:
            if name[0].startswith("norch.") and rest[:1] in ("", "(") and path not in NOT_THERE and not _is_there(path):
                self.problems.append(f"docs/{self.name}: there is no {name[0]}")
            return found[0]
        if place.startswith(f"{self.name.removeprefix('reference/')}#") and self.is_reference:
            place = place[place.index("#") :]
        else:
            place = ("" if self.is_reference else f"{self.up}reference/") + place
        return f"[{found[0]}]({place})"

    def _place(self, path: str) -> str | None:
        return self.anchors.get(path) or self.anchors.get(f"{path}_")

    def _picture(self, found: re.Match[str]) -> str:
        """A drawing within the page, whose colours it takes on."""
        svg = (DOCS / self.name).parent / found[2]
        if not svg.exists() or 'class="norch"' not in svg.read_text(encoding="utf-8"):
            return found[0]
        text = re.sub(r"^\.norch \{ color: .*\n@media .*\n", "", svg.read_text(encoding="utf-8"), flags=re.MULTILINE)
        text = re.sub(r"<title>[^<]*</title>\n", "", text, count=1)
        return f'<figure class="drawing">{re.sub(chr(10) + "+", " ", text).strip()}</figure>'


def _is_there(path: str) -> bool:
    """Whether a name of norch is there, if in no page of the reference: a module, a method of an instance."""
    parts = path.split(".")
    found: object = None
    for end in range(1, len(parts) + 1):
        try:
            found = getattr(found, parts[end - 1]) if end > 1 else importlib.import_module(parts[0])
        except AttributeError:
            name = ".".join(parts[:end])
            if not hasattr(found, "__path__") or importlib.util.find_spec(name) is None:
                return path in ("norch.cuda", "norch.opencl")
            found = importlib.import_module(name)
        except ImportError:  # an extra that is not installed
            return True
    return True


def zensical(command: str) -> int:
    command = f"{sys.executable} -m zensical {command} -f {SITE / 'zensical.toml'}"
    done = subprocess.run(command.split(), stderr=subprocess.PIPE if "build" in command else None, text=True)
    sys.stderr.write((done.stderr or "").partition("Traceback")[0])  # of a failed build
    return done.returncode


def self_contained() -> None:
    """Lets the pages fetch the one thing that they have from elsewhere, which they need as files, from beside them."""
    for path in (SITE / "html").rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        up = "../" * (len(path.relative_to(SITE / "html").parts) - 1)
        path.write_text(text.replace(WORKER, f"{up}assets/file-worker.js"), encoding="utf-8")


def watch() -> None:
    """Stages anew whenever a page changes."""
    seen = _stamps()
    while True:
        time.sleep(1)
        if (now := _stamps()) != seen:
            seen = now
            try:
                stage()
            except Problems as problems:
                print(problems)


def _stamps() -> dict[Path, float]:
    return {path: path.stat().st_mtime for path in DOCS.rglob("*") if path.is_file()}


def main() -> int:
    sys.path.insert(0, str(HERE))
    try:
        stage()
    except Problems as problems:
        print(problems, file=sys.stderr)
        if "serve" not in sys.argv:
            return 1
    if "serve" in sys.argv:
        threading.Thread(target=watch, daemon=True).start()
        return zensical("serve")
    shutil.rmtree(SITE / "html", ignore_errors=True)
    status = zensical("build --strict --clean")
    if status == 0:
        self_contained()
    return status


if __name__ == "__main__":
    sys.exit(main())
