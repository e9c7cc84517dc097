import pytest

import norch

NEEDS_NO_COMPILER = ("test_it_stays_small_enough_to_read", "test_a_driver_that_compiles_nothing_is_not_usable")


def pytest_collection_modifyitems(items):
    """A driver that knows nothing of this processor is no fault of the backend; where there is none, tests fail."""
    reason = norch.opencl.why_not() or ""
    if "compiles nothing for" in reason:
        for item in items:
            if item.name not in NEEDS_NO_COMPILER:
                item.add_marker(pytest.mark.skip(reason=reason))
