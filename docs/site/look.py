"""Looks at the built site in a headless Chromium: hatch run docs:look [FOLDER for pictures]

At two widths, light and dark, and without JavaScript: whether anything is wider than the window, fails, or is fetched
from elsewhere, and whether the search finds something, all from files. Skips where there is no Chromium.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "build" / "site" / "html"
sys.path.insert(0, str(ROOT / "tests"))
from browser import Browser, Page, find  # noqa: E402

PAGES = ("index", "tutorial/tensors", "benchmarks", "reference/optim")
WIDE, NARROW = 1300, 420
OVERFLOW = "document.documentElement.scrollWidth - window.innerWidth"
SEARCH = "document.querySelector('.md-search__button').click()"
SHOWN = "[...document.querySelectorAll('*')].some(e => e.shadowRoot && {}.test(e.shadowRoot.textContent))"


def look(browser: Browser, folder: Path | None) -> list[str]:
    """What is wrong."""
    found: list[str] = []
    for name in PAGES:
        page = browser.open(HTML / f"{name}.html", WIDE)
        for dark in (False, True):
            for width in (WIDE, NARROW):
                page.look(width, 900, dark)
                page.go(HTML / f"{name}.html")
                label = f"{name}, {width} wide, {'dark' if dark else 'light'}"
                found += [f"{label}: {what}" for what in _wrong(page, dark)]
                if folder:
                    page.screenshot(
                        folder / f"{label.replace('/', '-').replace(', ', '_').replace(' ', '-')}.png", True
                    )
        page.look(WIDE, 900, script=False)
        page.go(HTML / f"{name}.html")
        if folder:
            page.screenshot(folder / f"{name.replace('/', '-')}_without-javascript.png", True)
        elsewhere = [a for a in page.requests if not a.startswith(("file:", "data:", "blob:"))]
        found += [f"{name}: fetches {address}" for address in elsewhere] + [f"{name}: {e}" for e in page.errors]
        page.close()
    return found + _search(browser, folder)


def _wrong(page: Page, dark: bool) -> list[str]:
    wrong = []
    if (wider := page.evaluate(OVERFLOW)) > 0:
        wrong.append(f"{wider} pixels wider than the window")
    red, green, blue = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")[:3]
    if (red + green + blue < 384) != dark:
        wrong.append(f"its background is rgb({red}, {green}, {blue})")
    return wrong


def _search(browser: Browser, folder: Path | None) -> list[str]:
    page = browser.open(HTML / "index.html", WIDE)
    page.wait_for("document.querySelector('.md-search__button') && !document.querySelector('.no-js')")
    page.wait_for("[...document.querySelectorAll('*')].some(e => e.shadowRoot)")
    page.evaluate(SEARCH)
    page.write("as_strided")
    try:
        page.wait_for(SHOWN.format(r"/\d+ results/"))
    except TimeoutError:
        return ["the search finds nothing"]
    finally:
        if folder:
            page.screenshot(folder / "search.png")
        page.close()
    return []


def main() -> int:
    program = find()
    if program is None:
        print("not looked at: there is no Chromium")
        return 0
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    browser = Browser(program)
    try:
        found = look(browser, folder)
    finally:
        browser.close()
    print("\n".join(found) or f"{len(PAGES)} pages look as they should")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
