"""examples/strides.py as a user runs it: every view is what plain Python reads, and the picture is there."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "strides.py"


def run(cwd, *args):
    command = [sys.executable, str(EXAMPLE), *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


def test_every_view_is_what_plain_python_reads(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("read by plain Python: ") == done.stdout.count(", the same\n") == 7
    assert "DIFFERENT" not in done.stdout
    assert "y[0, 1] = 30, and x[1, 0] is 30" in done.stdout
    assert "= [8.0, 14.0, 20.0, 26.0]; by loops: [8.0, 14.0, 20.0, 26.0]" in done.stdout
    assert re.search(r"^   2  x\.T\.reshape\(6\)\n      copy ", done.stdout, re.MULTILINE)
    assert max(map(len, done.stdout.splitlines())) <= 110
    texts = [t.text for t in ET.parse(tmp_path / "strides.svg").getroot().iter("{http://www.w3.org/2000/svg}text")]
    assert {"1  x.T", "2  x.T.reshape(6)"} <= set(texts)


def test_what_it_cannot_do_is_explained(tmp_path):
    done = run(tmp_path, "--device", "abacus")
    assert (done.returncode, "abacus" in done.stderr, "Traceback" in done.stderr) == (2, True, False)
    done = run(tmp_path, "--out", "no/such/folder.svg")
    assert (done.returncode, "no picture" in done.stderr, "Traceback" in done.stderr) == (1, True, False)
