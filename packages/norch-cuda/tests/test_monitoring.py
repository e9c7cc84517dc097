"""What NVIDIA's management library says: of a made-up one, and of the GPU where there is one."""

from __future__ import annotations

import shutil
import subprocess

import pytest

import norch

SOURCE = r"""
#include <string.h>
typedef struct { unsigned pid; unsigned long long used; unsigned gpu, compute; } process;
static int here;
int nvmlInit_v2(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 3 ? "Not Supported" : "other"; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) { *out = &here; return strcmp(uuid, "GPU-12ab") ? 6 : 0; }
int nvmlDeviceGetUtilizationRates(void *d, unsigned *out) { out[0] = 71; out[1] = 23; return d == &here ? 0 : 2; }
int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *out) { *out = 40 + sensor; return 0; }
int nvmlDeviceGetPowerUsage(void *d, unsigned *out) { return 3; }
int nvmlDeviceGetClockInfo(void *d, int kind, unsigned *out) { *out = kind == 1 ? 1980 : 0; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *out) { out[0] = 100; out[1] = 60; out[2] = 40; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *count, process *out) {
    unsigned room = *count;
    *count = 2;
    if (room < 2) return 7;
    out[0].pid = 11; out[0].used = 3ull << 20; out[1].pid = 12; out[1].used = ~0ull;
    return 0;
}
"""


@pytest.fixture
def nvml():
    return pytest.importorskip("norch_cuda.nvml")


def test_what_a_management_library_says(nvml, tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (tmp_path / "nvml.c").write_text(SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "nvml.so", tmp_path / "nvml.c"], check=True)
    found = nvml.Nvml(str(tmp_path / "nvml.so"))
    assert found.utilization("12ab") == (71, 23)
    assert (found.temperature("12ab"), found.clock("12ab"), found.memory_used("12ab")) == (40, 1980, 40)
    assert found.processes("12ab") == [(11, 3 << 20), (12, None)]
    with pytest.raises(norch.DeviceError, match=r"nvmlDeviceGetPowerUsage: Not Supported \(3\)"):
        found.power("12ab")
    with pytest.raises(norch.DeviceError, match=r"nvmlDeviceGetHandleByUUID: other \(6\)"):
        found.temperature("ffff")


def test_without_a_management_library(nvml, tmp_path):
    with pytest.raises(norch.DeviceError, match="none.so cannot be loaded; NVIDIA's driver brings it"):
        nvml.Nvml(str(tmp_path / "none.so"))


def test_what_is_said_of_the_gpu(cuda, nvml):
    try:
        nvml.library()
    except norch.DeviceError as error:
        pytest.skip(str(error))
    x = norch.ones(1 << 20, device=cuda)
    assert 0 <= norch.cuda.utilization() <= 100
    assert 0 <= norch.cuda.memory_usage(cuda) <= 100
    assert 0 < norch.cuda.temperature(0) < 150
    assert norch.cuda.power_draw() > 0
    assert norch.cuda.clock_rate() > 0
    assert norch.cuda.device_memory_used() >= norch.cuda.memory_reserved() >= x.nbytes
    assert norch.cuda.list_gpu_processes().startswith("GPU:0\n")
