"""DistributedDataParallel: programs/ddp says what it promises; the figures with two and with four processes."""

import re
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parent / "programs" / "ddp").glob("*.py"))
PROMISES = [name for file in FILES for name in re.findall(r"@promise\ndef (\w+)", file.read_text())]


@pytest.mark.parametrize("env", [{}, {"TOGETHER": "1"}], ids=["in buckets", "in place"])
@pytest.mark.parametrize(
    ("ranks", "promises"),
    [(2, PROMISES), (4, ["unused_parameters_may_be_found", "equals_one_process_with_the_whole_batch"])],
)
def test_promises(mpirun, ranks, promises, env):
    done = mpirun(ranks, "ddp", *promises, env=env)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^ok (\w+)", done.stdout, re.MULTILINE) == promises
