"""docs/site: what it makes of the pages before Zensical, which builds the site in `hatch run docs:build`, sees them."""

import re
import sys
from pathlib import Path

import pytest

import norch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "site"))
import build  # noqa: E402
import reference  # noqa: E402

ANCHORS = {"norch.exp": "norch-elementwise.md#norch.exp", "norch.ShapeError": "norch-errors.md#norch.ShapeError"}


def staged(text, name="page.md"):
    problems = []
    return build.Page(name, ANCHORS, problems).staged(text), problems


@pytest.fixture(scope="module")
def made():
    return reference.reference()


def test_names_become_links_into_the_reference():
    assert staged("`norch.exp(x)` is") == ("[`norch.exp(x)`](reference/norch-elementwise.md#norch.exp) is", [])
    assert staged("`norch.exp`", "tutorial/a.md")[0] == "[`norch.exp`](../reference/norch-elementwise.md#norch.exp)"
    assert staged("`norch.exp`", "reference/norch-elementwise.md")[0] == "[`norch.exp`](#norch.exp)"
    assert staged("[`norch.exp`](capture.md)") == ("[`norch.exp`](capture.md)", [])
    untouched = "    `norch.exp`\n\n```\n`norch.exp`\n```\n"
    assert staged(untouched) == (untouched, [])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("`norch.no_such_op`", "there is no norch.no_such_op"),
        ("[a](../no_such_file.py)", "there is no ../no_such_file.py"),
        ("![a](pictures/none.svg)", "there is no pictures/none.svg"),
        ("[a](../../elsewhere)", "there is no ../../elsewhere"),
    ],
)
def test_what_leads_nowhere_is_a_problem(text, problem):
    assert staged(text)[1][0] == f"docs/page.md: {problem}"


def test_files_of_the_repository_are_linked_where_it_is():
    text, problems = staged("[how](../CONTRIBUTING.md#tests), [code](../packages)")
    assert (
        text
        == f"[how]({build.REPOSITORY}/blob/main/CONTRIBUTING.md#tests), [code]({build.REPOSITORY}/tree/main/packages)"
    )
    assert not problems


def test_the_reference_has_all_of_norch(made):
    written = "".join(made.pages.values())
    for name in (
        "exp",
        "add",
        "conv2d",
        "Tensor.backward",
        "nn.Linear",
        "optim.Adam",
        "utils.data.DataLoader",
        "linalg.svd",
    ):
        assert f"norch.{name}" in made.anchors, name
    lacking = [
        n
        for n in [*norch.ops.registry.FUNCTIONS, *norch.ops.LATE]
        if f"norch.{n}" not in made.anchors and not n.endswith("_")
    ]
    assert not lacking
    places = re.findall(r"\{ #(\S+) \}", written)
    assert {anchor.partition("#")[2] for anchor in made.anchors.values()} <= set(places)


def test_an_entry_has_signature_text_and_other_names(made):
    page = made.pages["norch-elementwise.md"]
    entry = page[page.index("{ #norch.abs }") : page.index("{ #norch.acos }")]
    assert "norch.<b>abs</b>(input" in entry
    assert "The absolute value." in entry
    assert "`norch.absolute`" in entry
    assert "`x.abs_(…)`" in entry
    assert re.search(r"\[Source\]\(\.\./\.\./packages/norch-core/src/norch/ops/elementwise/\w+\.py#L\d+\)", entry)


def test_docstrings_are_text_and_not_markup():
    assert reference.markdown("(*, n) to (*, m), a_b_c and `x * y`") == r"(\*, n) to (\*, m), a\_b\_c and `x * y`"
    assert reference.markdown("Sum.\n\n    y = a * b * c\n\nEnd.") == "Sum.\n\n    y = a * b * c\n\nEnd."
    assert reference.markdown("Text.\n\ndim, axis: which.\nx: what.", "(x, dim, axis)") == (
        "Text.\n\n\n**dim, axis**: which.\n\n**x**: what."
    )
