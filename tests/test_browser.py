"""The helper by which pages are tested: what the others' tests rely on."""

import pytest

PAGE = """<!doctype html><title>a page</title><style>body { margin: 0; background: white }
button { width: 100px; height: 50px } @media (prefers-color-scheme: dark) { body { background: black } }</style>
<button onclick="this.textContent = 'clicked'">press</button><input id=text>
<script>addEventListener('wheel', e => window.turned = e.deltaY); addEventListener('keydown', e => window.key = e.key)
</script>"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "page.html"
    path.write_text(PAGE)
    return path


def test_a_page_is_clicked_turned_and_written_to(browser, file):
    page = browser.open(file, width=400, dark=True)
    assert page.evaluate("[document.title, innerWidth]") == ["a page", 400]
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(0, 0, 0)"
    page.click("button")
    assert page.evaluate("document.querySelector('button').textContent") == "clicked"
    page.wheel(50, 25, 120)
    assert page.wait_for("window.turned") == 120
    page.click("#text")
    page.write("word")
    page.press("Enter")
    assert page.evaluate("document.querySelector('#text').value + key") == "wordEnter"
    assert page.errors == []
    assert page.requests == [file.as_uri()]


def test_what_goes_wrong_on_a_page_is_told(browser, file):
    file.write_text(PAGE + "<script>nothing()</script>")
    page = browser.open(file)
    assert "nothing is not defined" in page.errors[0]
    with pytest.raises(RuntimeError, match="other is not defined"):
        page.evaluate("other()")
    with pytest.raises(LookupError, match="#none"):
        page.click("#none")


def test_a_picture_of_it(browser, file, tmp_path):
    page = browser.open(file, width=320, height=200)
    page.screenshot(tmp_path / "page.png")
    data = (tmp_path / "page.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert [int.from_bytes(data[at : at + 4], "big") for at in (16, 20)] == [320, 200]
    assert page.pdf().startswith(b"%PDF")


def test_without_javascript(browser, file):
    page = browser.open(file)
    page.look(800, script=False)
    page.go(file)
    page.look(800)
    assert page.evaluate("typeof addEventListener") == "function"
    page.click("button")
    assert page.evaluate("window.key") is None
