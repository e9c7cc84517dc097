"""The pages of docs/ show what is: their code is that of the files they name, their commands print what they show."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest

from norch.backend import CONTRACT, PRIMITIVES, Backend

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
import update  # noqa: E402
from sessions import Session  # noqa: E402

CONTRACT_PAGE = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
NEEDS = {"distributed.md": ("mpi4py",), "tutorial/training.md": ("sklearn",), "tutorial/gpu.md": ("sklearn",)}
NEEDS["webgpu.md"] = ("wgpu",)
EXACT = ("index.md", "tutorial/tensors.md")  # shapes, strides and positions are what they are about
STALE = "is not what its commands and files give; python docs/update.py writes it again"


def comparable(text):
    """Without counts, times and the widths of their columns, which differ from one version and machine to the next."""
    text = update.updated(text, lambda marker, block: in_order(block) if "in any order" in marker else block)
    return re.sub(r"[ -]+", " ", re.sub(r"\d[\d,.]*", "#", text))


def needs_adapter():
    import wgpu

    try:
        wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    except Exception as error:  # of wgpu's, there is no class for it
        pytest.skip(f"there is no adapter for WebGPU, such as Mesa's software Vulkan: {error}")


def in_order(block):
    return "\n".join(sorted(block.splitlines())) + "\n"


@pytest.mark.parametrize("name", update.PAGES)
def test_every_block_is_current(name):
    for module in NEEDS.get(name, ()):
        pytest.importorskip(module)
    if name == "webgpu.md":
        needs_adapter()
    update.DRAWN.clear()
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    fences = len(re.findall(r"^```", text, re.MULTILINE))
    assert len(update.BLOCK.findall(text)) * 2 == fences, f"docs/{name}: a block has no comment that says what it is"
    found = update.PAGES[name](text)
    shown = str if name in EXACT else comparable
    assert shown(found) == shown(text), f"docs/{name} {STALE}"
    for picture, drawn in update.DRAWN.items():
        kept = update.PICTURES / picture
        assert kept.exists(), f"docs/pictures/{picture} {STALE}"
        same = in_order(comparable(kept.read_text(encoding="utf-8"))) == in_order(comparable(drawn))
        assert same, f"docs/pictures/{picture} {STALE}"


def test_the_benchmarks_are_those_of_the_committed_results():
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert update.benchmarks(text) == text, f"docs/benchmarks.md {STALE}"


def test_a_session_writes_what_its_code_gives(tmp_path):
    session = Session(tmp_path, "page.py", [])
    try:
        assert session.block("x = 2\nx + 1  # ?\n[x] * 2\n# ?\nx  \n", fails=False) == (
            "x = 2\nx + 1  # 3\n[x] * 2\n# [2, 2]\nx  \n"
        )
        session.block("print(x)\n", fails=False)
        assert session.printed == "2\n"
        session.block("x / 0\n", fails=True)
        assert session.printed == "ZeroDivisionError: division by zero\n"
        for text, fails in (("x / 0\n", False), ("x\n", True)):
            with pytest.raises(RuntimeError):
                session.block(text, fails=fails)
    finally:
        session.close()


def test_the_contract_page_names_all_of_the_contract():
    words = set(re.findall(r"\w+", CONTRACT_PAGE))
    assert words >= PRIMITIVES
    for name, value in vars(Backend).items():
        if inspect.isfunction(value):
            assert re.search(rf"def {name}\(\s*self", CONTRACT_PAGE), name
    for name in [*Backend.__annotations__, "module"]:
        assert f"| `{name}` |" in CONTRACT_PAGE, name


def test_the_contract_page_has_this_version():
    entries = [tuple(map(int, e)) for e in re.findall(r"^### (\d+)\.(\d+)$", CONTRACT_PAGE, re.MULTILINE)]
    assert CONTRACT in entries, "docs/contract.md: its changelog lacks this version of the contract"
    assert entries == sorted(entries, reverse=True)


def test_links_lead_somewhere():
    pages = [*ROOT.glob("*.md"), *(ROOT / "changes").glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"(?:\]\(|src=\")([^)#:\s\"]+)[#)\"]", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
