"""What the launcher said in environment variables: mpirun's, torchrun's, SLURM's."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from .errors import DistributedError


class Place(NamedTuple):
    """Which process of a job this is: among all, and among those of its host."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int


_VARIABLES = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "Open MPI": (
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    # Of a step: in a batch script itself there is one process, whatever SLURM_NTASKS says.
    "SLURM": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
}  # fmt: skip
"""By launcher: rank, number of processes, and both on this host. The first launcher whose first two are set counts."""


def place(environment: Mapping[str, str] | None = None) -> Place:
    """Where the variables put this process; rank 0 of 1 without any. Raises DistributedError for what is no number."""
    found = os.environ if environment is None else environment
    for launcher, (rank, size, local_rank, local_size) in _VARIABLES.items():
        if rank in found and size in found:
            try:
                n = int(found[size])
                return Place(int(found[rank]), n, int(found.get(local_rank, 0)), int(found.get(local_size, n)))
            except ValueError:
                raise DistributedError(
                    f"init_process_group(): {rank}={found[rank]!r} and {size}={found[size]!r}, which {launcher} sets, "
                    "are not both whole numbers"
                ) from None
    return Place(0, 1, 0, 1)


def master(environment: Mapping[str, str] | None = None) -> tuple[str, int] | None:
    """Host and port of the store: MASTER_ADDR and MASTER_PORT, or in a SLURM step its first host and a port of the job.

    torchrun keeps a store of its own at MASTER_PORT; the next port is taken then. None where nothing says.
    """
    found = os.environ if environment is None else environment
    if "MASTER_ADDR" in found and "MASTER_PORT" in found:
        try:
            port = int(found["MASTER_PORT"])
        except ValueError:
            raise DistributedError(f"MASTER_PORT={found['MASTER_PORT']!r} is not a whole number") from None
        return found["MASTER_ADDR"], port + (found.get("TORCHELASTIC_USE_AGENT_STORE") == "True")
    hosts = found.get("SLURM_STEP_NODELIST")
    if hosts and "SLURM_STEP_NUM_TASKS" in found:
        first = re.match(r"([^\[,]+)(?:\[([0-9]+))?", hosts)
        if first:
            return first[1] + (first[2] or ""), 20000 + int(found.get("SLURM_JOB_ID", 0)) % 20000
    return None


def export() -> None:
    """Sets torchrun's variables, which scripts read, in a process that another launcher started."""
    found = place()
    if "RANK" not in os.environ and found.world_size > 1:
        os.environ |= {name: str(value) for name, value in zip(_VARIABLES["torchrun"], found, strict=True)}
