"""Ray's workers become the processes of norch.distributed when they start, and leave it when they end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

import ray
from ray.train.backend import Backend, BackendConfig

import norch
from norch import distributed

from .prepare import get_device

PARTING = 15.0
"""Seconds that workers have to leave in order. One that died or hangs does not keep the others from being restarted."""


@dataclass
class NorchConfig(BackendConfig):
    """How the workers are connected.

    backend: as in init_process_group; by default MPI for tensors on the CPU, and with GPUs NCCL besides.
    timeout_s: seconds that a collective may take.
    """

    backend: str | None = None
    timeout_s: float = 600.0

    @property
    def backend_cls(self) -> type[Backend]:
        return _NorchBackend

    @property
    def train_func_context(self) -> Callable[[], AbstractContextManager[None]]:
        return _on_device

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@contextmanager
def _on_device() -> Iterator[None]:
    """Within it "cuda" is this worker's GPU."""
    device = get_device()
    if device.type == "cuda":
        norch.cuda.set_device(device)
    yield


class _NorchBackend(Backend):
    share_cuda_visible_devices = True

    def on_start(self, worker_group: Any, backend_config: NorchConfig) -> None:
        names = backend_config.backend
        if names is None:
            gpus = worker_group.get_resources_per_worker().get("GPU", 0)
            names = "cpu:mpi,cuda:nccl" if gpus else "cpu:mpi"
        address = worker_group.execute_single(0, _serve)
        size = len(worker_group)
        ray.get(
            [
                worker_group.execute_single_async(i, _join, i, size, address, names, backend_config.timeout_s)
                for i in range(size)
            ]
        )

    def on_shutdown(self, worker_group: Any, backend_config: NorchConfig) -> None:
        leaving = worker_group.execute_async(_leave)
        ray.wait(leaving, num_returns=len(leaving), timeout=PARTING)


_store: distributed.TCPStore | None = None


def _serve() -> tuple[str, int]:
    """In worker 0: the store of the job. Its host and port."""
    global _store
    _store = distributed.TCPStore(ray.util.get_node_ip_address(), 0, is_master=True)
    return _store.host, _store.port


def _join(rank: int, size: int, address: tuple[str, int], backend: str, timeout: float) -> None:
    context = ray.train.get_context()
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_RANK=str(context.get_local_rank()),
        LOCAL_WORLD_SIZE=str(context.get_local_world_size()),
        NODE_RANK=str(context.get_node_rank()),
        MASTER_ADDR=address[0],
        MASTER_PORT=str(address[1]),
    )
    store = _store if rank == 0 else distributed.TCPStore(*address, size, timeout=timeout)
    distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)


def _leave() -> None:
    """Where another worker is gone this ends within the time that it has; what is left then ends with the process."""
    world = distributed.group.WORLD
    if world is not None:
        world.timeout = min(world.timeout, PARTING / 3)
        with suppress(distributed.DistributedError):
            distributed.destroy_process_group()
