"""`norch coverage`: what ran natively, decomposed or on the CPU, and how often."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest
from broken_backends import Broken

import norch
from norch import coverage
from norch.__main__ import main
from norch.backend import registry

SCRIPT = """
import sys
import norch

print("arguments", sys.argv[1:])
x = norch.ones(100, requires_grad=True)
for _ in range(3):
    y = (x * 2).exp()
y.softmax(0).sum().backward()
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    return str(path)


def test_native_ops_are_counted_with_bytes_and_time(script, tmp_path, capsys):
    found = tmp_path / "counts.json"
    assert main(["coverage", "--json", str(found), script, "7"]) == 7
    printed = capsys.readouterr()
    assert "arguments ['7']" in printed.out
    assert "exp" in printed.err
    rows = {(r["op"], r["how"]): r for r in json.loads(found.read_text())}
    exp = rows["exp", "native"]
    assert exp["calls"] >= 3
    assert exp["bytes"] >= 3 * 800
    assert exp["seconds"] > 0
    assert rows["mul", "native"]["device"] == "cpu"


def test_a_script_that_fails_still_gives_the_table(tmp_path):
    path = tmp_path / "fails.py"
    path.write_text("import norch\nnorch.ones(3).exp()\nraise ValueError('so')\n")
    done = subprocess.run([sys.executable, "-m", "norch", "coverage", str(path)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ValueError: so" in done.stderr
    assert "exp" in done.stderr.partition("Traceback")[0]


def test_what_is_decomposed_and_what_falls_back():
    class Lacking(Broken):
        def compile(self, op, operands, attrs):
            return None if op == "sinh" else super().compile(op, operands, attrs)

    registry.register(Lacking(), "norch-broken", "1.2")
    norch.set_cpu_fallback(True)
    try:
        x = norch.ones(10, device="broken")
        x.sinh()
        with coverage.watch() as seen:
            x.sinh()
            x.softmax(0)
        x.sinh()
    finally:
        norch.set_cpu_fallback(False)
        registry.unregister("broken")
    rows = {(c.op, c.how): c for c in seen.rows()}
    assert rows["sinh", "on the CPU"].calls == 1
    assert rows["sinh", "on the CPU"].bytes == 160
    assert rows["softmax", "decomposed"].calls == 1
    assert rows["exp", "native"].calls == 1
    assert "broken: " in seen.text()
    assert "1 calls of 1 ops on the CPU" in seen.text()
