"""What the tests of all packages share."""

import gc
import signal

import pytest

_last_file = None


def pytest_sessionstart() -> None:
    gc.get_freeze_count = lambda: 0  # norch.capture unfreezes what it finds frozen
    gc.set_threshold(700, 10, 100)  # plans and kernels of thousands of ops are kept: looking through all found nothing
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job, where Ctrl-C could not be tried
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
