"""What the tests of all packages share."""

import gc

import pytest

_last_file = None


def pytest_sessionstart() -> None:
    gc.get_freeze_count = lambda: 0  # norch.capture unfreezes what it finds frozen


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Freezes what there is before each file: the thousands of tests, and what earlier ones left.

    The collector would look through it again and again, and so would norch.capture whenever it records.
    """
    global _last_file
    if item.path != _last_file:
        _last_file = item.path
        gc.collect()
        gc.freeze()
