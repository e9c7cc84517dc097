"""Casts and residual sums beside a layer_norm become part of it, what autocast makes of a transformer's blocks, and
relus behind a batch_norm.

Each is a pass over memory of its own. What is left computes the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from ..backend.contract import Operand
from ..dispatch.kernels import compile_kernel
from ..dtype import float32
from ..ops.nn import rectified, residual  # noqa: F401  their ops are known from then on
from .calls import Call
from .epilogues import Region, Uses, is_dense, with_regions


class Cast(NamedTuple):
    """A call that casts all of `source` to `result`, both without gaps."""

    at: int
    source: Region
    result: Region


class Sum(NamedTuple):
    at: int
    result: Region
    a: Region
    b: Region


def norms(calls: Sequence[Call], temporaries: Mapping[int, int]) -> list[Call]:
    """The same calls, in which those around norms and their gradients are joined where the backend has a kernel."""
    if not any(call.op.startswith(("layer_norm", "batch_norm")) for call in calls):
        return list(calls)
    blocks = _Blocks(calls, temporaries)
    for i, call in enumerate(calls):
        if call.op == "layer_norm":
            blocks.join_forward(i)
        elif call.op == "layer_norm_grad" and call.attrs["affine"]:
            blocks.join_backward(i)
        elif call.op == "batch_norm":
            blocks.join_relu(i)
        elif call.op == "batch_norm_grad":
            blocks.join_relu_grad(i)
    found = [blocks.changed.get(i, call) for i, call in enumerate(calls)]
    return [call for call in found if call is not None]


class _Blocks:
    def __init__(self, calls: Sequence[Call], temporaries: Mapping[int, int]) -> None:
        self.calls, self.temporaries, self.uses = calls, temporaries, Uses(calls)
        self.changed: dict[int, Call | None] = {}

    def join_forward(self, i: int) -> None:
        call, access = self.calls[i], self.uses.accesses[i]
        (out,), (x, *rest) = access.writes, access.reads
        if x.operand.dtype is not float32 or not self._is_only_for(out.place, i, 1):
            return
        cast = self._cast(self.uses.touching[out.place][1])
        if cast is None or cast.source != out or self.uses.touching[cast.result.place][0] != cast.at:
            return
        writes, reads, gone = [cast.result], [x, *rest], {cast.at}
        total = self._sum_of(x, i)
        wide = None if total is None else self._cast_to(total.a, total.at) or self._cast_to(total.b, total.at)
        if total is not None and wide is not None:
            residual = total.b if wide.result == total.a else total.a
            if self._stays(wide.source, wide.at, i) and self._stays(residual, total.at, i):
                writes, reads, gone = [cast.result, x], [wide.source, residual, *rest], {cast.at, wide.at, total.at}
        given = call.attrs["given"]
        self._replace(i, "residual_norm", writes, reads, gone, {
            "shape": call.attrs["shape"], "eps": call.attrs["eps"], "dtype": cast.result.operand.dtype.name,
            "given": (True, len(writes) == 2, *given[1:]),
        })  # fmt: skip

    def join_backward(self, i: int) -> None:
        call, access = self.calls[i], self.uses.accesses[i]
        (out, *parts), (grad, x, *rest) = access.writes, access.reads
        if x.operand.dtype is not float32 or not is_dense(out.operand):
            return
        gone: set[int] = set()
        wide = self._cast_to(grad, i)
        if wide is not None and self._stays(wide.source, wide.at, i):
            grad = wide.source
            gone.add(wide.at)
        reads, written_at = [grad, x], i
        if self._is_only_for(out.place, i, 1):
            total = self._sum(self.uses.touching[out.place][1])
            if total is not None and out in (total.a, total.b) and total.a != total.b:
                residual = total.b if total.a == out else total.a
                first = self.uses.touching[total.result.place][0] == total.at
                if first and residual.operand == out.operand and self._stays(residual, i, total.at):
                    reads.append(residual)
                    out, written_at = total.result, total.at
                    gone.add(total.at)
        also = ""
        for k in self.uses.after(written_at, out.place):
            if self.uses.accesses[k].writes_to(out.place):
                break
            cast = self._cast(k)
            if cast is not None and cast.source == out and self.uses.touching[cast.result.place][0] == k:
                parts.append(cast.result)
                also = cast.result.operand.dtype.name
                gone.add(k)
                break
        if not gone:
            return
        given = call.attrs["given"]
        self._replace(i, "residual_norm_grad", [out, *parts], [*reads, *rest], gone, {
            "shape": call.attrs["shape"], "eps": call.attrs["eps"], "also": also,
            "given": (True, True, len(reads) == 3, given[2]),
        })  # fmt: skip

    def join_relu(self, i: int) -> None:
        call, access = self.calls[i], self.uses.accesses[i]
        out, *statistics = access.writes
        at = next(iter(self.uses.after(i, out.place)), i)
        relu = self.uses.accesses[at]
        if self.calls[at].op != "relu" or self.uses.touching[out.place][0] != i or not relu.is_known:
            return
        (result,), (source,) = relu.writes, relu.reads
        if not self._covers(source, out) or source.operand != result.operand:
            return
        first = i if result.place == out.place else at
        alone = result == source or len(self.uses.touching[out.place]) == 2
        if not {out.place, result.place} <= self.temporaries.keys() or not alone:
            return
        if self.uses.touching[result.place][0] == first:
            writes = [result._replace(operand=out.operand), *statistics]
            self._replace(i, "batch_norm_relu", writes, [*access.reads], {at}, dict(call.attrs))

    def join_relu_grad(self, i: int) -> None:
        call, access = self.calls[i], self.uses.accesses[i]
        masked, *rest = access.reads
        at = self.uses.touching[masked.place][0]
        relu = self.uses.accesses[at]
        if self.calls[at].op != "relu_grad" or not relu.is_known or not self._is_only_for(masked.place, at, 1):
            return
        (result,), (grad, seen) = relu.writes, relu.reads
        if not self._covers(result, masked) or not result.operand == grad.operand == seen.operand:
            return
        if self._stays(grad, at, i) and self._stays(seen, at, i):
            reads = [region._replace(operand=masked.operand) for region in (grad, seen)]
            attrs = dict(call.attrs) | {"given": (True, *call.attrs["given"])}
            self._replace(i, "batch_norm_relu_grad", [*access.writes], [*reads, *rest], {at}, attrs)

    def _covers(self, a: Region, b: Region) -> bool:
        """Whether they are the same elements, in whatever order: channels-last images are rows to batch_norm."""
        same = (a.place, a.offset, a.operand.dtype) == (b.place, b.offset, b.operand.dtype)
        sizes = prod(a.operand.shape) == prod(b.operand.shape)
        return same and sizes and is_dense(a.operand) and is_dense(b.operand)

    def _replace(
        self, i: int, op: str, writes: list[Region], reads: list[Region], gone: set[int], attrs: dict[str, Any]
    ) -> None:
        if not gone.isdisjoint(self.changed):
            return
        call, regions = self.calls[i], [*writes, *reads]
        operands: tuple[Operand, ...] = tuple([region.operand for region in regions])
        kernel = compile_kernel(op, call.device, operands, attrs, False)
        if kernel is None:
            return
        self.changed.update(dict.fromkeys(gone))
        self.changed[i] = with_regions(call._replace(op=op, attrs=attrs, kernel=kernel), regions)

    # --- What a call is -----------------------------------------------------------------------------------------------

    def _cast(self, at: int) -> Cast | None:
        """The call as a cast from float32 to 16 bits, or back, of memory of the step's own."""
        call, access = self.calls[at], self.uses.accesses[at]
        if call.op != "copy" or not access.reads or not access.is_known:
            return None
        (result,), (source,) = access.writes, access.reads
        both = source.operand.dtype, result.operand.dtype
        if float32 not in both or both[0] is both[1] or not all(d.is_floating_point and d.itemsize <= 4 for d in both):
            return None
        if not self._lie_alike(source, result) or result.place not in self.temporaries:
            return None
        return Cast(at, source, result)

    def _sum(self, at: int) -> Sum | None:
        """The call as a sum of two tensors of float32, none of them broadcast."""
        call, access = self.calls[at], self.uses.accesses[at]
        if call.op != "add" or len(access.reads) != 2 or len(call.operands) != 3 or not access.is_known:
            return None
        (result,), (a, b) = access.writes, access.reads
        if result.operand.dtype is not float32 or not (self._lie_alike(a, result) and self._lie_alike(b, result)):
            return None
        return Sum(at, result, a, b)

    def _lie_alike(self, a: Region, b: Region) -> bool:
        same = (a.operand.shape, a.operand.strides) == (b.operand.shape, b.operand.strides)
        return same and is_dense(a.operand) and a.place != b.place

    # --- What it may be joined to -------------------------------------------------------------------------------------

    def _cast_to(self, region: Region, i: int) -> Cast | None:
        """The cast that makes `region`, which call i alone reads."""
        touching = self.uses.touching[region.place]
        if region.place not in self.temporaries or len(touching) != 2 or touching[1] != i:
            return None
        cast = self._cast(touching[0])
        return cast if cast is not None and cast.result == region and cast.source.operand.dtype.itemsize == 2 else None

    def _sum_of(self, region: Region, i: int) -> Sum | None:
        """The sum that makes `region`, which nothing touches before call i."""
        touching = self.uses.touching[region.place]
        total = self._sum(touching[0]) if touching[1:2] == [i] else None
        return total if total is not None and total.result == region else None

    def _is_only_for(self, place: int, i: int, readers: int) -> bool:
        """Whether a place is the step's own, and call i the first that touches it, before so many others."""
        touching = self.uses.touching[place]
        return place in self.temporaries and touching[0] == i and len(touching) == 1 + readers

    def _stays(self, region: Region, begin: int, end: int) -> bool:
        """Whether nothing writes to the place after call `begin` and before call `end`."""
        between = [k for k in self.uses.touching[region.place] if begin < k < end]
        return not any(self.uses.accesses[k].writes_to(region.place) for k in between)
