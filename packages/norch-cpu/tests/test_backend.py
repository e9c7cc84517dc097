"""The backend itself: memory, launching, threads, processes, and what it refuses."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from run_code import run_python

import norch
from norch.backend import PRIMITIVES, Operand
from norch.device import CPU
from norch.dtype import float32, int64
from norch_cpu.backend import CpuBackend
from norch_cpu.native import BUILDS, chosen, native, usable

backend = CPU.backend
MiB = 1 << 20


def operand(*shape, strides=None, dtype=float32):
    if strides is None:
        strides = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    return Operand(dtype, shape, strides)


# --- Which provider, which build ------------------------------------------------------------------------------------


def test_it_is_the_cpu():
    assert type(backend).__module__ == "norch_cpu.backend"


def test_every_primitive_is_native():
    assert set(native.ops()) >= PRIMITIVES


def test_numpy_can_be_chosen_instead():
    code = "import norch; from norch.device import CPU; print(type(CPU.backend).__name__)"
    assert run_python(code, NORCH_BACKEND_CPU="norch-core")[1] == "NumpyBackend"


def test_the_best_build_is_chosen():
    assert norch.cpu.instruction_set() == chosen
    if "NORCH_CPU_INSTRUCTION_SET" not in os.environ:
        assert chosen == usable[-1]


@pytest.mark.parametrize("build", [*BUILDS, "native"])
def test_every_build_computes(build):
    if build not in usable:
        pytest.skip(f"{build} was not built, or the processor lacks it")
    code = (
        "import norch; x = norch.linspace(-3, 3, 1001); y = norch.tanh(x) * x.sigmoid() + (x @ x); "
        "print(norch.cpu.instruction_set(), float(y.sum()))"
    )
    name, total = run_python(code, NORCH_CPU_INSTRUCTION_SET=build)[1].split()
    x = np.linspace(-3, 3, 1001)
    assert name == build
    np.testing.assert_allclose(float(total), (np.tanh(x) / (1 + np.exp(-x)) + x @ x).sum(), rtol=1e-5)


@pytest.mark.skipif(shutil.which("ldd") is None, reason="glibc's ldd resolves what a module leaves to others")
@pytest.mark.parametrize("build", BUILDS)
def test_what_a_build_lacks_another_has(build):
    # Without running it: the processor may lack what it is compiled for.
    found = importlib.util.find_spec(f"norch_cpu._{build}")
    if found is None:
        pytest.skip(f"{build} was not built")
    told = subprocess.run(["ldd", "-r", found.origin], capture_output=True, text=True)
    lines = (told.stdout + told.stderr).splitlines()
    assert any("libc.so" in line for line in lines)
    assert [line for line in lines if "not found" in line or re.search(r"undefined symbol: \w*norch", line)] == []


@pytest.mark.parametrize(
    ("variable", "value"),
    [("NORCH_CPU_INSTRUCTION_SET", "sse9"), ("NORCH_NUM_THREADS", "many")],
)
def test_a_bad_variable_names_itself_and_leaves_the_reference_in_charge_with_one_warning(variable, value):
    code = "import norch; x = norch.ones(2); norch.set_num_threads(1); print((x + 1).tolist(), norch.cpu.why_not())"
    rc, out, err = run_python(code, **{variable: value})
    assert rc == 0
    assert out.startswith("[2.0, 2.0]")
    assert err.count("RuntimeWarning") == 1
    assert variable in err
    assert f"correct {variable}, or unset it" in err
    rc, _, err = run_python(code, **{variable: value, "NORCH_BACKEND_CPU": "norch-cpu"})
    assert rc != 0
    assert variable in err


@pytest.mark.parametrize("value", ["many", "0", "-1", "1.5", "9" * 30])
def test_what_is_no_number_of_threads(value, monkeypatch):
    monkeypatch.setenv("NORCH_NUM_THREADS", value)
    with pytest.raises(ValueError, match=f"NORCH_NUM_THREADS must be a number from 1 to .*, got '{value}'"):
        CpuBackend()


# --- Launching ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "strides", "message"),
    [
        ((2, 3), (-3, 1), "stride is negative"),
        ((-2, 3), (3, 1), "size is negative"),
        ((1 << 40, 1 << 40), (1 << 40, 1), "too large"),
        ((2, 2), (1 << 62, 1), "too large"),
        ((2, 3), (1,), "2 dims and 1 strides"),
    ],
)
def test_impossible_operands_are_refused(shape, strides, message):
    bad = Operand(float32, shape, strides)
    with pytest.raises(ValueError, match=message):
        native.compile("neg", (bad, bad), {})


def test_an_operand_outside_its_buffer_is_refused():
    kernel = native.compile("neg", (operand(4), operand(4)), {})
    buffer, small = backend.allocate(16, 0), backend.allocate(12, 0)
    kernel(buffer, 0, buffer, 0)
    for args in ((buffer, 0, small, 0), (buffer, 1, buffer, 0), (buffer, -1, buffer, 0), (buffer, 1 << 61, buffer, 0)):
        with pytest.raises(ValueError, match="does not lie in a buffer"):
            kernel(*args)


def test_arguments_of_the_wrong_kind_are_refused():
    kernel = native.compile("neg", (operand(4), operand(4)), {})
    buffer = backend.allocate(16, 0)
    with pytest.raises(TypeError):
        kernel(buffer, 0, bytearray(16), 0)
    with pytest.raises(TypeError):
        kernel(buffer, 0)
    with pytest.raises(TypeError):
        kernel(buffer, 0, buffer, "0")
    with pytest.raises(ValueError):
        native.compile("neg", (operand(4, dtype=int64)._replace(dtype=type("D", (), {"name": "complex64"})),) * 2, {})


def test_a_kernel_allocates_its_output():
    kernel = native.compile("neg", (operand(4), operand(4)), {})
    negated = backend.allocating(kernel, 16, 0)
    x = norch.tensor([1.0, -2.0, 3.0, 4.0])
    out = negated(x.buffer, 0)
    assert type(out) is type(x.buffer)
    assert (out.nbytes, out.modified) == (16, None)
    assert memoryview(out).cast("f").tolist() == [-1.0, 2.0, -3.0, -4.0]
    assert negated(x.buffer, 0) is not out
    for args in ((), (x.buffer,), (x.buffer, 0, x.buffer, 0), (bytearray(16), 0)):
        with pytest.raises(TypeError):
            negated(*args)
    with pytest.raises(ValueError, match="does not lie in a buffer"):
        negated(x.buffer, 1)


@pytest.mark.parametrize("kernel", [None, len, lambda out, at, x, start: None])
def test_only_its_own_kernels_are_made_to_allocate(kernel):
    assert native.allocating(kernel, 16, 0) is None


def test_a_kernel_allocates_only_as_much_as_it_writes():
    kernel = native.compile("neg", (operand(4), operand(4)), {})
    assert native.allocating(kernel, 20, 0) is None
    assert native.allocating(kernel, 16, 0) is not None
    assert native.allocating(kernel, 16, 1) is None  # it writes to device 0 already
    assert backend.allocating(kernel, 20, 0)(norch.ones(4).buffer, 0).nbytes == 20


def test_an_op_that_it_lacks():
    assert backend.compile("no_such_op", (operand(4),), {}) is None


# --- Threads and processes ------------------------------------------------------------------------------------------


@pytest.fixture
def threads():
    before = norch.get_num_threads()
    yield
    norch.set_num_threads(before)


def test_the_number_of_threads(threads):
    norch.set_num_threads(3)
    assert norch.get_num_threads() == 3
    for bad in (0, -1, 2000):
        with pytest.raises(ValueError):
            norch.set_num_threads(bad)
    with pytest.raises(TypeError):
        norch.set_num_threads(1.5)


def test_the_environment_sets_the_number_of_threads():
    assert run_python("import norch; print(norch.get_num_threads())", NORCH_NUM_THREADS="3")[1] == "3"


def test_results_do_not_depend_on_the_number_of_threads(threads):
    rng = np.random.default_rng(0)
    x = norch.from_numpy(rng.standard_normal((700, 1100), dtype=np.float32))

    def results():
        return [t.numpy().copy() for t in (x * 2 + x, (x + 1).T.contiguous(), x.sum(), x.sum(0), x.sum(1), x.exp())]

    norch.set_num_threads(1)
    expected = results()
    for count in (2, 3, 7):
        norch.set_num_threads(count)
        for got, want in zip(results(), expected):
            np.testing.assert_array_equal(got, want)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_it_works_after_a_fork():
    code = """
import os, sys, norch
norch.set_num_threads(2)
x = norch.ones(1 << 20)
def work():
    return float((x * 2 + 1).sum()) == 3 << 20 and float((norch.ones(256, 256) @ norch.ones(256, 256)).sum()) == 1 << 24
assert work()
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if work() and work() else 1)
    assert os.waitpid(pid, 0)[1] == 0
assert work()
print("done")
"""
    rc, out, err = run_python(code)
    assert (rc, out) == (0, "done"), err


def test_several_python_threads_at_once(threads):
    norch.set_num_threads(2)
    x = norch.arange(300_000, dtype=norch.float32)
    failures = []

    def work():
        sums = [float(((x + 1) - x).sum()) for _ in range(15)]
        failures.extend(s for s in sums if s != 300_000)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def test_long_kernels_release_the_interpreter():
    x = norch.ones(8 * MiB)
    ticks = 0
    stop = threading.Event()

    def count():
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0)

    other = threading.Thread(target=count)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # so that only a released lock lets the other thread in
    try:
        other.start()
        before = ticks
        for _ in range(20):
            x = x * 1.0
        assert ticks > before
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        other.join()
