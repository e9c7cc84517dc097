"""Work that a recorded list shows to be needless is left out of it; what is left computes the same bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ..backend.contract import ELEMENTWISE, IN_PLACE, PRIMITIVES, TWO_OUTPUTS, Kernel, Operand, Place
from ..dispatch.kernels import compile_kernel
from ..dispatch.op import Op, all_ops
from ..dtype import BOOL
from .calls import Call

if TYPE_CHECKING:
    from .recording import Compiled

SMALL = 65536
"""Bytes of a result that may be kept for a later call that would compute it again."""


class Region(NamedTuple):
    """What a call's tensor operand is: elements of a place."""

    place: int
    offset: int
    operand: Operand


class Access(NamedTuple):
    """What a call writes and what it reads. is_known: it writes all of its outputs and reads none of them; else all its
    operands count as both."""

    writes: tuple[Region, ...]
    reads: tuple[Region, ...]
    is_known: bool

    def writes_to(self, place: int) -> bool:
        return any(region.place == place for region in self.writes)


class Uses:
    """Which calls of a list touch a place."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.accesses = [access(call) for call in calls]
        self.touching: dict[int, list[int]] = {}
        for i, a in enumerate(self.accesses):
            for place in {region.place for region in (*a.writes, *a.reads)}:
                self.touching.setdefault(place, []).append(i)

    def after(self, i: int, place: int) -> list[int]:
        """Those that come after call i."""
        return [k for k in self.touching.get(place, ()) if k > i]

    def is_written_after(self, i: int, place: int) -> bool:
        return any(self.accesses[k].writes_to(place) for k in self.after(i, place))


def epilogues(calls: Sequence[Call], temporaries: Mapping[int, int]) -> list[Call]:
    """The same calls without those that are not needed, and with less work in others.

    temporaries: by place, the bytes of buffers whose contents nobody needs after the step.
    """
    found = list(calls)
    for rewrite in (_without_copies, _without_repeats, _pools_before_relu, _without_zeros):
        found = rewrite(found, temporaries)
    return found


# --- Copies -----------------------------------------------------------------------------------------------------------


def _without_copies(calls: list[Call], temporaries: Mapping[int, int]) -> list[Call]:
    """What reads a copy reads the original, where neither is written later."""
    accesses = [access(call) for call in calls]
    written = {region.place: i for i, a in enumerate(accesses) for region in a.writes}
    instead: dict[int, int] = {}
    left: list[Call] = []
    for i, (call, a) in enumerate(zip(calls, accesses, strict=True)):
        if call.op == "copy" and a.reads:
            (copy,), (source,) = a.writes, a.reads
            origin = instead.get(source.place, source.place)
            if (
                copy.operand == source.operand
                and copy.offset == source.offset
                and is_dense(copy.operand)
                and temporaries.get(copy.place) == prod(copy.operand.shape) * copy.operand.dtype.itemsize
                and written[copy.place] == i > written.get(origin, -1)
            ):
                instead[copy.place] = origin
                continue
        left.append(on_places(call, instead))
    return left


# --- What is computed twice -------------------------------------------------------------------------------------------


def _without_repeats(calls: list[Call], temporaries: Mapping[int, int]) -> list[Call]:
    """A call whose results another has computed already, from the same, is left out: a cast done twice, a mask.

    No memory is held for it that was not held before, but for small results: what is computed again on purpose, as
    checkpoints do, still is.
    """
    accesses = [access(call) for call in calls]
    last: dict[int, int] = {}
    writers: dict[int, int] = {}
    for i, a in enumerate(accesses):
        last.update(dict.fromkeys([region.place for region in (*a.reads, *a.writes)], i))
        for place in {region.place for region in a.writes}:
            writers[place] = writers.get(place, 0) + 1
    versions: dict[int, int] = {}
    computed: dict[Any, int] = {}
    instead: dict[int, int] = {}
    left: list[Call] = []
    for i, (call, a) in enumerate(zip(calls, accesses, strict=True)):
        call = on_places(call, instead)
        own = [region.place for region in a.writes]
        if a.is_known and own and all(writers[place] == 1 for place in own):
            key = _what(call, len(own), versions)
            first = computed.get(key)
            if first is not None and all(place in temporaries for place in own):
                others = [region.place for region in accesses[first].writes]
                ends = min(last[place] for place in others)
                if ends >= i or sum(temporaries[place] for place in own) <= SMALL:
                    instead.update(zip(own, others, strict=True))
                    last.update({o: max(last[o], last[p]) for o, p in zip(others, own, strict=True)})
                    continue
            computed[key] = i
        for place in own:
            versions[place] = i
        left.append(call)
    return left


def _what(call: Call, outputs: int, versions: Mapping[int, int]) -> Any:
    """What a call computes: equal ones have the same results."""
    described: list[Any] = []
    tensor = at = 0
    for operand in call.operands:
        if operand.is_scalar:
            number = call.arguments[at]
            described.append((type(number), repr(number)))  # 0.0 and -0.0 are equal, and not the same
            at += 1
            continue
        place, offset = call.arguments[at : at + 2]
        described.append(offset if tensor < outputs else (int(place), versions.get(place), offset))
        tensor, at = tensor + 1, at + 2
    return call.op, call.operands, repr(sorted(call.attrs.items())), call.device, tuple(described)


# --- Fewer elements ---------------------------------------------------------------------------------------------------


def _pools_before_relu(calls: list[Call], temporaries: Mapping[int, int]) -> list[Call]:
    """relu of a max_pool2d, which has a few of the elements, in place of max_pool2d of a relu.

    Both have the same results, since relu keeps order. Where they differ in which element of a window is the first
    largest, none of it is larger than 0, and its gradient is 0.
    """
    uses = Uses(calls)
    changed: dict[int, tuple[Call, ...]] = {}
    for i, call in enumerate(calls):
        if call.op == "relu" and uses.accesses[i].is_known:
            changed.update(_pool_before_relu(i, calls, uses, temporaries) or {})
    return [new for i, call in enumerate(calls) for new in changed.get(i, (call,))]


def _pool_before_relu(
    i: int, calls: Sequence[Call], uses: Uses, temporaries: Mapping[int, int]
) -> dict[int, tuple[Call, ...]] | None:
    relu, accesses = calls[i], uses.accesses
    (y,), (x,) = accesses[i].writes, accesses[i].reads
    if y.place not in temporaries or x.operand != y.operand:
        return None
    after = uses.after(i, y.place)
    pools = [k for k in after if calls[k].op == "max_pool2d"]
    if len(pools) != 1 or uses.is_written_after(i, x.place):
        return None
    (at,) = pools
    if accesses[at].reads != (y,):
        return None
    (pooled,) = accesses[at].writes
    if pooled.place in (x.place, y.place) or uses.is_written_after(at, pooled.place):
        return None
    kernel = compile_on(relu, (pooled.operand, pooled.operand))
    if kernel is None or not may_alias(relu):
        return None
    # Where relu was in place, x and y are one, and what is no longer there is only what relu made of it.
    changed = {
        i: (),
        at: (
            with_regions(calls[at], (pooled, x)),
            with_regions(relu._replace(kernel=kernel, line=calls[at].line), (pooled, pooled)),
        ),
    }
    grads = [k for k in after if k != at]
    if not grads:
        return changed
    if len(grads) != 2 or [calls[k].op for k in grads] != ["max_pool2d_grad", "relu_grad"]:
        return None
    first, second = grads
    (spread,), (grad, whole) = accesses[first].writes, accesses[first].reads
    (out,), (masked, of) = accesses[second].writes, accesses[second].reads
    if (
        (whole, of, masked) != (y, y, spread)
        or spread.place not in temporaries
        or uses.after(-1, spread.place) != grads
        or out.place == spread.place
        or out.operand != spread.operand
        or any(k < second for k in uses.after(first - 1, out.place))
        or not is_dense(grad.operand)
        or any(calls[first].attrs[name] != calls[at].attrs[name] for name in ("windows", "pads"))
    ):
        return None
    kernel = compile_on(calls[second], (grad.operand, grad.operand, pooled.operand))
    if kernel is None:
        return None
    is_last = not uses.after(first, grad.place)
    passed = grad if is_last and grad.place in temporaries else Region(spread.place, 0, grad.operand)
    mask = calls[second]._replace(kernel=kernel)
    changed[first] = (with_regions(mask, (passed, grad, pooled)), with_regions(calls[first], (out, passed, x)))
    changed[second] = ()
    return changed


# --- Zeros that are written over --------------------------------------------------------------------------------------


def _without_zeros(calls: list[Call], temporaries: Mapping[int, int]) -> list[Call]:
    """Zeros are not written where each is added to once or written over: the gradient of the parts of a split."""
    uses = Uses(calls)
    changed: dict[int, Call | None] = {}
    for i, call in enumerate(calls):
        if call.op == "fill" and type(call.arguments[2]) in (int, float) and repr(call.arguments[2]) in ("0", "0.0"):
            place = call.arguments[0]
            if place in temporaries and not uses.after(i, place):
                changed[i] = None
            else:
                changed.update(_written_over(i, calls, uses) or {})
    found = [changed.get(i, call) for i, call in enumerate(calls)]
    return [call for call in found if call is not None]


def _written_over(i: int, calls: Sequence[Call], uses: Uses) -> dict[int, Call | None] | None:
    (zeros,) = uses.accesses[i].writes
    missing, boxes = prod(zeros.operand.shape), list[Box]()
    changed: dict[int, Call | None] = {i: None}
    for k in uses.after(i, zeros.place):
        if not missing:
            break
        call, (writes, reads, _) = calls[k], uses.accesses[k]
        box = box_of(writes[0], zeros) if call.op in ("add", "copy") and writes[0].place == zeros.place else None
        if box is None or any(box.overlaps(other) for other in boxes):
            return None
        if call.op == "add":
            if not reads or reads[0] != writes[0] or zeros.operand.dtype.category == BOOL:
                return None
            reads = reads[1:]
            number = Operand(zeros.operand.dtype, (), (), True)
            if len(reads) != 1:
                return None
            operands = (writes[0].operand, reads[0].operand, number)
            kernel = compile_on(call, operands)
            if kernel is None:
                return None
            # The sum and not a copy: 0 + -0 is 0.
            changed[k] = with_regions(call._replace(kernel=kernel), (writes[0], reads[0]), operands, (0,))
        if any(region.place == zeros.place for region in reads):
            return None
        boxes.append(box)
        missing -= box.size
    return None if missing else changed


class Box(NamedTuple):
    """Elements of a contiguous tensor: in each of its dims those from `start` to before `stop`; `size` of them."""

    start: tuple[int, ...]
    stop: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(b - a for a, b in zip(self.start, self.stop, strict=True))

    def overlaps(self, other: Box) -> bool:
        return all(a < d and c < b for a, b, c, d in zip(self.start, self.stop, other.start, other.stop, strict=True))


def box_of(region: Region, whole: Region) -> Box | None:
    """Which elements of `whole` a region of the same place is; None where they are no box."""
    shape = whole.operand.shape
    expected = [prod(shape[d + 1 :]) for d in range(len(shape))]
    if any(n != 1 and s != e for n, s, e in zip(shape, whole.operand.strides, expected, strict=True)):
        return None
    at, start = region.offset - whole.offset, list[int]()
    if region.operand.dtype != whole.operand.dtype or not 0 <= at < prod(shape):
        return None
    for step in expected:
        start.append(at // step)
        at %= step
    stop = [a + 1 for a in start]
    for n, stride in zip(region.operand.shape, region.operand.strides, strict=True):
        if n == 1:
            continue
        dims = [d for d, e in enumerate(expected) if e == stride and shape[d] != 1]
        if len(dims) != 1 or stop[dims[0]] != start[dims[0]] + 1:
            return None
        stop[dims[0]] = start[dims[0]] + n
    if any(b > n for b, n in zip(stop, shape, strict=True)):
        return None
    return Box(tuple(start), tuple(stop))


# --- Calls ------------------------------------------------------------------------------------------------------------


def access(call: Call) -> Access:
    """What a call writes and reads."""
    regions, at = list[Region](), 0
    for operand in call.operands:
        if not operand.is_scalar:
            regions.append(Region(int(call.arguments[at]), call.arguments[at + 1], operand))
        at += 1 if operand.is_scalar else 2
    if not call.operands:  # bytes that are copied
        places = [int(x) for x in call.arguments if type(x) is Place]
        regions = [Region(place, 0, Operand(None, (), ())) for place in places]  # type: ignore[arg-type]
    everything, outputs = tuple(regions), count_outputs(call)
    if outputs is None:
        return Access(everything, everything, False)
    return Access(everything[:outputs], everything[outputs:], True)


def count_outputs(call: Call | Compiled) -> int | None:
    """How many outputs a call has that it only writes; None where that is not known."""
    if call.op in IN_PLACE or not call.operands:
        return None
    if call.op in ("fused", "fused_rows"):
        return len(call.attrs["results"])
    if call.op in PRIMITIVES:
        return 2 if call.op in TWO_OUTPUTS else 1
    op = _composites().get(call.op)
    if op is None or op.variadic:
        return None
    tensors = sum(not operand.is_scalar for operand in call.operands)
    given = call.attrs.get("given")
    if given is None and op.optional:
        return None
    inputs = len(op.tensors) if given is None else sum(map(bool, given))
    return tensors - inputs if tensors > inputs else None


@cache
def _composites() -> dict[str, Op]:
    return {op.kernel: op for op in all_ops() if op.kind == "composite"}


def compile_on(call: Call, operands: tuple[Operand, ...]) -> Kernel | None:
    """The kernel of a call for other operands."""
    return compile_kernel(call.op, call.device, operands, call.attrs, False)


def with_regions(
    call: Call, regions: Sequence[Region], operands: tuple[Operand, ...] | None = None, numbers: tuple[Any, ...] = ()
) -> Call:
    """The call on other regions, followed by the numbers of its scalar operands."""
    arguments = [x for region in regions for x in (Place(region.place), region.offset)]
    found = tuple([region.operand for region in regions]) if operands is None else operands
    return call._replace(operands=found, arguments=(*arguments, *numbers))


def on_places(call: Call, instead: Mapping[int, int]) -> Call:
    """The call on other places."""
    arguments = [Place(instead[x]) if type(x) is Place and x in instead else x for x in call.arguments]
    return call._replace(arguments=tuple(arguments))


def is_dense(operand: Operand) -> bool:
    """Whether its elements lie without gaps, in any order."""
    expected = 1
    for stride, n in sorted(zip(operand.strides, operand.shape, strict=True)):
        if n != 1:
            if stride != expected:
                return False
            expected *= n
    return True


def may_alias(call: Call) -> bool:
    """Whether an output of the call, which is elementwise, may be exactly one of the inputs."""
    return call.op in ELEMENTWISE or call.device.backend.contract >= (1, 3)
