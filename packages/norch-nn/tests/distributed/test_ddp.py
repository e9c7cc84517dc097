"""DistributedDataParallel: programs/ddp.py says what it promises; the figures with two and with four processes."""

import re
from pathlib import Path

import pytest

PROMISES = re.findall(r"@promise\ndef (\w+)", (Path(__file__).parent / "programs" / "ddp.py").read_text())


@pytest.mark.parametrize("env", [{}, {"TOGETHER": "1"}], ids=["in buckets", "in place"])
@pytest.mark.parametrize(
    ("ranks", "promises"),
    [(2, PROMISES), (4, ["equals_one_process_with_the_whole_batch", "unused_parameters_may_be_found"])],
)
def test_promises(mpirun, ranks, promises, env):
    done = mpirun(ranks, "ddp.py", *promises, env=env)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^ok (\w+)", done.stdout, re.MULTILINE) == promises
