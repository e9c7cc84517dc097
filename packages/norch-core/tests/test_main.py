"""`python -m norch`: versions, and the state of every backend."""

import json
import subprocess
import sys

import norch
from norch.__main__ import main, show


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
