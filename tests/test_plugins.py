"""Living with plug-ins: real wheels in a clean environment, many of them broken. None of them hurts another."""

import fcntl
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import wheels

ROOT = Path(__file__).parents[1]
SOURCES = Path(__file__).parent / "plugins"

BACKEND = """
from norch.backend import hookimpl
from norch.backend.contract import PRIMITIVES
from norch.numpy_backend import NumpyBackend

class Chip(NumpyBackend):
    device_type = "{device}"
    priority = {priority}
    contract = {contract}
    refused = set()
    {body}

@hookimpl
def norch_backend():
    return Chip()
"""

PRIMITIVES_ONLY = """
    def compile(self, op, operands, attrs):
        if op not in PRIMITIVES:
            self.refused.add(op)
            return None
        return super().compile(op, operands, attrs)
"""

RAISING = """
    def compile(self, op, operands, attrs):
        if op == "log":
            raise KeyError("no such table")
        def kernel(*args):
            raise RuntimeError("the chip is on fire")
        return kernel if op == "exp" else super().compile(op, operands, attrs)
"""

OP = """
from norch.plugin_ops import hookimpl, new_op
import norch

def factory(backend, operands, attrs):
    def kernel(*args):
        raise RuntimeError("lost the way")
    return kernel

@new_op(lambda input: input, lambda g: g * 2, sample=lambda: None, kernels={{"faulty": factory}})
def {name}(input: norch.Tensor) -> norch.Tensor:
    return input + input

@hookimpl
def norch_ops():
    return [{name}]
"""


def backend(device, body="", priority=0, contract=(1, 1)):
    return BACKEND.format(device=device, body=body.strip(), priority=priority, contract=contract)


DEVICES = {  # by distribution: the device that it is for, and its module
    "norch-raises": ("raises", "raise ValueError('no luck')"),
    "norch-libless": ("libless", "import ctypes; ctypes.CDLL('libabacus.so.7')"),
    "norch-newer": ("newer", backend("newer", contract=(1, 99))),
    "norch-frozen": ("frozen", (SOURCES / "norch_frozen.py").read_text()),
    "norch-twin-fast": ("twin", backend("twin", priority=2)),
    "norch-twin-slow": ("twin", backend("twin", priority=1)),
    "norch-equal-b": ("equal", backend("equal")),
    "norch-equal-a": ("equal", backend("equal")),
    "norch-faulty": ("faulty", backend("faulty", RAISING)),
    "norch-bare": ("bare", backend("bare", PRIMITIVES_ONLY)),
}
OPS = {  # by distribution: the op's name, and its module
    "norch-op-raises": ("broken_op", "raise ValueError('no luck')"),
    "norch-op-thief": ("relu", OP.format(name="relu")),
    "norch-op-named-so": ("wrong_op", OP.format(name="exp")),
    "norch-op-absent": ("absent_op", OP.format(name="another_op")),
    "norch-op-first": ("doubled", OP.format(name="doubled")),
    "norch-op-second": ("doubled", OP.format(name="doubled")),
    "norch-op-faulty": ("faulty_op", OP.format(name="faulty_op")),
}


@pytest.fixture(scope="session")
def python(tmp_path_factory, worker_id):
    """The Python of an environment with norch and all of these plug-ins, made once for all test processes."""
    base = tmp_path_factory.getbasetemp()
    base = base if worker_id == "master" else base.parent
    folder = base / "plugins"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            projects = [
                ROOT / "packages" / "norch-core",
                ROOT / "packages" / "norch-nn",
                ROOT / "examples" / "norch-fused",
            ]
            built = [wheels.wheel_of(folder, project) for project in projects]
            for group, plugins in (("norch", DEVICES), ("norch.ops", OPS)):
                for name, (provides, source) in plugins.items():
                    module = name.replace("-", "_")
                    entry = f"[{group}]\n{provides} = {module}\n"
                    built.append(wheels.wheel(folder, name, {f"{module}.py": source}, entry))
            wheels.environment(folder / "venv", built, ["numpy", "ml_dtypes", "pluggy", "pytest"])
            (folder / "ready").touch()
    return folder / "venv" / "bin" / "python"


def run(python, *args, **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NORCH", "PYTEST"))}
    return subprocess.run(
        [python, *args], env=clean | environment, capture_output=True, text=True, timeout=120, cwd=python.parents[1]
    )


@pytest.fixture(scope="session")
def seen(python):
    done = run(python, SOURCES / "probe.py")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_importing_norch_loads_no_plug_in(seen):
    assert seen["loaded by import"] == seen["loaded by an unknown device"] == []


def test_an_unknown_device_is_answered_at_once_with_what_is_installed(seen):
    assert seen["unknown takes"] < 2  # 0.1 is asked of a machine with nothing else to do
    assert "no installed package provides device 'abacus'; try: pip install norch-abacus" in seen["unknown"]
    for name, (device, _) in DEVICES.items():
        assert f"{device}: {name} 1.0" in seen["unknown"]


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("raises", "norch-raises 1.0 (norch_raises): it raised ValueError: no luck; pip install -U norch-raises"),
        ("libless", "norch-libless 1.0 (norch_libless): a library failed to load: libabacus.so.7"),
        ("libless", "pip install --force-reinstall norch-libless"),
        ("newer", "norch-newer 1.0 (norch_newer): it was built for contract 1.99, this norch-core has 1."),
        ("newer", "pip install -U norch-core"),
    ],
)
def test_what_cannot_be_loaded_says_why_and_what_to_do(seen, device, words):
    assert seen[device].startswith(f"DeviceError: device {device!r} cannot be used")
    assert words in seen[device]
    assert not seen[f"{device} is available"]


