"""A small GPT cut over all ranks, beside the whole one that each rank has too, in float64."""

import copy
import sys
from fnmatch import fnmatch
from unittest import TestCase

import norch
import norch.distributed as dist
import norch.nn.functional as F
from norch import nn
from norch.distributed.device_mesh import init_device_mesh
from norch.distributed.fsdp import fully_shard
from norch.distributed.tensor import Replicate, Shard
from norch.distributed.tensor.parallel import (
    ColwiseParallel,
    HeadwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    full_state_dict,
    load_full_state_dict,
    parallelize_module,
    vocab_parallel_cross_entropy,
)

raises = TestCase().assertRaisesRegex  # pytest takes as long to import as norch.nn

dist.init_process_group(timeout=30)
rank, size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("tp",))
WORDS, WIDTH, HEADS, LENGTH = 24, 16, 4, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (
            t.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            for t in self.qkv(self.before_attention(x)).chunk(3, -1)
        )
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.before_mlp(x))))


class GPT(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, text):
        x = self.words(text) + self.places(norch.arange(text.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


BLOCK = {
    "blocks.*.qkv": ColwiseParallel(parts=3),
    "blocks.*.out": RowwiseParallel(),
    "blocks.*.up": ColwiseParallel(),
    "blocks.*.down": RowwiseParallel(),
}
CUT = Shard(1)  # the sequence
PLANS = {
    "block": (False, BLOCK),
    "vocabulary": (True, BLOCK | {"words": RowwiseParallel(), "head": ColwiseParallel()}),
    "joined": (
        False,
        BLOCK
        | {"words": ColwiseParallel(output_layouts=Replicate()), "head": ColwiseParallel(output_layouts=Replicate())},
    ),
    "sequence": (
        True,
        {
            "words": RowwiseParallel(output_layouts=CUT),
            "places": RowwiseParallel(output_layouts=Shard(0)),
            "blocks.*.before_*": SequenceParallel(),
            "blocks.*.qkv": ColwiseParallel(parts=3, input_layouts=CUT),
            "blocks.*.out": RowwiseParallel(output_layouts=CUT),
            "blocks.*.up": ColwiseParallel(input_layouts=CUT),
            "blocks.*.down": RowwiseParallel(output_layouts=CUT),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=CUT),
        },
    ),
}  # fmt: skip


def close(found, expected, what):
    error = (found - expected).abs().max().item()
    assert error <= 1e-12 * max(1.0, expected.abs().max().item()), (what, error)


norch.manual_seed(1)
text = norch.randint(0, WORDS, (3, LENGTH + 1))
text, target = text[:, :-1], text[:, 1:].clone()
target[0, 0] = -100
for name, (tied, plan) in PLANS.items():
    whole = GPT(tied).double()
    cut = parallelize_module(copy.deepcopy(whole), mesh["tp"], plan)
    expected = F.cross_entropy(whole(text).flatten(0, 1), target.flatten())
    expected.backward()
    scores = cut(text)
    if scores.shape[-1] < WORDS:
        loss = vocab_parallel_cross_entropy(scores, target, mesh.get_group("tp"))
    else:
        loss = F.cross_entropy(scores.flatten(0, 1), target.flatten())
    loss.backward()
    close(loss, expected, (name, "loss"))
    assert norch.equal(copy.deepcopy(cut)(text), scores)

    state = full_state_dict(cut)
    assert list(state) == list(whole.state_dict())
    for key, value in whole.state_dict().items():
        assert norch.equal(state[key], value), (name, key)
    norms = [nn.utils.clip_grad_norm_(model.parameters(), 0.5) for model in (whole, cut)]
    close(norms[1], norms[0], (name, "norm"))
    # Gradients, gathered as the state is.
    for p in {id(p): p for p in cut.parameters()}.values():
        p.data.copy_(p.grad)
    gradients = full_state_dict(cut)
    for key, p in whole.named_parameters():
        close(gradients[key], p.grad, (name, key))

    # One step of an optimiser from a state that is loaded.
    load_full_state_dict(cut, whole.state_dict())
    with norch.no_grad():
        for p in {id(p): p for p in cut.parameters()}.values():
            p -= 0.1 * p.grad
        for p in whole.parameters():
            p -= 0.1 * p.grad
        state = full_state_dict(cut)
        found = norch.cat([state[key].flatten() for key in whole.state_dict()])
        close(found, norch.cat([v.flatten() for v in whole.state_dict().values()]), (name, "step"))

    for key, p in cut.named_parameters():
        style = next((s for pattern, s in plan.items() if fnmatch(key, f"{pattern}.*")), None)
        whole_here = style is None or isinstance(style, SequenceParallel)
        whole_here |= isinstance(style, RowwiseParallel) and key.endswith("bias")
        assert p.numel() * (1 if whole_here else size) == whole.get_parameter(key).numel(), (name, key)

# The weights of rank 0 count, whatever others have.
norch.manual_seed(rank)
linear = nn.Linear(4, 2 * size).double()
parts = full_state_dict(parallelize_module(copy.deepcopy(linear), mesh, ColwiseParallel()))
dist.broadcast(linear.weight.data, 0)
assert norch.equal(parts["weight"], linear.weight)
x = norch.randn(2, 4, dtype=norch.float64)
row = parallelize_module(copy.deepcopy(linear).requires_grad_(False), mesh, RowwiseParallel(input_layouts=Replicate()))
dist.broadcast(x, 0)
dist.broadcast(linear.bias.data, 0)
close(row(x), linear(x), "row")

# A block that is given a cut sequence and returns one, by what stands around it.
norch.manual_seed(3)
whole = Block().double()
plan = {key.removeprefix("blocks.*."): style for key, style in BLOCK.items()}
cut = parallelize_module(copy.deepcopy(whole), mesh, plan)
parallelize_module(cut, mesh, PrepareModuleInput(input_layouts=CUT, desired_input_layouts=Replicate()))
parallelize_module(cut, mesh, PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=CUT))
x = norch.randn(2, LENGTH, WIDTH, dtype=norch.float64, requires_grad=True)
part = x.detach().chunk(size, 1)[rank].requires_grad_()
(whole(x) ** 2).sum().backward()
(cut(part) ** 2).sum().backward()
close(part.grad, x.grad.chunk(size, 1)[rank], "prepared")

