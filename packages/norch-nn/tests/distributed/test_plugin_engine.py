"""An engine in a distribution of its own, plugin/norch_sockets.py, written against norch.distributed.engine alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Where the distribution is installed, as pip would leave it."""
    site = tmp_path / "norch_sockets-0.1.0.dist-info"
    site.mkdir()
    (site / "METADATA").write_text("Metadata-Version: 2.1\nName: norch-sockets\nVersion: 0.1.0\n")
    (site / "entry_points.txt").write_text("[norch.distributed]\nsockets = norch_sockets\n")
    (tmp_path / "norch_sockets.py").write_text((HERE / "plugin" / "norch_sockets.py").read_text())
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    return {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def test_it_passes_the_conformance_kit(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "norch", "conformance", "--distributed", "sockets", "-n", "3"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "engine sockets of norch-sockets 0.1.0" in done.stdout


def test_a_model_is_cut_over_it(environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(HERE / "programs" / "tensor_parallel.py")],
            env=environment | variables | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for rank, process in enumerate(processes):
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert out.startswith(f"rank {rank}: 4 plans")
