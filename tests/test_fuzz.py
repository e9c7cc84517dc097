"""The fuzzer itself: it finds what is planted, makes it small, and tells rounding from mistakes."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import norch

FUZZ = Path(__file__).parent / "fuzz"


@pytest.fixture
def fuzz(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The modules of tests/fuzz, importable by their names."""
    monkeypatch.syspath_prepend(str(FUZZ))
    import program

    return program


def test_a_program_is_made_small(fuzz: ModuleType) -> None:
    from shrink import shrunk

    lines = (
        "a = T.tensor([[1.5, 2.0, nan, 4.0], [5.0, 6.0, 7.0, 8.0]], dtype=T.float32)",
        "b = a.exp(); c = b + 1",
        "z = T.clamp(a[0], min=-1, max=1)",
        "z.sum()",
    )

    def check(candidate: tuple[str, ...]) -> str | None:
        errors = fuzz.run(candidate, norch).errors
        return None if errors else "z: values [1.0]" if any("clamp" in line for line in candidate) else None

    small, failure = shrunk(lines, check, "z: values [2.0, 3.0]")
    assert len(small) == 2
    assert len("".join(small)) < 70
    assert failure == "z: values [1.0]"


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ("z = T.ones(2)", "z = T.ones(2)", None),
        ("z = T.ones(2)", "z = T.ones(2, dtype=T.float64)", "dtype float32, should be float64"),
        ("z = T.ones(2)", "z = T.ones(2, 1)", "shape (2,), should be (2, 1)"),
        ("z = T.ones(2)", "z = T.tensor([1, 1.0000002])", None),
        ("z = T.ones(2)", "z = T.tensor([1, 1.001])", "values"),
        ("z = T.tensor([1e-30])", "z = T.tensor([0.0])", "values"),
        ("z = T.tensor([nan, inf])", "z = T.tensor([nan, -inf])", "values"),
        ("z = T.ones(2).reshape(3)", "z = T.ones(2)", "raises ShapeError"),
        ("z = T.ones(2)", "z = T.ones(2).reshape(3)", "should raise ShapeError"),
        ("z = T.ones(1).requires_grad_()", "z = T.ones(1)", "requires_grad True"),
        (
            "a = T.ones(1).requires_grad_(); (a * 2).backward()",
            "a = T.ones(1).requires_grad_(); a.backward()",
            "gradient",
        ),
    ],
)
def test_what_counts_as_a_difference(fuzz: ModuleType, ours: str, theirs: str, found: str | None) -> None:
    from compare import difference

    said = difference(fuzz.run((ours,), norch), fuzz.run((theirs,), norch), (ours,))
    assert said is None if found is None else said is not None and found in said


def test_programs_run_in_float64_with_inputs_that_are_moved(fuzz: ModuleType) -> None:
    pytest.importorskip("torch")
    from exact import in_float64

    lines = (
        "m = filled(nn.Linear(2, 2).to(T.float32), 0)",
        "x = T.arange(4).reshape(2, 2).to(T.float32)",
        "y = m(x); y.sum().backward()",
        "p = dict(m.named_parameters())",
    )
    here, moved = in_float64(lines), in_float64(lines, 1e-7)
    assert not here.errors
    assert not moved.errors
    a, b = (o.values["p['weight']"] for o in (here, moved))
    assert a.dtype == "float64"
    assert 0 < abs(a.values - b.values).max() < 1e-6
    assert 0 < abs(a.grad.values - b.grad.values).max() < 1e-5


def test_a_worker_that_dies_takes_only_its_case_with_it(fuzz: ModuleType) -> None:
    pytest.importorskip("torch")
    from worker import Worker

    worker = Worker(patience=30)
    try:
        assert "crash" in (worker.check("arguments", ("import os; os._exit(3)",)) or "")
        assert worker.check("arguments", ("z = T.ones(2)",)) is None
        assert "KeyError" in (worker.check("arguments", ("{}[0]",)) or "")
    finally:
        worker.stop()


def test_captured_steps_take_statements_of_several_lines(fuzz: ModuleType) -> None:
    """The shrinker writes a with statement so."""
    from captured import check

    assert check(("v = T.ones(3)", "with T.no_grad():\n    v[::2] += 1", "w = v.norm()")) is None


def test_guarded_memory_is_poisoned_and_kept_apart() -> None:
    """What NORCH_CPU_GUARD=1 does: new memory is NaN, and a write beside a block ends the process."""
    script = (
        "import ctypes, norch\n"
        "t = norch.empty(3)\n"
        "print(t.isnan().all().item(), t.data_ptr() % 64)\n"
        "ctypes.memset(t.data_ptr() + 12 + {beyond}, 0, 1)\n"
        "del t\n"
        "print('went on')\n"
    )

    def run(beyond: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", script.format(beyond=beyond)]
        return subprocess.run(command, env=os.environ | {"NORCH_CPU_GUARD": "1"}, capture_output=True, text=True)

    inside, beside, far = run(-1), run(0), run(64)
    assert inside.stdout.split("\n")[:2] == ["True 0", "went on"], inside.stderr
    assert "was written to" in beside.stderr
    assert "went on" not in beside.stdout
    assert far.returncode == -11


@pytest.mark.parametrize("kind", ["ops", "programs", "layers", "models", "threads", "capture", "arguments", "files"])
def test_each_kind_of_case_runs(kind: str) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, str(FUZZ), "--only", kind, "--minutes", "0.1", "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f" {kind})" in done.stdout


def test_every_function_of_both_libraries_is_called(fuzz: ModuleType) -> None:
    pytest.importorskip("torch")
    import ops
    from signatures import LEFT_OUT

    left_out = set(" ".join(LEFT_OUT.values()).split())
    called = {name.split(".")[-1] for signature in ops.signatures() for name in signature.names}

    def public(place: object) -> set[str]:
        values = {n: getattr(place, n, None) for n in dir(place) if not n.startswith("_")}
        return {n for n, value in values.items() if callable(value) and not isinstance(value, type)}

    libraries = [fuzz.library("norch"), fuzz.library("torch")]
    both = set.intersection(*[public(library.Tensor) for library in libraries])
    for place in ops.PLACES:
        both |= set.intersection(*[public(ops.reached(library, place)) for library in libraries])
    assert {n for n in both if not {n, n.rstrip("_")} & (called | left_out)} == set()
    assert called & left_out == set()
    assert left_out <= both


def test_every_layer_of_both_libraries_is_called(fuzz: ModuleType) -> None:
    pytest.importorskip("torch")
    import layers

    def public(library: ModuleType) -> set[str]:
        values = {n: getattr(library.nn, n) for n in dir(library.nn) if not n.startswith("_")}
        return {n for n, v in values.items() if isinstance(v, type) and issubclass(v, library.nn.Module)}

    called, left_out = {layer.name for layer in layers.layers()}, set(" ".join(layers.LEFT_OUT.values()).split())
    assert called | left_out == public(fuzz.library("norch")) & public(fuzz.library("torch"))
    assert called & left_out == set()


def test_differences_are_explained(fuzz: ModuleType) -> None:
    import differences

    nightly = runpy.run_path(str(FUZZ.parent / "nightly" / "differences.py"))
    names = {d.name for d in (*differences.DIFFERENCES, *nightly["DIFFERENCES"])}
    page = (FUZZ.parent.parent / "docs" / "differences.md").read_text()
    headings = {line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")}
    assert names - headings == set()
