"""Processes in a grid with named dims: one for copies of the model that see other data, one for parts of a layer, …"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import norch

from .process_group import ProcessGroup
from .world import (
    get_process_group_ranks,
    get_rank,
    get_world_size,
    init_process_group,
    is_initialized,
    new_group,
    world,
)


class DeviceMesh:
    """Ranks in an array of any number of dims, with a process group along each of them.

    All processes make it, together. `mesh["tp"]` is the part of it along a dim that this process is in,
    `mesh["dp", "tp"]` along two. `mesh` holds the ranks: a tensor, or nested lists.

    device_type: what its groups are for, "cpu" or "cuda". mesh_dim_names: the names of its dims. Raises ValueError
    unless these are different and one for each dim, and for a rank that is in it twice.
    """

    def __init__(
        self, device_type: str, mesh: Any, *, mesh_dim_names: Sequence[str] | None = None, _groups: Any = None
    ) -> None:
        self.device_type = device_type
        self.mesh = norch.as_tensor(mesh, dtype=norch.int64)
        names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        if names is not None and (len(names) != self.mesh.ndim or len(set(names)) < len(names)):
            raise ValueError(f"DeviceMesh: {self.mesh.ndim} dims need as many different names, got {names}")
        self.mesh_dim_names = names
        ranks = self.mesh.flatten().tolist()
        if len(set(ranks)) < len(ranks):
            raise ValueError(f"DeviceMesh: each rank may be in it once, got {self.mesh.tolist()}")
        here = (self.mesh == get_rank()).nonzero().tolist()
        self._coordinate: list[int] | None = here[0] if here else None
        self._groups: list[Any] = [self._group_along(dim) for dim in range(self.ndim)] if _groups is None else _groups

    def _group_along(self, dim: int) -> Any:
        """This process's group along `dim`, out of those that all processes make, in one order."""
        if self.mesh.flatten().tolist() == list(range(get_world_size())) and self.shape[dim] == get_world_size():
            return world()
        mine = None
        for ranks in self.mesh.movedim(dim, -1).reshape(-1, self.shape[dim]).tolist():
            made = new_group(ranks)
            mine = made if get_rank() in ranks else mine
        return mine

    @property
    def ndim(self) -> int:
        """The number of its dims."""
        return self.mesh.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """How many processes there are along each dim."""
        return tuple(self.mesh.shape)

    def size(self, mesh_dim: int | str | None = None) -> int:
        """The number of processes, along `mesh_dim` (a number or a name) or of all."""
        return self.mesh.numel() if mesh_dim is None else self.shape[self._dim(mesh_dim)]

    def _dim(self, dim: int | str) -> int:
        if isinstance(dim, int):
            if not -self.ndim <= dim < self.ndim:
                raise IndexError(f"DeviceMesh: there is no dim {dim}, it has {self.ndim}")
            return dim % self.ndim
        if dim not in (self.mesh_dim_names or ()):
            raise KeyError(f"DeviceMesh: no dim is called {dim!r}; they are {self.mesh_dim_names}")
        return (self.mesh_dim_names or ()).index(dim)

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The mesh along the dims of these names, through this process."""
        chosen = [names] if isinstance(names, str) else list(names)
        dims = [self._dim(name) for name in chosen]
        if sorted(set(dims)) != dims:
            raise KeyError(f"DeviceMesh: dims are named once, and in their order {self.mesh_dim_names}; got {names}")
        at = self._here()
        part = self.mesh[tuple(slice(None) if d in dims else at[d] for d in range(self.ndim))]
        return DeviceMesh(self.device_type, part, mesh_dim_names=chosen, _groups=[self._groups[d] for d in dims])

    def _here(self) -> list[int]:
        if self._coordinate is None:
            raise ValueError(f"DeviceMesh: rank {get_rank()} is not in {self!r}")
        return self._coordinate

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The process group along `mesh_dim` (a number or a name), which a mesh of one dim need not be told.

        Raises ValueError where it must be, and where this process is not in the mesh.
        """
        if mesh_dim is None and self.ndim != 1:
            raise ValueError(f"DeviceMesh.get_group(): name one of its {self.ndim} dims {self.mesh_dim_names or ''}")
        self._here()
        group: ProcessGroup = self._groups[self._dim(mesh_dim or 0)]
        return group

    def get_all_groups(self) -> list[ProcessGroup]:
        """The process group along each dim. Raises ValueError where this process is not in the mesh."""
        return [self.get_group(dim) for dim in range(self.ndim)]

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Where this process is along `mesh_dim`, from 0. Raises ValueError as get_group does."""
        if mesh_dim is None and self.ndim != 1:
            raise ValueError(f"DeviceMesh.get_local_rank(): name one of its dims {self.mesh_dim_names or ''}")
        return self._here()[self._dim(mesh_dim or 0)]

    def get_coordinate(self) -> list[int] | None:
        """Where this process is along each dim; None where it is not in the mesh."""
        return None if self._coordinate is None else list(self._coordinate)

    def get_rank(self) -> int:
        """The rank of this process in the job."""
        return get_rank()

    @staticmethod
    def from_group(
        group: ProcessGroup, device_type: str, mesh: Any = None, *, mesh_dim_names: Sequence[str] | None = None
    ) -> DeviceMesh:
        """The mesh of one dim that a group is. device_type, mesh_dim_names: as of the class."""
        return DeviceMesh(device_type, get_process_group_ranks(group), mesh_dim_names=mesh_dim_names, _groups=[group])

    def __repr__(self) -> str:
        names = f", mesh_dim_names={self.mesh_dim_names}" if self.mesh_dim_names else ""
        return f"DeviceMesh({self.device_type!r}, {self.mesh.tolist()}{names})"


def init_device_mesh(
    device_type: str, mesh_shape: Sequence[int], *, mesh_dim_names: Sequence[str] | None = None
) -> DeviceMesh:
    """All processes of the job as a mesh: ranks in order, the last dim running fastest. Put there what talks most.

    device_type: what its groups are for, "cpu" or "cuda". mesh_dim_names: the names of its dims. Raises ValueError
    unless the product of `mesh_shape` is the number of processes.
    """
    if not is_initialized():
        init_process_group()
    shape = tuple(mesh_shape)
    total = 1
    for n in shape:
        total *= n
    if total != get_world_size():
        raise ValueError(f"init_device_mesh(): a mesh of {shape} has {total} processes, the job {get_world_size()}")
    return DeviceMesh(device_type, norch.arange(total).reshape(shape), mesh_dim_names=mesh_dim_names)
