import pytest

import norch


@pytest.fixture(autouse=True, scope="session")
def _adapter():
    if not norch.webgpu.is_available():
        pytest.skip(norch.webgpu.why_not())
