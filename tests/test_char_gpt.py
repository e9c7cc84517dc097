"""examples/char_gpt.py as a user runs it: it learns more than how frequent each character is, and goes on exactly."""

import math
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

ROOT = Path(__file__).parents[1]
SMALL = ["--width", "32", "--depth", "1", "--context", "32", "--batch", "8", "--lr", "1e-2", "--warmup", "20"]
ROW = re.compile(r"^ *(\d+) +(\d\.\d{4}) +(\d\.\d{4}) +\S+$", re.MULTILINE)


def command(*args):
    return [sys.executable, "-u", str(ROOT / "examples" / "char_gpt.py"), *args]


def run(cwd, *args):
    done = subprocess.run(command(*args), cwd=cwd, capture_output=True, text=True, timeout=120, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def text(tmp_path):
    """What this repository says about itself."""
    files = sorted([*ROOT.glob("*.md"), *ROOT.glob("packages/*/README.md"), *ROOT.glob("LICENSE*")])
    path = tmp_path / "text.txt"
    path.write_text("".join(f.read_text(encoding="utf-8") for f in files), encoding="utf-8")
    return path


def test_it_learns_how_characters_follow_one_another(text, tmp_path):
    found = run(tmp_path, "--text", str(text), "--steps", "300", "--dropout", "0", *SMALL, "--sample", "50")
    rows = [[float(x) for x in row] for row in ROW.findall(found)]
    assert [row[0] for row in rows] == [100, 200, 300]
    assert rows[0][1] > rows[1][1] > rows[2][1]
    # The least loss of a model that guesses each character without a look at those before it.
    held = text.read_text(encoding="utf-8")
    held = held[-int(0.1 * len(held)) :]
    blind = -sum(n / len(held) * math.log(n / len(held)) for n in Counter(held).values())
    assert rows[2][2] < blind - 0.4
    assert (tmp_path / "char_gpt.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    sample = re.search(r"bits a character\n\n(.*)\n\npicture: ", found, re.DOTALL)[1]
    assert len(sample) == 51

    again = ["--text", str(text), "--resume", "--sample", "40", "--prompt", "norch"]
    greedy = [run(tmp_path, *again, "--temperature", "0") for _ in range(2)]
    assert greedy[0] == greedy[1]
    assert "\nnorch" in greedy[0]
    assert not ROW.findall(greedy[0])
    assert run(tmp_path, *again, "--top-k", "1").count("norch") >= 1


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C reaches a Windows process in another way")
@pytest.mark.slow
def test_ctrl_c_saves_and_resume_goes_on_as_if_nothing_had_been(text, tmp_path):
    args = ["--text", str(text), "--steps", "300", "--every", "60", *SMALL]
    whole = run(tmp_path, *args, "--checkpoint", "whole.norch")
    process = subprocess.Popen(command(*args), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        seen = ""
        for line in process.stdout:
            seen += line
            if ROW.match(line):
                process.send_signal(signal.SIGINT)
                break
        rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "interrupted after step" in rest
    assert "Traceback" not in errors
    first = seen + rest
    second = run(tmp_path, "--text", str(text), "--resume")
    assert ROW.findall(first) + ROW.findall(second) == ROW.findall(whole)
    assert 0 < len(ROW.findall(first)) < len(ROW.findall(whole))


def test_what_cannot_be_used_is_explained(text, tmp_path):
    (tmp_path / "short.txt").write_text("too short")
    (tmp_path / "no.norch").write_text("no checkpoint")
    for args, word in (
        (["--text", "none.txt"], "none.txt"),
        (["--text", "short.txt"], "too few"),
        (["--text", str(text), "--device", "abacus"], "abacus"),
        (["--text", str(text), "--resume", "--checkpoint", "no.norch"], "no.norch"),
        (["--text", str(text), "--steps", "0"], "--steps"),
    ):
        done = subprocess.run(command(*args), cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert word in done.stderr
        assert "Traceback" not in done.stderr
