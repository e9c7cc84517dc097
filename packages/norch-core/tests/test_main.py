"""`python -m norch`: versions, and the state of every backend."""

import json
import subprocess
import sys

import pytest

import norch
from norch.__main__ import collect, main, show
from norch.backend import registry
from norch.testing.null import NullBackend


def test_it_prints_versions_and_the_backend_in_use():
    done = subprocess.run([sys.executable, "-m", "norch"], capture_output=True, text=True, check=True)
    assert f"norch-core  {norch.__version__}" in done.stdout
    cpu = next(line for line in done.stdout.splitlines() if line.startswith("cpu"))
    assert "selected" in cpu
    assert done.stderr == ""


def test_json(capsys):
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["norch-core"] == norch.__version__
    assert any(row["device"] == "cpu" and row["state"] == "selected" for row in found["backends"])


@pytest.mark.parametrize("arguments", [["--json"], ["info", "--json"], ["--json", "info"]])
def test_json_is_asked_for_before_or_after_the_command(capsys, arguments):
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["backends"]


def test_a_choice_that_nothing_has_is_shown(capsys, monkeypatch):
    monkeypatch.setenv("NORCH_BACKEND_CPU", "nmpy")
    assert main([]) == 0
    assert "NORCH_BACKEND_CPU=nmpy: no provider of 'cpu' has that name" in capsys.readouterr().out


def test_the_selected_backend_of_a_device_comes_first(monkeypatch):
    class Second(NullBackend):
        device_type = "cpu"
        priority = -200

    found = [p for p in registry.providers(load=True) if p.backend is not None and p.backend.device_type == "cpu"]
    registry.register(Second(), "norch-second")
    monkeypatch.setattr(registry, "providers", lambda load: [*registry.installed()[::-1]])
    try:
        rows = [row for row in collect()["backends"] if row["device"] == "cpu"]
    finally:
        registry.unregister("cpu")
    assert len(rows) >= len(found)
    assert [row["state"] == "selected" for row in rows] == [True, *[False] * (len(rows) - 1)]


def test_a_backend_that_breaks_later_does_not_break_the_report(capsys):
    class Fickle(NullBackend):
        device_type = "fickle"
        counts = iter([1])

        def device_count(self):
            return next(self.counts)

    registry.register(Fickle(), "norch-fickle")
    try:
        assert main([]) == 0
    finally:
        registry.unregister("fickle")
    out = capsys.readouterr().out
    assert "device_count() raised StopIteration" in out
    assert "selected" in next(line for line in out.splitlines() if line.startswith("cpu"))


def test_columns_line_up_and_fit_whatever_the_names():
    row = {"version": "10.0.0.dev1", "contract": "1.0", "priority": 0, "devices": 1, "state": "usable"}
    rows = [
        row | {"device": "electronchip", "distribution": "norch-a-rather-long-name"},
        row | {"device": "x", "distribution": "y", "reason": "word " * 60},
    ]
    header, first, second, *reason = show({"versions": {}, "backends": rows}).splitlines()[1:]
    for column, text in (("contract", "1.0"), ("state", "usable")):
        at = header.index(column)
        assert first[at:].startswith(text)
        assert second[at:].startswith(text)
    assert max(map(len, reason)) <= 100


def test_what_is_not_usable_says_why_and_what_to_do():
    row = {
        "device": "chip",
        "distribution": "norch-chip",
        "version": "1.0",
        "state": "not usable",
        "reason": "it needs the module chiplib, which is not installed",
        "advice": "pip install chiplib",
    }
    text = show({"versions": {}, "backends": [row]})
    assert "not usable" in text
    assert "chiplib, which is not installed" in text
    assert "try: pip install chiplib" in text
