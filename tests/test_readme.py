"""The README's program runs, and prints what a reader expects of it."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_readmes_program_learns_xor(tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    done = subprocess.run([sys.executable, "-c", blocks[0]], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    loss = re.search(r"^loss after 500 steps: (\S+)$", done.stdout, re.MULTILINE)
    assert loss, done.stdout
    assert float(loss[1]) < 1e-2
    assert "xor: [0, 1, 1, 0]" in done.stdout
