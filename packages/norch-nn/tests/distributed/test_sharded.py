"""State that is shared out among ranks: `fully_shard`, ZeroRedundancyOptimizer and their checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def all_right(done: Any, n: int) -> None:
    assert done.returncode == 0, done.stderr
    assert sum("all right" in line for line in done.stdout.splitlines()) == n, done.stdout


@pytest.mark.parametrize("n", [2, 4])
def test_fully_shard_trains_as_one_process_does_and_keeps_a_part(mpirun: Any, n: int) -> None:
    all_right(mpirun(n, "fsdp.py"), n)


@pytest.mark.parametrize("n", [2, 4])
def test_zero_redundancy_optimizer_steps_as_the_plain_one_does_and_keeps_a_part(mpirun: Any, n: int) -> None:
    all_right(mpirun(n, "zero.py"), n)


def test_checkpoints_are_read_by_other_numbers_of_ranks(mpirun: Any, tmp_path: Path) -> None:
    all_right(mpirun(4, "resharding.py", tmp_path), 4)
