"""The page of norch.memory in a browser: what the mouse points at, narrow, dark, without JavaScript."""

import pytest

import norch


@pytest.fixture(scope="module")
def recording():
    with norch.memory.record() as found:
        first = norch.ones(1 << 18)  # 1 MiB, from here on
        second = norch.ones(1 << 19)  # 2 MiB, for a while
        del second
        third = norch.ones(1 << 17)
    del first, third
    # Times that do not depend on the machine.
    for block, (made, freed) in zip(found.blocks[-3:], ((0.2, None), (0.4, 0.6), (0.8, None)), strict=True):
        block.made, block.freed = made, freed
    found.blocks[:-3] = []
    found.ended = 1.0
    return found


@pytest.fixture
def file(recording, tmp_path):
    recording.save(tmp_path / "memory.html")
    return tmp_path / "memory.html"


def rows(page):
    script = "[...document.querySelectorAll('#there tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    return page.evaluate(script)


def point_at(page, part):
    """Rests the mouse on the chart, this part of its width from the left."""
    x, y = page.evaluate(
        f"(() => {{ const p = new DOMPoint({760 * part}, 100)"
        ".matrixTransform(document.querySelector('svg').getScreenCTM()); return [p.x, p.y] })()"
    )
    page.mouse("mouseMoved", x, y)


def test_the_mouse_shows_what_there_was(browser, file):
    page = browser.open(file)
    assert page.errors == []
    assert page.requests == [file.as_uri()]
    assert page.evaluate("document.getElementById('now').textContent") == (
        "at the peak, after 400.0 ms: 3.00 MiB in 2 blocks"
    )
    for part, sizes in (
        (0.1, []),
        (0.3, ["1.00 MiB"]),
        (0.5, ["2.00 MiB", "1.00 MiB"]),
        (0.9, ["1.00 MiB", "512.00 KiB"]),
    ):
        point_at(page, part)
        assert [row[0] for row in rows(page)] == sizes
        assert f"in {len(sizes)} blocks" in page.evaluate("document.getElementById('now').textContent")
    assert rows(page)[0][1:] == ["other", "float32[262144] · fill, test_memory_page.py:11"]
    assert page.errors == []


def test_without_javascript_the_peak_is_there(browser, file):
    page = browser.open(file)
    page.look(800, script=False)
    page.go(file)
    text = page.evaluate("document.body.innerText")
    assert "at the peak, after 400.0 ms: 3.00 MiB in 2 blocks" in text
    assert "float32[524288]" in text


@pytest.mark.parametrize("dark", [False, True])
def test_narrow_and_dark(browser, file, dark):
    page = browser.open(file, width=420, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)"
    )


def test_a_snapshot(browser, tmp_path):
    x = norch.ones(1 << 20)
    norch.memory.snapshot().save(tmp_path / "now.html")
    page = browser.open(tmp_path / "now.html", width=420)
    assert ["4.00 MiB", "other", "float32[1048576]"] in rows(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    assert page.errors == []
    del x
