"""A small GPT cut three ways at once: over the batch, over its layers, and over each layer's matrices.

    mpirun -n 4 python examples/parallel_gpt.py --tensor 2 --pipeline 2
    mpirun -n 4 python examples/parallel_gpt.py --tensor 2 --data 2 --text FILE --save FOLDER
    python examples/parallel_gpt.py                            # all of it in one process: the same losses

Each process has a place in a mesh of data x pipeline x tensor. Those along "data" have the same weights and see other
texts; those along "pipeline" have other blocks and pass activations on; those along "tensor" have parts of the same
matrices. What talks most, tensor, are neighbours: put them on one host.
"""

from __future__ import annotations

import argparse
from collections import OrderedDict
from pathlib import Path

import norch
import norch.distributed as dist
import norch.nn.functional as F
from norch import nn, optim
from norch.distributed.device_mesh import DeviceMesh, init_device_mesh
from norch.distributed.pipelining import PipelineStage, Schedule1F1B
from norch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    full_state_dict,
    parallelize_module,
    vocab_parallel_cross_entropy,
)

# --- The model, which knows of no other process ---------------------------------------------------------------------


class Block(nn.Module):
    """Attention and a perceptron (Radford et al., 2019), with as many heads as `qkv` makes: a part of them will do."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        parts = self.qkv(self.before_attention(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (-1, self.head_width)).transpose(1, 2) for part in parts)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.before_mlp(x))))


class Start(nn.Module):
    """Of each byte what it means, and where it stands."""

    def __init__(self, words: int, context: int, width: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(context, width)

    def forward(self, text: norch.Tensor) -> norch.Tensor:
        return self.words(text) + self.places.weight[: text.shape[1]]


class End(nn.Module):
    """Scores of the next byte."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return self.head(self.norm(x))


WORDS = 256

PLAN = {
    "start.words": RowwiseParallel(),
    "block*.qkv": ColwiseParallel(parts=3),
    "block*.out": RowwiseParallel(),
    "block*.up": ColwiseParallel(),
    "block*.down": RowwiseParallel(),
    "end.head": ColwiseParallel(),
}
"""How each matrix is cut: between a column and a row there is nothing to say, so a block adds up twice."""

# --- One process's part of it ---------------------------------------------------------------------------------------


def build(args: argparse.Namespace, mesh: DeviceMesh) -> nn.Sequential:
    """This process's layers, and of these its part. The first weights are those of the whole model, by one seed."""
    norch.manual_seed(args.seed)
    layers: dict[str, nn.Module] = {"start": Start(WORDS, args.context, args.width)}
    layers |= {f"block{i}": Block(args.width, args.heads) for i in range(args.depth)}
    layers["end"] = End(WORDS, args.width)
    for layer in layers.values():
        for name, p in layer.named_parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=args.width**-0.5 / (args.depth if name.startswith(("out", "down")) else 1))

    whole = parallelize_module(nn.Sequential(OrderedDict(layers)), mesh["tensor"], PLAN)

    stages, at = mesh.size("pipeline"), mesh.get_local_rank("pipeline")
    if args.depth % stages:
        raise SystemExit(f"--depth {args.depth} cannot be divided among --pipeline {stages}")
    blocks = args.depth // stages
    return whole[1 + at * blocks if at else 0 : 1 + (at + 1) * blocks if at < stages - 1 else None]


def train(args: argparse.Namespace, mesh: DeviceMesh) -> None:
    model = build(args, mesh)
    data, tensor = mesh.get_group("data"), mesh.get_group("tensor")
    stage = PipelineStage(
        model, mesh.get_local_rank("pipeline"), mesh.size("pipeline"), args.device, group=mesh.get_group("pipeline")
    )
    schedule = Schedule1F1B(
        stage, args.microbatches, lambda scores, target: vocab_parallel_cross_entropy(scores, target, tensor)
    )
    optimizer = optim.AdamW(model.parameters(), lr=args.lr)

    text = norch.tensor(list(args.text.read_bytes()), dtype=norch.int64, device=args.device)
    generator = norch.Generator().manual_seed(args.seed)
    speaks = stage.is_last and mesh.get_local_rank("tensor") == mesh.get_local_rank("data") == 0
    held = sum(p.numel() for p in model.parameters())
    print(f"rank {mesh.get_rank()} at {mesh.get_coordinate()}: {held:,} parameters of {', '.join(model._modules)}")

    for step in range(1, args.steps + 1):
        # All draw the same batch; each row of the mesh takes its share.
        starts = norch.randint(0, len(text) - args.context, (args.batch, 1), generator=generator)
        mine = starts.chunk(mesh.size("data"))[mesh.get_local_rank("data")].to(args.device)
        pieces = text[mine + norch.arange(args.context + 1, device=args.device)]

        losses: list[norch.Tensor] = []
        given = [pieces[:, :-1]] if stage.is_first else []
        wanted = {"target": pieces[:, 1:], "losses": losses} if stage.is_last else {}
        optimizer.zero_grad()
        schedule.step(*given, **wanted, return_outputs=False)
        for p in model.parameters():
            dist.all_reduce(p.grad, dist.ReduceOp.AVG, group=data)
        optimizer.step()

        if stage.is_last and (step % args.every == 0 or step == 1):
            loss = norch.stack(losses).mean()
            dist.all_reduce(loss, dist.ReduceOp.AVG, group=data)
            if speaks:
                print(f"step {step}: loss {loss.item():.5f}", flush=True)

    if args.save:
        state = full_state_dict(model)  # the tensor's parts joined; each stage has blocks of its own
        if mesh.get_local_rank("tensor") == mesh.get_local_rank("data") == 0:
            args.save.mkdir(parents=True, exist_ok=True)
            norch.save(state, args.save / f"stage{stage.stage_index}.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, default=Path(__file__), help="what it learns to write; this program")
    parser.add_argument("--save", type=Path, help="a folder for the weights, a file a stage")
    parser.add_argument("--device", default="cpu")
    for name, default in {"tensor": 1, "pipeline": 1, "data": 0, "width": 64, "heads": 4, "depth": 4}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in {"context": 64, "batch": 32, "microbatches": 4, "steps": 100, "every": 20, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    dist.init_process_group()
    data = args.data or dist.get_world_size() // (args.tensor * args.pipeline)
    mesh = init_device_mesh(
        args.device, (data, args.pipeline, args.tensor), mesh_dim_names=("data", "pipeline", "tensor")
    )
    train(args, mesh)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
