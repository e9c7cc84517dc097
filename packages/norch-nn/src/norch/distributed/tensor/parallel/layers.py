"""Layers of which each process has a part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import norch
import norch.nn.functional as F
from norch import Tensor, nn

from ... import collectives
from ...nn import functional as D
from ...world import get_rank, get_world_size
from .. import Placement, Replicate, Shard
from . import regions


@dataclass
class Cut:
    """How a parameter, whose attribute `cut` this is, is cut: along `dim`, over `group`, each of the `parts` that it is
    made of by itself."""

    dim: int
    group: Any
    parts: int = 1

    def part(self, whole: Tensor) -> Tensor:
        """This process's part. Raises ShapeError where it cannot be cut evenly."""
        n, size = whole.shape[self.dim], get_world_size(self.group)
        if n % (self.parts * size):
            raise norch.ShapeError(
                f"dim {self.dim} of {tuple(whole.shape)}, of {self.parts} part(s), cannot be cut among {size} processes"
            )
        cut = regions.own_part(whole.unflatten(self.dim, (self.parts, n // self.parts)), self.dim + 1, self.group)
        return cut.flatten(self.dim, self.dim + 1).clone()

    def whole(self, part: Tensor) -> Tensor:
        """All processes' parts joined, in each of them."""
        n = part.shape[self.dim] // self.parts
        found = D.all_gather_tensor(part.detach().unflatten(self.dim, (self.parts, n)), self.dim + 1, self.group)
        return found.flatten(self.dim, self.dim + 1)

    def all_reduce(self, value: Tensor, op: str) -> Tensor:
        """A value that each process has found of its own part, made that of the whole."""
        return D.all_reduce(value, op, self.group)


class Cutter:
    """Cuts parameters, one that several modules share only once. src: the member whose values count; None: its own."""

    def __init__(self, group: Any, src: int | None) -> None:
        self.group, self.src = group, src
        self.done: dict[int, tuple[nn.Parameter, nn.Parameter, Cut]] = {}

    def __call__(self, module: CutLayer, name: str, whole: nn.Parameter | None, dim: int, parts: int = 1) -> None:
        if whole is None:
            module.register_parameter(name, None)
            return
        cut = Cut(dim, self.group, parts)
        if id(whole) in self.done:
            if self.done[id(whole)][2] != cut:
                raise ValueError(
                    f"{name} of shape {tuple(whole.shape)} is shared by modules that the plan cuts in different ways"
                )
        else:
            data = self.replicated(whole)
            local = nn.Parameter(cut.part(data), requires_grad=whole.requires_grad)
            local.cut = cut  # type: ignore[attr-defined]
            self.done[id(whole)] = whole, local, cut
        module.register_parameter(name, self.done[id(whole)][1])
        module.cuts[name] = cut

    def replicated(self, whole: Tensor) -> Tensor:
        """The values of the member `src`."""
        data = whole.detach()
        if self.src is not None and data.device.type != "meta":
            collectives.broadcast(data, group=self.group, group_src=self.src)
        return data


class CutLayer(nn.Module):
    """A layer with `cuts`: by a parameter's name, how it is cut."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group
        self.cuts: dict[str, Cut] = {}


class ColumnLinear(CutLayer):
    """A Linear of which each process has some outputs: rows of its weight, and their biases."""

    def __init__(self, linear: nn.Linear, cutter: Cutter, given: Placement, gives: Placement, parts: int) -> None:
        super().__init__(cutter.group)
        self.given, self.gives = given, gives
        cutter(self, "weight", linear.weight, 0, parts)
        cutter(self, "bias", linear.bias, 0, parts)
        self.out_features, self.in_features = self.weight.shape

    def forward(self, input: Tensor) -> Tensor:
        if isinstance(self.given, Shard):
            input = D.all_gather_tensor(input, self.given.dim, self.group)
        else:
            input = regions.enter(input, self.group)
        out = F.linear(input, self.weight, self.bias)
        return out if isinstance(self.gives, Shard) else regions.join(out, -1, self.group)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features} of {get_world_size(self.group)} parts"


class RowLinear(CutLayer):
    """A Linear of which each process has some inputs: columns of its weight. The bias is replicated."""

    def __init__(self, linear: nn.Linear, cutter: Cutter, given: Placement, gives: Placement) -> None:
        super().__init__(cutter.group)
        self.given, self.gives = given, gives
        cutter(self, "weight", linear.weight, 1)
        self.register_parameter("bias", linear.bias)
        if linear.bias is not None:
            cutter.replicated(linear.bias)
        self.out_features, self.in_features = self.weight.shape

    def forward(self, input: Tensor) -> Tensor:
        if isinstance(self.given, Replicate):
            input = regions.part(input, -1, self.group)
        return self.finish(F.linear(input, self.weight))

    def finish(self, out: Tensor) -> Tensor:
        """Adds up what the processes have made of their inputs, and the bias."""
        out = added(out, self.gives, self.group)
        if self.bias is None:
            return out
        # Of a cut sequence each process adds it to other positions.
        return out + (regions.enter(self.bias, self.group) if isinstance(self.gives, Shard) else self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features} of {get_world_size(self.group)} parts, out_features={self.out_features}"


class RowEmbedding(CutLayer):
    """An Embedding of which each process has some rows: those of other processes count 0 in the sum."""

    def __init__(self, table: nn.Embedding, cutter: Cutter, gives: Placement) -> None:
        super().__init__(cutter.group)
        _plain(table)
        self.gives = gives
        cutter(self, "weight", table.weight, 0)
        self.num_embeddings, self.embedding_dim = self.weight.shape
        self.start = self.num_embeddings * get_rank(self.group)
        at = -1 if table.padding_idx is None else table.padding_idx - self.start
        self.padding_idx = at if 0 <= at < self.num_embeddings else None

    def forward(self, input: Tensor) -> Tensor:
        here = (input >= self.start) & (input < self.start + self.num_embeddings)
        rows = F.embedding((input - self.start) * here, self.weight, self.padding_idx)
        return added(rows * here.unsqueeze(-1).to(rows.dtype), self.gives, self.group)


class ColumnEmbedding(CutLayer):
    """An Embedding of which each process has some columns."""

    def __init__(self, table: nn.Embedding, cutter: Cutter, gives: Placement) -> None:
        super().__init__(cutter.group)
        _plain(table)
        self.gives, self.padding_idx = gives, table.padding_idx
        cutter(self, "weight", table.weight, 1)
        self.num_embeddings, self.embedding_dim = self.weight.shape

    def forward(self, input: Tensor) -> Tensor:
        out = F.embedding(input, self.weight, self.padding_idx)
        return out if isinstance(self.gives, Shard) else regions.join(out, -1, self.group)


def _plain(table: nn.Embedding) -> None:
    if table.max_norm is not None or table.scale_grad_by_freq:
        raise ValueError("an Embedding with max_norm or scale_grad_by_freq cannot be cut")


def added(out: Tensor, gives: Placement, group: Any) -> Tensor:
    """The sum over the processes: whole, or cut along a dim."""
    if isinstance(gives, Shard):
        return D.reduce_scatter_tensor(out, gives.dim, group=group)
    return regions.leave(out, group)
