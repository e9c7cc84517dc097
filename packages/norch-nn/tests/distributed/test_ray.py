"""norch.ray where there is no Ray; tests/nightly trains on it."""

import subprocess
import sys

import pytest


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "norch.ray", raising=False)
    with pytest.raises(ImportError, match=r"norch\.ray needs Ray Train: pip install norch-nn\[ray\]"):
        import norch.ray  # noqa: F401


def test_nothing_else_imports_ray():
    code = "import norch, norch.distributed, sys; assert not {'ray', 'mpi4py'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
