"""What launchers say in variables, and how processes find each other."""

from __future__ import annotations

import subprocess
import sys

import pytest

from norch.distributed import DistributedError
from norch.distributed.launch import Place, master, place


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, Place(0, 1, 0, 1)),
        (
            {
                "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "PMI_RANK": "0",
                "PMI_SIZE": "1",
            },
            Place(5, 8, 1, 4),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, Place(1, 2, 1, 2)),
        (
            {
                "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1",
            },
            Place(3, 4, 1, 2),
        ),
        ({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "0"}, Place(2, 4, 0, 4)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, Place(0, 1, 0, 1)),  # a batch script, not a step of it
    ],
)  # fmt: skip
def test_place(environment: dict[str, str], wanted: Place) -> None:
    assert place(environment) == wanted


def test_a_place_that_is_no_number_is_named() -> None:
    with pytest.raises(DistributedError, match=r"RANK='one' and WORLD_SIZE='2', which torchrun sets"):
        place({"RANK": "one", "WORLD_SIZE": "2"})


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, None),
        ({"MASTER_ADDR": "node1"}, None),
        ({"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}, ("node1", 29500)),
        (
            {"MASTER_ADDR": "node1", "MASTER_PORT": "29500", "TORCHELASTIC_USE_AGENT_STORE": "True"},
            ("node1", 29501),
        ),
        (
            {"SLURM_STEP_NODELIST": "gpu[07-09],cpu1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "123456"},
            ("gpu07", 20000 + 123456 % 20000),
        ),
        ({"SLURM_STEP_NODELIST": "alone", "SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": "5"}, ("alone", 20005)),
    ],
)
def test_master(environment: dict[str, str], wanted: tuple[str, int] | None) -> None:
    assert master(environment) == wanted


def test_a_port_that_is_no_number_is_named() -> None:
    with pytest.raises(DistributedError, match="MASTER_PORT='http' is not a whole number"):
        master({"MASTER_ADDR": "node1", "MASTER_PORT": "http"})


ALONE = """
import norch, norch.distributed as dist
assert dist.is_available() and not dist.is_initialized()
try:
    dist.all_reduce(norch.ones(1))
except ValueError as error:
    assert "init_process_group" in str(error)
dist.init_process_group()
try:
    dist.init_process_group()
except ValueError as error:
    assert "twice" in str(error)
x = norch.arange(3.0)
dist.all_reduce(x)
dist.broadcast(x, 0)
dist.barrier()
objects = [None]
dist.all_gather_object(objects, {"one": 1})
print(dist.get_rank(), dist.get_world_size(), dist.get_backend(), x.tolist(), objects)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)


def test_one_process_needs_no_launcher_and_no_destroy() -> None:
    pytest.importorskip("mpi4py")
    done = run(ALONE)
    assert done.stderr == ""
    assert done.stdout == "0 1 mpi [0.0, 1.0, 2.0] [{'one': 1}]\n"


def test_import_norch_imports_nothing_of_it() -> None:
    done = run(
        "import sys, norch, norch.nn, norch.optim, norch.utils.data\n"
        "assert not [n for n in sys.modules if n.startswith(('norch.distributed', 'mpi4py', 'ray', 'xmlrpc'))]\n"
        "import norch.distributed\n"
        "assert not [n for n in sys.modules if n.startswith(('mpi4py', 'ray', 'norch_cuda'))]"
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("'pigeons'", "engine 'pigeons' cannot be used. Installed engines:"),
        ("rank=1", "give both rank and world_size, or none"),
        ("rank=2, world_size=2", "rank 2 is not below world_size 2"),
        ("init_method='udp://x'", "init_method must be env://, tcp://host:port or file:///path, got 'udp://x'"),
        ("timeout=0", "a timeout must be above 0 seconds, got 0"),
        ("'cuda:mpi'", "engine 'mpi' is for cpu, not 'cuda'"),
    ],
)
def test_what_init_process_group_refuses(call: str, message: str) -> None:
    pytest.importorskip("mpi4py")
    done = run(f"import norch.distributed as dist\ndist.init_process_group({call})")
    assert message in done.stderr
