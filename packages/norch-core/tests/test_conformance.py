"""The conformance kit: right backends pass it, wrong ones are caught at the level where that belongs; its report."""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
import textwrap

import pytest
from broken_backends import Broken
from broken_contract import FAULTS, Fuses, Programs, softmax
from broken_limits import Lacks
from broken_promises import Deferred

import norch
from norch.__main__ import main
from norch.backend import registry
from norch.testing import conformance
from norch.testing.conformance import threads


@pytest.fixture(scope="module", autouse=True)
def cases():
    """All there are, made once, and out of sight of level 9, which asks every object whether it holds a tensor."""
    found = list(conformance.cases())
    gc.freeze()
    return found


@pytest.fixture
def broken(request):
    """The device of a backend class, for one test."""
    registered = []

    def register(backend):
        registry.register(backend(), "norch-broken", "1.2")
        registered.append(backend.device_type)
        return norch.device(backend.device_type)

    yield register
    for name in registered:
        registry.unregister(name)


@pytest.mark.parametrize("what", FAULTS)
def test_each_fault_is_caught_at_its_level_and_not_below(what, broken, monkeypatch):
    level, ops, backend = FAULTS[what]
    if "lock" in what:
        monkeypatch.setattr(threads, "PATIENCE", 1.0)
    device = broken(with_native_softmax(backend) if what.startswith("a native gradient") else backend)
    tried = [name for op in ops.split(",") for name in (op, op.removesuffix("_grad"))]
    tried += ["train", *MADE_OF_MATMUL] if level == 7 else []
    report = conformance.run(device, range(1, level + 1), tried)
    below = [r.case.id for r in report.results if r.error and r.case.level < level]
    assert not below
    caught = [r for r in report.failures if r.case.level == level]
    assert caught, f"{what}: not caught"


MADE_OF_MATMUL = "addbmm addmm addmv baddbmm bilinear bmm cdist conv2d dot einsum linear recurrence".split()


def with_native_softmax(backend):
    class Native(backend):
        def compile(self, op, operands, attrs):
            return softmax(operands, attrs, None) if op == "softmax" else super().compile(op, operands, attrs)

    return Native


def test_a_backend_that_fuses_passes(broken):
    report = conformance.run(broken(Fuses), [8], ["fused"])
    assert report.passed
    assert len(report.results) > 50


def test_a_backend_that_puts_work_off_passes(broken):
    report = conformance.run(broken(Deferred), [1, 2, 4, 7, 8])
    assert [f"{r.case.id}: {r.error}" for r in report.failures] == []


def test_a_backend_without_some_dtypes_passes_and_the_report_says_so(broken, tmp_path):
    report = conformance.run(broken(Lacks), range(1, 9))
    assert [f"{r.case.id}: {r.error}" for r in report.failures] == []
    reached = min((r.case.level for r in report.results if r.skipped), default=9) - 1  # level 7 needs norch-nn
    assert report.level == reached in (6, 8)
    assert "of_9_without_float64_int64_bfloat16" in report.badge()
    text, found = report.text(), report.json()
    assert f"level {reached} of 9 without float64, int64, bfloat16 in" in text
    assert re.search(r"\nno int64 \(its chip has 32 bits\): \d+ cases of \d+ ops were not tried\n", text)
    assert re.search(r"of these none: addbmm|of these none: .*argmax", text)
    assert found["missing_dtypes"] == Lacks.missing_dtypes
    assert set(found["without"]["bfloat16"]) > {"add", "gelu", "sum"}
    assert {"argmax", "gather", "sort"} <= set(found["without"]["int64"])
    passed = [r.case for r in report.results if not (r.without or r.skipped)]
    tried = {(case.level, case.op) for case in passed}
    assert {(3, "add"), (5, "exp"), (6, "softmax"), (7, "train"), (8, "bitwise_and")} <= tried
    assert not [case.id for case in passed if case.level in (2, 3, 4) and case.dtype in Lacks.missing_dtypes]
    assert len(passed) > 4500


@pytest.mark.parametrize("dtype", ["float64", "int64", "bfloat16"])
def test_a_backend_without_one_dtype_passes(dtype, broken):
    class Without(Lacks):
        missing_dtypes = {dtype: "its chip is small"}

    report = conformance.run(broken(Without), [1, 3, 7, 8])
    assert [f"{r.case.id}: {r.error}" for r in report.failures] == []
    assert {r.without for r in report.results} == {None, dtype}


