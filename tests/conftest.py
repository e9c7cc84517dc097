"""What the tests of all packages together share."""

from collections.abc import Iterator

import browser as helper
import pytest


@pytest.fixture(scope="session")
def _browser() -> Iterator["helper.Browser | None"]:
    yield from helper.running()


@pytest.fixture
def browser(_browser: "helper.Browser | None") -> Iterator["helper.Browser"]:
    """A headless Chromium: see browser.py. What a test has opened is closed after it."""
    if _browser is None:
        pytest.skip("no Chromium: NORCH_BROWSER names none, and none is on PATH")
    yield _browser
    for page in list(_browser.pages.values()):
        page.close()
