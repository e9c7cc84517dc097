"""Gradients through collectives, beside finite differences of the sum of all ranks' losses; and a mesh."""

import sys
from unittest import TestCase

import norch
import norch.distributed as dist
import norch.distributed.nn.functional as D
from norch.distributed.device_mesh import DeviceMesh, init_device_mesh

raises = TestCase().assertRaisesRegex  # pytest takes as long to import as norch.nn

dist.init_process_group(timeout=30)
rank, size = dist.get_rank(), dist.get_world_size()
N = 2 * size


def part(out):
    """What a rank makes of results, different in each of them, as its loss."""
    out = norch.cat([t.reshape(-1) for t in out]) if isinstance(out, tuple) else out.reshape(-1)
    return ((out * (1 + rank + norch.arange(out.numel(), dtype=norch.float64))) ** 2).sum()


SIZES_IN = [1 + (rank + i) % 2 for i in range(size)]
SIZES_OUT = [1 + (rank + i) % 2 for i in range(size)]
CASES = {
    "all_reduce": lambda x: D.all_reduce(x),
    "all_reduce avg": lambda x: D.all_reduce(x, dist.ReduceOp.AVG),
    "all_reduce max": lambda x: D.all_reduce(x, dist.ReduceOp.MAX),
    "reduce": lambda x: D.reduce(x, size - 1) if rank == size - 1 else D.reduce(x, size - 1) * 0.0,
    "broadcast": lambda x: D.broadcast(x, size - 1),
    "all_gather": lambda x: D.all_gather(x),
    "all_gather_tensor": lambda x: D.all_gather_tensor(x, 1),
    "reduce_scatter": lambda x: D.reduce_scatter(None, x.split(2)),
    "reduce_scatter_tensor": lambda x: D.reduce_scatter_tensor(x.t(), 1),
    "gather": lambda x: D.gather(x, 1),
    "scatter": lambda x: D.scatter(x.split(2), 1),
    "all_to_all": lambda x: D.all_to_all([norch.empty(2, 3)] * size, x.split(2)),
    "all_to_all_single": lambda x: D.all_to_all_single(None, x[: sum(SIZES_IN)], SIZES_OUT, SIZES_IN),
    "again": lambda x: norch.autograd.grad((D.all_reduce(x) ** 3).sum(), x, create_graph=True)[0],
}


def total(f, x):
    loss = part(f(x.requires_grad_())).detach().clone()
    dist.all_reduce(loss)
    return loss.item()


for name, f in CASES.items():
    norch.manual_seed(rank)
    x = norch.randn(N, 3, dtype=norch.float64)
    leaf = x.clone().requires_grad_()
    part(f(leaf)).backward()
    for owner in range(size):  # finite differences of two elements of each rank's tensor
        for at in ((0, 0), (1, 2)):
            values = []
            for step in (1e-5, -1e-5):
                moved = x.clone()
                if rank == owner:
                    moved[at] += step
                values.append(total(f, moved))
            if rank == owner:
                found, expected = leaf.grad[at].item(), (values[0] - values[1]) / 2e-5
                assert abs(found - expected) <= 1e-5 * max(1, abs(expected)), (name, found, expected)

for op in ("all_reduce", "reduce_scatter_tensor"):
    out = getattr(D, op)(norch.ones(N, requires_grad=True), op=dist.ReduceOp.PRODUCT)
    with raises(NotImplementedError, "has no gradient"):
        out.sum().backward()

# --- A mesh ---------------------------------------------------------------------------------------------------------

mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("dp", "tp"))
assert (mesh.shape, mesh.ndim, mesh.size(), mesh.size("tp"), mesh.size(0)) == ((2, size // 2), 2, size, size // 2, 2)
assert mesh.get_coordinate() == [rank // (size // 2), rank % (size // 2)]
assert mesh["tp"].get_local_rank() == mesh.get_local_rank("tp") == rank % (size // 2)
assert dist.get_process_group_ranks(mesh.get_group("dp")) == [rank % (size // 2), rank % (size // 2) + size // 2]
assert mesh["dp"].get_group() is mesh.get_group(0)
assert mesh["dp", "tp"].mesh.tolist() == mesh.mesh.tolist()
value = norch.tensor([float(rank)])
dist.all_reduce(value, group=mesh.get_group("tp"))
assert value.item() == sum(mesh["tp"].mesh.tolist())
flat = init_device_mesh("cpu", (size,))
assert flat.get_group() is dist.group.WORLD
assert flat.get_local_rank() == rank
assert DeviceMesh.from_group(mesh.get_group("dp"), "cpu").mesh.tolist() == mesh["dp"].mesh.tolist()
for wrong, kind in (
    (lambda: init_device_mesh("cpu", (size, 2)), ValueError),
    (lambda: mesh["pp"], KeyError),
    (lambda: mesh["tp", "dp"], KeyError),
    (lambda: mesh.get_group(), ValueError),
    (lambda: mesh.get_group(2), IndexError),
):
    with raises(kind, "(?i)mesh"):
        wrong()

sys.stdout.write(f"rank {rank}: gradients of {len(CASES)} collectives are right\n")
dist.destroy_process_group()
