"""Versions compare as numbers, as PyTorch's do."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

from norch.compat.torch_version import TorchVersion

RISING = (
    "1.10.0+cu111 2 2.9.0.dev20200101 2.9.0a0 2.9.0a0+git12 2.9b2 2.9rc1 2.9 2.9+cpu 2.9.post1.dev3 2.9.post1 2.9.1 "
    "2.13.0 2.13.0+norch.0.1.0"
).split()


@pytest.mark.parametrize("as_text", [False, True])
def test_versions_are_in_order(as_text: bool) -> None:
    for (i, a), (j, b) in itertools.product(enumerate(RISING), repeat=2):
        x, y = TorchVersion(a), b if as_text else TorchVersion(b)
        assert [x < y, x <= y, x > y, x >= y, x == y, x != y] == [i < j, i <= j, i > j, i >= j, i == j, i != j], (a, b)


def test_versions_and_tuples() -> None:
    assert TorchVersion("2.13.0") >= (2, 9)
    assert TorchVersion("2.13.0") == [2, 13]
    assert TorchVersion("2.13.0") < (3,)
    assert TorchVersion("2.13.0") < "none"  # as text
    assert {TorchVersion("2.13.0"): 1}["2.13.0"] == 1


def test_the_stand_in_has_such_a_version() -> None:
    code = """
from norch.compat.standin import install
install()
import torch
assert torch.__version__ >= "2.9" and torch.__version__ > (2, 4) and not torch.__version__ < "2.2.0"
assert torch.__version__.split(".")[0] == "2"
assert isinstance(torch.__version__, torch.torch_version.TorchVersion)
from torch.autograd.gradcheck import gradcheck
assert torch.autograd.gradcheck is gradcheck
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (made.stdout, made.stderr) == ("", "")
