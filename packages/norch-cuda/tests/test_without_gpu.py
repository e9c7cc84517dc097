"""Where there is no GPU norch-cuda does no harm, and says why it cannot be used. The drivers here are made up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import norch

SHOW = """
import norch
print(norch.cuda.is_available(), norch.cuda.device_count())
try:
    norch.ones(2, device="cuda")
except norch.DeviceError as error:
    print(error)
print(norch.ones(2).sum().item())
"""


def with_driver(folder: Path, source: str | None) -> str:
    """What a program prints where `source` (C) is the driver; None: a file that is no library."""
    library = folder / "libcuda.so.1"
    if source is None:
        library.write_text("not a library")
    else:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("c++")
        if compiler is None:
            pytest.skip("needs a C compiler")
        (folder / "driver.c").write_text(source)
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, folder / "driver.c"], check=True)
    env = {**os.environ, "LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    return subprocess.run([sys.executable, "-c", SHOW], env=env, capture_output=True, text=True, check=True).stdout


def driver(version: int, init: int) -> str:
    return f"int cuInit(unsigned f) {{ return {init}; }} int cuDriverGetVersion(int *v) {{ *v = {version}; return 0; }}"


def test_a_driver_that_cannot_be_loaded(tmp_path):
    assert "no NVIDIA driver (libcuda.so.1 cannot be loaded); install driver 580" in with_driver(tmp_path, None)


def test_a_driver_that_is_too_old(tmp_path):
    shown = with_driver(tmp_path, driver(12080, 0))
    assert shown.startswith("False 0\n")
    assert "too old: it supports CUDA 12.8, norch-cuda needs 13.0; install driver 580" in shown
    assert shown.endswith("2.0\n")


def test_a_driver_without_a_gpu(tmp_path):
    shown = with_driver(tmp_path, driver(13000, 100))
    assert shown.startswith("False 0\n")
    assert "finds no GPU; check `nvidia-smi` and CUDA_VISIBLE_DEVICES" in shown


def test_a_driver_that_fails(tmp_path):
    assert "fails to start (cuInit returns 999)" in with_driver(tmp_path, driver(13000, 999))


def test_something_else_that_is_called_libcuda(tmp_path):
    assert "is no CUDA driver" in with_driver(tmp_path, "int other(void) { return 0; }")


def test_the_module_of_the_device_says_why_too():
    if norch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert norch.cuda.device_count() == 0
    assert "norch-cuda 0.1.0" in (norch.cuda.why_not() or "")
    with pytest.raises(AttributeError, match=r"norch.cuda has no attribute 'mem_get_info'; device 'cuda' cannot"):
        norch.cuda.mem_get_info()
    with pytest.raises(norch.DeviceError, match="cannot be used"):
        norch.ones(2).cuda()


def test_importing_norch_loads_nothing_of_cuda():
    shown = "import norch, sys; norch.ones(2).sum(); print([m for m in sys.modules if m.startswith('norch_cuda')])"
    assert subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_primitive_has_a_kernel():
    from norch.backend import PRIMITIVES
    from norch_cuda import _ext

    assert sorted(PRIMITIVES - set(_ext.ops())) == []


def test_properties_of_a_device_are_asked_for_once(monkeypatch):
    from norch_cuda import module

    asked = []

    def properties(index):
        asked.append(index)
        return {"major": 9, "minor": 0, "name": "a GPU", "warp_size": 32}

    monkeypatch.setattr(module, "_ext", SimpleNamespace(properties=properties))
    monkeypatch.setattr(module, "device_index", lambda device: 0 if device is None else device)
    module._properties.cache_clear()
    try:
        for _ in range(2):
            assert module.get_device_capability() == (9, 0)
            assert module.get_device_name() == "a GPU"
            module.get_device_properties().warp_size = 64  # a namespace of the caller's own
            assert module.get_device_properties().warp_size == 32
        module.get_device_properties(1)
        assert asked == [0, 1]
    finally:
        module._properties.cache_clear()