@pytest.mark.parametrize("device", ["frozen", "bare"])
def test_models_train_on_a_plug_in_of_contract_1_0_and_on_one_with_primitives_only(seen, device):
    assert seen[device][-1] < 0.5 * seen[device][0]
    assert seen[device] == pytest.approx(seen["cpu"], abs=2e-3)


@pytest.mark.parametrize("device", ["frozen", "bare"])
def test_dtypes_that_store_need_nothing_of_a_plug_in(seen, device):
    assert seen["stored"][device] == seen["stored"]["cpu"]


def test_the_bare_plug_in_was_asked_for_composites(seen):
    assert {"gelu", "cross_entropy", "linear"} <= set(seen["bare asked for"])


def test_of_two_for_one_device_the_higher_priority_wins_then_the_first_by_name(seen):
    assert seen["twin"] == "norch_twin_fast"
    assert seen["equal"] == "norch_equal_a"


def test_the_user_can_choose_between_two(python):
    script = "import norch; print(*[type(norch.device(d).backend).__module__ for d in ('twin', 'equal')])"
    done = run(python, "-c", script, NORCH_BACKEND_TWIN="norch-twin-slow", NORCH_BACKEND_EQUAL="norch_equal_b")
    assert done.stdout.split() == ["norch_twin_slow", "norch_equal_b"], done.stderr


def test_a_kernel_that_raises_is_reported_by_its_distribution(seen):
    kernel, compiling, after, elsewhere = seen["faulty"]
    assert kernel.startswith("BackendError: backend 'faulty' of norch-faulty 1.0: kernel exp raised RuntimeError")
    assert "the chip is on fire" in kernel
    assert compiling.startswith("BackendError: backend 'faulty' of norch-faulty 1.0 failed to compile log: KeyError")
    assert after == [[2.0] * 3] * 2
    assert elsewhere.startswith("tensor([2.7183")


def test_info_lists_all_of_them(python):
    done = run(python.parent / "norch", "info", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["distribution"]: row for row in json.loads(done.stdout)["backends"]}
    assert set(rows) == {*DEVICES, "norch-core"}
    for name, (device, _) in DEVICES.items():
        row = rows[name]
        assert (row["device"], row["version"]) == (device, "1.0")
        if name in ("norch-raises", "norch-libless", "norch-newer"):
            assert row["state"] == "not usable"
            assert row["reason"]
            assert row["advice"].startswith("pip install ")
        else:
            assert row["devices"] == 1
            assert row["contract"] == ("1.0" if name == "norch-frozen" else "1.1")
            assert row["state"] == ("usable" if name in ("norch-twin-slow", "norch-equal-b") else "selected")
    ops = {row["distribution"]: row for row in json.loads(done.stdout)["ops"]}
    assert set(ops) == {*OPS, "norch-fused"}
    assert ops["norch-fused"]["state"] == "usable"
    assert ops["norch-fused"]["kernels"] == "cpu"
    assert "norch conformance does not try it: its sample gives None" in ops["norch-op-faulty"]["reason"]
    assert ops["norch-op-thief"]["reason"] == "norch itself has the name 'relu'"
    assert ops["norch-op-thief"]["advice"] == "pip uninstall norch-op-thief"
    text = run(python, "-m", "norch").stdout
    assert "a library failed to load: libabacus.so.7" in text
    assert "try: pip install --force-reinstall norch-libless" in text
    assert re.search(r"^swiglu +norch-fused 0.1.0 +cpu +usable$", text, re.MULTILINE)


def test_an_op_of_a_plug_in_is_found_when_it_is_asked_for(seen):
    assert seen["ops loaded before"] == []
    same, node, found = seen["swiglu"]
    assert same
    assert "swiglu" in node
    assert found


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ("broken_op", "norch-op-raises 1.0 (norch_op_raises): it raised ValueError: no luck"),
        ("doubled", "norch-op-first 1.0 (norch_op_first): norch-op-second has an op of that name too"),
        ("absent_op", "norch-op-absent 1.0 (norch_op_absent): its hook gives no op absent_op; it gives another_op"),
        ("wrong_op", "norch-op-named-so 1.0 (norch_op_named_so): it raised ValueError: op exp of norch_op_named_so"),
        ("relu", "<function relu"),
        ("no_such_op", "module 'norch' has no attribute 'no_such_op'"),
    ],
)
def test_an_op_that_cannot_be_used_says_why(seen, op, words):
    assert words in seen["ops"][op]


def test_a_kernel_of_an_ops_plug_in_is_reported_by_its_distribution(seen):
    kernel, elsewhere = seen["kernel"]
    assert kernel.startswith(
        "BackendError: op faulty_op of norch-op-faulty 1.0: its kernel for 'faulty' raised Runtime"
    )
    assert elsewhere.startswith("tensor([2.")


def test_the_frozen_plug_in_passes_the_kit(python):
    done = run(python, "-m", "norch", "conformance", "--device", "frozen", "--levels", "1-2,9")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_of_an_op_passes_its_own_tests_where_it_is_installed(python):
    done = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", ROOT / "examples" / "norch-fused" / "tests")
    assert done.returncode == 0, done.stdout + done.stderr