# What is cut is shared out over the batch's processes besides.
grid = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("data", "tensor"))
norch.manual_seed(5)
whole = GPT(True).double()
cut = parallelize_module(copy.deepcopy(whole), grid["tensor"], PLANS["sequence"][1])
for block in cut.blocks:
    fully_shard(block, mesh=grid["data"])
fully_shard(cut, mesh=grid["data"])
optimizers = [norch.optim.SGD(model.parameters(), lr=0.5) for model in (whole, cut)]
text, target = text.repeat(2, 1)[:4], target.abs().clamp(max=WORDS - 1).repeat(2, 1)[:4]
for step in range(3):
    mine = slice(2 * grid.get_local_rank("data"), 2 * grid.get_local_rank("data") + 2)
    expected = F.cross_entropy(whole(text).flatten(0, 1), target.flatten())
    loss = vocab_parallel_cross_entropy(cut(text[mine]), target[mine], grid.get_group("tensor"))
    norms = []
    for model, value, optimizer in zip((whole, cut), (expected, loss), optimizers, strict=True):
        optimizer.zero_grad()
        value.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5))
        optimizer.step()
    total = loss.detach()
    dist.all_reduce(total, dist.ReduceOp.AVG)
    close(total, expected, ("fully_shard", step))
    close(norms[1], norms[0], ("fully_shard", "norm", step))
state = full_state_dict(cut)
for key, value in whole.state_dict().items():
    close(state[key], value, ("fully_shard", key))

# Attention as PyTorch's layers have it.
norch.manual_seed(6)
whole = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, dropout=0.0, batch_first=True).double()
plan = {"self_attn": HeadwiseParallel(), "linear1": ColwiseParallel(), "linear2": RowwiseParallel()}
cut = parallelize_module(copy.deepcopy(whole), mesh, plan)
x = norch.randn(3, LENGTH, WIDTH, dtype=norch.float64)
causal = nn.Transformer.generate_square_subsequent_mask(LENGTH).double()
for model in (whole, cut):
    (model(x, src_mask=causal) ** 2).sum().backward()
close(cut(x, src_mask=causal), whole(x, src_mask=causal), "encoder")
for p in cut.parameters():
    p.data.copy_(p.grad)
gradients = full_state_dict(cut)
for key, p in whole.named_parameters():
    close(gradients[key], p.grad, ("encoder", key))
for options in ({}, {"add_bias_kv": True, "add_zero_attn": True}, {"kdim": 6, "vdim": 10, "bias": False}):
    whole = nn.MultiheadAttention(WIDTH, HEADS, **options).double()
    cut = parallelize_module(copy.deepcopy(whole), mesh, HeadwiseParallel())
    assert sorted(full_state_dict(cut)) == sorted(whole.state_dict())
    query, key, value = (norch.randn(5, 2, n, dtype=norch.float64) for n in (WIDTH, whole.kdim, whole.vdim))
    each = norch.randn(2 * HEADS, 5, 5, dtype=norch.float64)
    for average in (True, False):
        found = cut(query, key, value, attn_mask=each, average_attn_weights=average)
        expected = whole(query, key, value, attn_mask=each, average_attn_weights=average)
        close(found[0], expected[0], options)
        close(found[1], expected[1], options)

with raises(norch.ShapeError, f"cannot be cut among {size} processes"):
    parallelize_module(nn.Linear(4, 2 * size + 1), mesh, ColwiseParallel())
with raises(ValueError, r"words.weight is shared with a module that was cut"):
    parallelize_module(GPT(True), mesh, {"head": ColwiseParallel()})
with raises(ValueError, "is shared by modules that the plan cuts in different ways"):
    parallelize_module(GPT(True), mesh, {"head": ColwiseParallel(), "words": ColwiseParallel()})
with raises(NotImplementedError, "norch has no DTensor"):
    ColwiseParallel(use_local_output=False)
with raises(TypeError, r"got MultiheadAttention; HeadwiseParallel cuts that"):
    parallelize_module(nn.MultiheadAttention(4, 2), mesh, ColwiseParallel())
with TestCase().assertWarnsRegex(UserWarning, "no module is called 'blocks.up'"):
    parallelize_module(GPT(False), mesh, {"blocks.up": ColwiseParallel()})

sys.stdout.write(f"rank {rank}: {len(PLANS)} plans equal the whole model\n")
dist.destroy_process_group()
