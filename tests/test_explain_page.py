"""norch.explain's pictures in a real browser: texts fit into cells and onto the page, in a light and a dark look."""

from __future__ import annotations

import pytest

import norch

OUTSIDE = """
(() => {
  const svg = document.querySelector("svg"), box = svg.viewBox.baseVal, found = [];
  const inside = (a, b) => a.x >= b.x - 1 && a.y >= b.y - 1 && a.x + a.width <= b.x + b.width + 1
    && a.y + a.height <= b.y + b.height + 1;
  for (const text of svg.querySelectorAll("text")) {
    if (!inside(text.getBBox(), box)) found.push("off the page: " + text.textContent);
  }
  for (const rect of svg.querySelectorAll("rect")) {
    const cell = rect.nextElementSibling;
    if (cell && cell.classList.contains("mono") && !inside(cell.getBBox(), rect.getBBox()))
      found.push("out of its cell: " + cell.textContent);
  }
  return found;
})()
"""


def pictures() -> dict[str, str]:
    x = norch.linspace(-1, 1, 12).reshape(3, 4)
    big = norch.arange(10_000_000).reshape(1000, 100, 100)
    walk = norch.explain(lambda: x.T.reshape(2, 6).expand(3, 2, 6).unfold(2, 4, 1))
    return {
        "transposed": norch.explain(x.T)._repr_html_(),
        "big": norch.explain(big[:, 3])._repr_html_(),
        "tensor": x[:, ::2]._repr_html_(),
        "walk": walk._repr_html_(),
    }


@pytest.mark.parametrize("name", ["transposed", "big", "tensor", "walk"])
def test_texts_fit(browser, tmp_path, name):
    page = tmp_path / f"{name}.html"
    page.write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{pictures()[name]}", encoding="utf-8")
    opened = browser.open(page, width=1000)
    assert opened.evaluate(OUTSIDE) == []


def test_the_page_chooses_the_colour_of_text(browser, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(f"<!DOCTYPE html><body style='color: rgb(1, 2, 3)'>{pictures()['tensor']}", encoding="utf-8")
    color = "getComputedStyle(document.querySelector('svg text')).fill"
    assert browser.open(page).evaluate(color) == "rgb(1, 2, 3)"
    norch.explain(norch.zeros(2)).save(tmp_path / "file.svg")
    light, dark = (browser.open(tmp_path / "file.svg", dark=dark).evaluate(color) for dark in (False, True))
    assert (light, dark) == ("rgb(31, 35, 40)", "rgb(230, 237, 243)")
