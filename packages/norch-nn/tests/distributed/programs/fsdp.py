"""`fully_shard` against one process that has the whole batch, and what it keeps in memory."""

from __future__ import annotations

import copy
import gc
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import norch
import norch.distributed as dist
import norch.distributed.device_mesh
from norch import nn, optim
from norch.distributed import fsdp
from norch.distributed.fsdp import (
    FSDPModule,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
    summon_full_params,
)
from norch.distributed.fsdp.wrap import ModuleWrapPolicy
from norch.nn import functional as F
from norch.utils.checkpoint import checkpoint

dist.init_process_group("mpi", timeout=30)
rank, size = dist.get_rank(), dist.get_world_size()
WORDS, ROWS = 12, 2


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.mixer = nn.GRU(width, width, batch_first=True)  # a Function

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        hidden = F.gelu(self.norm(x) @ self.up.weight.t() + self.up.bias)  # a view is what matmul saves
        return x + self.down(hidden) + self.mixer(x)[0]


class Net(nn.Module):
    def __init__(self, width: int = 16, depth: int = 2, again: str = "") -> None:
        super().__init__()
        norch.manual_seed(0)
        self.words = nn.Embedding(WORDS, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, WORDS, bias=False)
        nn.init.normal_(self.words.weight, std=0.1)
        self.head.weight = self.words.weight
        self.again = again

    def forward(self, text: norch.Tensor) -> norch.Tensor:
        x = self.words(text)
        for block in self.blocks:
            if self.again in ("checkpoint", "checkpoint in the graph"):
                x = checkpoint(block, x, use_reentrant=self.again == "checkpoint")
            else:
                x = block(x)
            if self.again == "twice":
                x = block(x)
        return self.head(x)


def sharded(model: nn.Module, **options: Any) -> nn.Module:
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def text(seed: int) -> tuple[norch.Tensor, norch.Tensor]:
    norch.manual_seed(seed)
    return norch.randint(0, WORDS, (ROWS * size, 3)), norch.randint(0, WORDS, (ROWS * size, 3))


def loss_of(model: nn.Module, x: norch.Tensor, y: norch.Tensor) -> norch.Tensor:
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def mine(x: norch.Tensor) -> norch.Tensor:
    return x[ROWS * rank : ROWS * (rank + 1)]


def piece(p: nn.Parameter, whole: norch.Tensor) -> norch.Tensor:
    return whole.detach().reshape(-1)[p.shard.start : p.shard.stop]


def farthest(model: nn.Module, whole: nn.Module) -> float:
    apart = [0.0]
    for p, q in zip(model.parameters(), whole.parameters(), strict=True):
        assert p.shape == (p.shard.stop - p.shard.start,)
        if p.numel():
            apart.append((p - piece(p, q)).abs().max().item())
    return max(apart)


def farthest_anywhere(model: nn.Module, whole: nn.Module | None) -> float:
    """`farthest` of all ranks, in rank 0, which has the whole model."""
    own = [(p.shard.start, p.shard.stop, p.detach()) for p in model.parameters()]
    assert [p.shape for p in model.parameters()] == [(stop - start,) for start, stop, _ in own]
    all_: list[Any] = [None] * size
    dist.all_gather_object(all_, own)
    if whole is None:
        return 0.0
    apart = [0.0]
    for pieces in all_:
        for (start, stop, values), q in zip(pieces, whole.parameters(), strict=True):
            apart += (values - q.detach().reshape(-1)[start:stop]).abs().tolist()
    return max(apart)


def sgd(parameters: Any) -> optim.Optimizer:
    return optim.SGD(parameters, lr=0.1, momentum=0.9)


def adamw(parameters: Any) -> optim.Optimizer:
    return optim.AdamW(parameters, lr=1e-2)


def train(
    make: Callable[..., optim.Optimizer] = sgd,
    dtype: norch.DType = norch.float32,
    again: str = "",
    parts: int = 1,
    prepare: Callable[[nn.Module], object] = lambda model: None,
    **options: Any,
) -> float:
    """How far parameters are from those of one process, rank 0, after a few steps."""
    model = Net(again=again).to(dtype)
    whole = copy.deepcopy(model) if rank == 0 else None
    if rank:
        nn.init.zeros_(model.words.weight)  # the values are rank 0's
    models = [model] if whole is None else [model, whole]
    for one in models:
        prepare(one)
    sharded(model, **options)
    optimizers = [make(one.parameters()) for one in models]
    for step in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        for part in range(parts):
            x, y = text(10 * step + part)
            if whole is not None:
                (loss_of(whole, x, y) / parts).backward()
            model.set_requires_gradient_sync(part == parts - 1)
            (loss_of(model, mine(x), mine(y)) / parts).backward()
        most = 1.0 if step % 2 else float("inf")
        norms = [nn.utils.clip_grad_norm_(one.parameters(), most).item() for one in models]
        assert abs(norms[0] - norms[-1]) < 1e-5 * norms[-1], norms
        for optimizer in optimizers:
            optimizer.step()
        assert not any(block._fsdp.resident for block in [model, *model.blocks])
    with norch.no_grad():
        x, y = text(99)
        losses = [loss_of(one, x, y).item() for one in models]
        assert abs(losses[0] - losses[-1]) < 1e-5
    return farthest_anywhere(model, whole)