def test_there_are_faults_at_every_level():
    assert len(FAULTS) >= 20
    assert {level for level, *_ in FAULTS.values()} == set(conformance.LEVELS)


def test_a_right_program_passes(broken):
    report = conformance.run(broken(Programs), [9])
    assert [f"{r.case.id}: {r.error}" for r in report.failures] == []


@pytest.mark.parametrize("name", ["broken", pytest.param("strict", marks=pytest.mark.slow)])
def test_right_backends_pass(name, broken):
    if name == "strict":
        from norch.testing.strict import strict_device

        device = strict_device()
    else:
        device = broken(Broken)
    report = conformance.run(device)
    assert [r.case.id for r in report.failures] == []
    assert report.passed
    reached = report.level
    wrong = next(r for r in report.results if r.case.level == 5)
    report.results.append(conformance.Result(wrong.case, "wrong"))
    assert (report.level, reached >= 6, report.passed) == (4, True, False)


def test_the_report_has_scripts_that_fail_alike(broken, tmp_path, capsys):
    _, _, backend = FAULTS["the offset is ignored"]
    broken(backend)
    found = tmp_path / "report.json"
    badge = tmp_path / "badge.md"
    arguments = ["--device", "broken", "--levels", "2-4", "--ops", "exp", "--json", str(found), "--badge", str(badge)]
    assert main(["conformance", *arguments]) == 1
    shown = capsys.readouterr().out
    assert "norch-broken 1.2" in shown
    assert re.search(r"\nexp +\d+ +\d+ +FAIL float32\n", shown)
    assert "level 4  layouts" in shown
    report = json.loads(found.read_text())
    assert not report["passed"]
    assert "level 0 of 9" in badge.read_text(), "level 1 was not tried"
    script = report["failures"][0]["script"]
    assert textwrap.indent(script, " " * 8) in shown
    with pytest.raises(AssertionError, match="elements are wrong"):
        exec(script, {})
    identity = report["failures"][0]["case"]
    with pytest.raises(AssertionError, match="elements are wrong"):
        conformance.rerun("broken", identity)
    conformance.rerun("cpu", identity)


@pytest.mark.slow
def test_every_script_runs():
    """The script of a case that passes runs through: one case of each op at each level."""
    firsts = {}
    for case in conformance.cases():
        if case.level != 7:  # training takes its time, and has one script
            firsts.setdefault((case.level, case.op), case)
    assert {level for level, _ in firsts} == set(conformance.LEVELS) - {7}
    for case in firsts.values():
        script = case.snippet("cpu")
        try:
            exec(script, {"print": lambda *args: None})
        except Exception as error:
            raise AssertionError(f"{case.id}:\n{script}") from error


def test_a_part_of_the_kit_is_not_a_level(capsys):
    assert main(["conformance", "--device", "cpu", "--levels", "1-2", "--ops", "exp"]) == 0
    shown = capsys.readouterr().out
    assert "level 1  memory, copies, views   -\n" in shown
    assert "all of these passed (a level is reached by all ops, from level 1 up) in " in shown


def test_a_device_that_is_not_there(capsys):
    assert main(["conformance", "--device", "abacus"]) == 2
    assert "no installed package provides device 'abacus'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["conformance", "--device", "cpu", "--levels", "10"])
    assert main(["conformance", "--device", "cpu", "--ops", "juggle"]) == 2


def test_levels_as_users_write_them():
    assert conformance.levels_of("3") == [3]
    assert conformance.levels_of("2,1-4,8") == [1, 2, 3, 4, 8]
    with pytest.raises(ValueError, match="levels are 1 to 9"):
        conformance.levels_of("0-3")


def test_the_kit_under_pytest():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    if not any(e.value == "norch.testing.pytest_plugin" for e in entry_points()):
        command += ["-p", "norch.testing.pytest_plugin"]
    command += ["--pyargs", "norch.testing.conformance", "--norch-device", "cpu", "--norch-levels", "1"]
    run = subprocess.run(command, capture_output=True, text=True, cwd="/")
    assert run.returncode == 0, run.stdout
    assert " passed" in run.stdout


def entry_points():
    from importlib import metadata

    return metadata.entry_points(group="pytest11")
