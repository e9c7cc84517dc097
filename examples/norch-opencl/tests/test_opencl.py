"""What is particular to this backend. That it computes what norch asks is the kit's to say."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import norch
from norch.backend.registry import register, unregister
from norch.testing import conformance
from norch_opencl import devices
from norch_opencl.backend import OpenCLBackend
from norch_opencl.source import CTYPES

OPENCL = "opencl"


def there(values, **options):
    return norch.tensor(values, device=OPENCL, **options)


def run(program, **environment):
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_stays_small_enough_to_read():
    files = (Path(__file__).parents[1] / "src/norch_opencl").glob("*.py")
    assert sum(len(file.read_text().splitlines()) for file in files) <= 900


def test_a_driver_that_compiles_nothing_is_not_usable(monkeypatch):
    monkeypatch.setattr(devices, "NOTHING", "nonsense")
    backend = OpenCLBackend()
    assert backend.device_count() == 0
    assert re.match(r"OpenCL .* compiles nothing for .*: .*error", backend.unusable_reason())


def test_the_module_names_the_device():
    assert norch.opencl.is_available()
    assert norch.opencl.device_count() >= 1
    assert norch.opencl.get_device_name()
    assert norch.opencl.get_device_name(norch.device("opencl:0")) == norch.opencl.get_device_name(0)
    with pytest.raises(norch.DeviceError, match="cpu"):
        norch.opencl.get_device_name("cpu")


def test_memory_is_out_of_the_hosts_sight():
    x = there([1.0, 2.0])
    assert x.device.backend.host_view(x.buffer) is None
    with pytest.raises(norch.DeviceError, match="cpu"):
        x.numpy()
    host = x.cpu().numpy()
    host[0] = 7
    assert x.tolist() == [1, 2]


def test_memory_that_runs_out_is_an_error_that_work_survives():
    with pytest.raises(norch.OutOfMemoryError, match="most"):
        norch.empty(1 << 50, device=OPENCL)
    assert (there([1.0]) + 1).tolist() == [2]


def test_a_wrong_index_is_reported_when_the_device_is_waited_for():
    x, out = there([1.0, 2.0, 3.0]), norch.zeros(3, device=OPENCL)
    good = x.gather(0, there([2, 0]))
    x.gather(0, there([0, 3]))
    out.scatter_add_(0, there([1, 9]), there([5.0, 5.0]))
    still_good = x.gather(0, there([-1, 1]))
    with pytest.raises(IndexError, match=r"gather\(\): index 3 .* size 3"):
        norch.opencl.synchronize()
    norch.opencl.synchronize()
    assert good.tolist() == [3, 1]
    assert still_good.tolist() == [3, 2]
    assert out.tolist() == [0, 0, 0]


def test_two_threads_share_a_kernel():
    wrong = []

    def work(factor):
        x = norch.arange(1000, device=OPENCL, dtype=norch.float32)
        found = [(x * factor).sum().item() for _ in range(100)]
        wrong.extend(f for f in found if f != 499500 * factor)

    threads = [threading.Thread(target=work, args=(factor,)) for factor in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_outputs_may_be_strided():
    x = norch.zeros(4, 6, device=OPENCL)
    x[:, ::2] += 1
    x.T[1] = there([5.0, 6, 7, 8])
    wanted = np.zeros((4, 6))
    wanted[:, ::2] += 1
    wanted[:, 1] = [5, 6, 7, 8]
    assert x.tolist() == wanted.tolist()


def test_long_lines():
    draw = np.random.default_rng(0)
    a = draw.integers(0, 50, (3, 20_001)).astype(np.float32)
    x = there(a)
    assert x.sum(1).tolist() == a.sum(1).tolist()
    assert x.cumsum(1).cpu().numpy().tolist() == a.cumsum(1).tolist()
    for descending in (False, True):
        values, indices = x.sort(dim=1, descending=descending, stable=True)
        order = np.argsort(-a if descending else a, axis=1, kind="stable")
        assert (indices.cpu().numpy() == order).all()
        assert (values.cpu().numpy() == np.take_along_axis(a, order, 1)).all()


def test_products_of_any_size():
    draw = np.random.default_rng(0)
    for m, k, n in ((1, 300, 1), (33, 17, 65), (100, 130, 70)):
        a, b = draw.integers(-5, 5, (2, m, k)), draw.integers(-5, 5, (n, k))
        for dtype in (norch.float32, norch.int32):
            found = there(a, dtype=dtype) @ there(b, dtype=dtype).T
            assert found.tolist() == (a @ b.T).tolist()


def test_16_bit_floats_are_rounded_once_and_to_even():
    bits = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    found = there(bits).float().half().cpu().numpy()
    assert ((found == bits) | (np.isnan(found) & np.isnan(bits))).all()
    between = (np.arange(1 << 15, dtype=np.uint32) << 17 | 0x8000).view(np.float32)
    between = between[np.isfinite(between)]
    for x in (between, np.nextafter(between, np.float32(0)), np.nextafter(between, np.float32(np.inf))):
        found = there(x).bfloat16().float().cpu().numpy()
        assert (found == norch.tensor(x).bfloat16().float().numpy()).all()


def test_random_numbers_are_those_of_the_cpu():
    found = []
    for device in ("cpu", OPENCL):
        norch.manual_seed(3)
        found.append([norch.rand(7, 5, device=device).tolist(), norch.randint(0, 99, (9,), device=device).tolist()])
    assert found[0] == found[1]


def test_without_a_platform_it_says_what_to_install():
    program = "import norch; print(norch.opencl.device_count(), norch.opencl.is_available(), norch.opencl.why_not())"
    assert "pip install pyopencl[pocl]" in (said := run(program, NORCH_OPENCL_PLATFORM="there is none"))
    assert said.startswith("0 False")


def test_without_doubles_the_rest_works():
    class Small(OpenCLBackend):
        device_type = "small"

        def __init__(self):
            super().__init__()
            self.run.has_double, self.run.real = False, CTYPES["float32"]

    register(Small())
    try:
        report = conformance.run("small", [1, 3, 8], ["to", "copy", "exp", "arange", "random", "fill"])
        assert [f"{r.case.id}: {r.error}" for r in report.failures] == []
        assert {r.without for r in report.results} == {None, "float64"}
        with pytest.raises(norch.MissingDTypeError, match="small:0 has no float64: not all .* cl_khr_fp64"):
            norch.ones(3, dtype=norch.float64, device="small")
    finally:
        unregister("small")


def test_two_devices():
    program = """if True:
        import norch
        assert norch.opencl.device_count() == 2
        x = norch.arange(5, device="opencl:1") * 2
        y = x.to("opencl:0")
        x += 1
        print((y + 1).tolist(), x.tolist(), x.device)
    """
    if "Portable" not in norch.device(OPENCL).backend.run.devices[0].device.platform.name:
        pytest.skip("only PoCL can be told how many devices there are")
    assert run(program, POCL_DEVICES="basic basic").split("] ")[0] == "[1, 3, 5, 7, 9"