def freeze(model: nn.Module) -> None:
    model.blocks[1].requires_grad_(False)
    model.blocks[0].up.bias.requires_grad_(False)


found = {
    "sgd": (train(), 1e-6),
    "float64": (train(dtype=norch.float64), 1e-12),
    "adamw": (train(adamw), 2e-5),
    "accumulated": (train(parts=3), 1e-6),
    "kept": (train(reshard_after_forward=False), 1e-6),
    "freed": (train(reshard_after_forward=True), 1e-6),
    "checkpoint": (train(again="checkpoint"), 1e-6),
    "checkpoint in the graph": (train(again="checkpoint in the graph"), 1e-6),
    "checkpoint, freed": (train(again="checkpoint in the graph", reshard_after_forward=True), 1e-6),
    "twice": (train(again="twice"), 1e-6),
    "frozen": (train(adamw, prepare=freeze), 2e-5),
}
for name, (apart, most) in found.items():
    assert apart <= most, (name, apart)
if rank == 0:
    print(" ".join(f"{name} {apart:.1e}" for name, (apart, _) in found.items()))


# --- Memory ---------------------------------------------------------------------------------------------------------


def in_memory() -> int:
    """Bytes behind all tensors there are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensors = [o for o in gc.get_objects() if isinstance(o, norch.Tensor) and not o.is_meta]
    return sum({id(t.buffer): t.buffer.nbytes for t in tensors}.values())


gc.collect()
gc.freeze()  # in_memory looks at what comes from here on
nothing = in_memory()
model = sharded(Net(64, 6), reshard_after_forward=True)
total = 4 * sum(p.shard.shape[0] * (p.shard.shape[1] if len(p.shard.shape) > 1 else 1) for p in model.parameters())
block = 4 * sum(p.numel() for p in Block(64).parameters())
gc.collect()
own = in_memory() - nothing
seen: list[int] = []
for part in model.blocks:
    part.norm.register_forward_hook(lambda *_: seen.append(in_memory()))
x, y = text(1)
with norch.no_grad():
    model(mine(x[:, :1]))
in_eval = max(seen) - nothing
loss = loss_of(model, mine(x[:, :1]), mine(y[:, :1]))
in_forward, between = max(seen) - nothing, in_memory() - nothing
loss.backward()
del loss
for p in model.parameters():
    p.grad = None
gc.collect()
after = in_memory() - nothing
small = 80_000  # the batch, and what the graph keeps of it
assert own <= 1.1 * total / size, (own, total)
assert after - own < small, (after, own)
assert between - own < small, (between, own)
# The model itself has the embedding; two blocks are here, and what the first was joined from.
for most in (in_eval, in_forward):
    assert most <= own + 12 * 64 * 4 + 2 * block + block // size + small, (most, own, block)
if rank == 0:
    print(
        f"parameters {own * size / total:.3f} of total / {size}; in forward shards + {(in_forward - own) / block:.2f} "
        "blocks"
    )

# --- What is not plain training -------------------------------------------------------------------------------------

# Computed in bfloat16, reduced in float32, kept in float32.
whole, model = Net(), Net()
for part in model.blocks:
    fully_shard(part, mp_policy=MixedPrecisionPolicy(norch.bfloat16, norch.float32))
fully_shard(model, mp_policy=MixedPrecisionPolicy(norch.bfloat16, norch.float32, norch.float32))
kinds = []
model.blocks[0].up.register_forward_pre_hook(lambda m, a: kinds.append(m.weight.dtype))
model.blocks[0].norm.register_forward_pre_hook(lambda m, a: kinds.append(a[0].dtype))
x, y = text(3)
out = model(mine(x))
F.cross_entropy(out.flatten(0, 1), mine(y).flatten()).backward()
loss_of(whole, x, y).backward()
assert out.dtype is norch.float32
assert kinds == [norch.bfloat16], kinds
for p, q in zip(model.parameters(), whole.parameters(), strict=True):
    assert p.dtype is p.grad.dtype is norch.float32
    assert not p.numel() or (p.grad - piece(p, q.grad)).abs().max().item() < 0.02


# A forward or a backward pass that raises leaves shards, and the next step is as if it had not been.
class Trouble(Exception):
    pass


def raise_trouble(*_: Any) -> None:
    raise Trouble


whole, model = Net(), sharded(Net())
one, all_ = sgd(whole.parameters()), sgd(model.parameters())
for where in ("forward", "backward"):
    if where == "forward":
        handle = model.blocks[1].down.register_forward_pre_hook(raise_trouble)
    else:
        handle = model.blocks[1].down.register_forward_hook(lambda m, a, out: out.register_hook(raise_trouble) and None)
    try:
        loss_of(model, mine(x), mine(y)).backward()
    except Trouble:
        assert where == "backward" or all(p.ndim == 1 for p in model.parameters())
    else:
        raise AssertionError(where)
    handle.remove()
    all_.zero_grad()
    one.zero_grad()
    loss_of(whole, x, y).backward()
    loss_of(model, mine(x), mine(y)).backward()
    one.step()
    all_.step()
    assert farthest(model, whole) < 1e-6, where

# Parameters that change between forward and backward are an error, as they are without shards.
shards = list(model.parameters())
loss = loss_of(model, mine(x), mine(y))
with norch.no_grad():
    for p in shards:
        p.mul_(0.5)
try:
    loss.backward()
except norch.AutogradError as error:
    assert "have changed since its forward pass" in str(error)
else:
    raise AssertionError
model(mine(x))
model.reshard()

# State dicts: whole tensors are cut, shards are taken as they are.
state = model.state_dict()
assert state["head.weight"].shard == state["words.weight"].shard
model.load_state_dict(whole.state_dict())
assert farthest(model, whole) == 0
model.load_state_dict(state)
model.unshard()
assert model.words.weight.shape == (WORDS, 16)
model.reshard()

# The scaler of a rank that saw no infinite gradient leaves out the step too.
scaler = norch.amp.GradScaler("cpu", init_scale=4.0)
all_.zero_grad()
scaler.scale(loss_of(model, mine(x), mine(y))).backward()
before = [p.clone() for p in model.parameters()]
holder = next(p for p in model.parameters() if p.numel())
if rank == 0:
    holder.grad.fill_(float("inf"))
scaler.step(all_)
scaler.update()
assert scaler.get_scale() == 2.0
assert all((a == b).all().item() for a, b in zip(before, model.parameters(), strict=True))

# The older form, without names of its own in the state dict, and parameters that are set as a whole.
wrapped = FullyShardedDataParallel(
    Net(),
    auto_wrap_policy=ModuleWrapPolicy({Block}),
    sharding_strategy=fsdp.ShardingStrategy.SHARD_GRAD_OP,
    mixed_precision=fsdp.MixedPrecision(reduce_dtype=norch.float64),
)
assert [isinstance(part, FSDPModule) for part in (wrapped.module, *wrapped.module.blocks)] == [True] * 3
assert wrapped.state_dict().keys() == Net().state_dict().keys()
wrapped.load_state_dict(whole.state_dict())
assert farthest(wrapped, whole) == 0
how = fsdp.FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
with FullyShardedDataParallel.state_dict_type(wrapped, fsdp.StateDictType.FULL_STATE_DICT, how):
    state = wrapped.state_dict()
assert bool(state) == (rank == 0)
assert all((value == whole.state_dict()[name]).all().item() for name, value in state.items())
wrapped(mine(x)).sum().backward()
assert wrapped.clip_grad_norm_(1.0).item() > 0
with norch.device("meta"):
    later = Net(16)
sharded(later)
assert all(p.is_meta for p in later.parameters())
later.to_empty(device="cpu")
with summon_full_params(later):
    for p in later.parameters():
        nn.init.constant_(p, rank + 1)  # rank 0's count
assert all((p == 1).all().item() for p in later.parameters())
assert loss_of(later, mine(x), mine(y)).item() > 0
later.reshard()


# Another method than forward, a result that is a dataclass, two forward passes before a backward pass, autocast.
@dataclass
class Result:
    scores: norch.Tensor


class Odd(nn.Linear):
    def forward(self, x: norch.Tensor) -> Result:
        return Result(x @ self.weight.t() + self.bias)

    def other(self, x: norch.Tensor) -> norch.Tensor:
        return F.linear(x, self.weight)


norch.manual_seed(5)
one_odd, odd = Odd(6, 4), Odd(6, 4)
odd.load_state_dict(one_odd.state_dict())
fully_shard(odd, mesh=dist.device_mesh.init_device_mesh("cpu", (size,)), reshard_after_forward=True)
register_fsdp_forward_method(odd, "other")
z = norch.randn(5, 6)
for layer in (one_odd, odd):
    first, second = layer(z), layer(z * 2)
    assert layer is one_odd or layer._fsdp.flats[0].whole is None
    with norch.autocast("cpu", norch.bfloat16):
        third = layer.other(z)
    (first.scores.sum() + second.scores.square().sum() + third.float().sum()).backward(retain_graph=True)
    first.scores.sum().backward()
for p, q in zip(odd.parameters(), one_odd.parameters(), strict=True):
    assert not p.numel() or (p.grad - piece(p, q.grad)).abs().max().item() < 1e-5

# What cannot be sharded says so.
tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
tied[1].weight = tied[0].weight
fully_shard(tied[0])
for wrong, text_ in ((lambda: fully_shard(tied), "1.weight is shared"), (lambda: fully_shard(tied[0]), "before")):
    try:
        wrong()
    except ValueError as error:
        assert text_ in str(error)
    else:
        raise AssertionError(text_)
assert isinstance(tied[0], FSDPModule)
assert isinstance(tied[0], nn.Linear)

print(f"rank {rank} of {size}: all right\n", end="")
dist.destroy_process_group()
