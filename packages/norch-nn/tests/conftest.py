"""What the tests of norch-nn share: `--default-device cuda` runs them there."""

from __future__ import annotations

import pytest

import norch


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--default-device", help="make tensors there where a test names no device (default: cpu)")


def pytest_configure(config: pytest.Config) -> None:
    device = config.getoption("--default-device")
    if device:
        norch.set_default_device(device)
