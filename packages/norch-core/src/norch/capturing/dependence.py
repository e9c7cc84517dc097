"""What the results of a recorded step depend on."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from ..backend.contract import Place
from ..dispatch.op import all_ops
from .epilogues import count_outputs
from .places import STATE

if TYPE_CHECKING:
    from .recorder import Recorder


def depend_on_changes(recorder: Recorder, places: Iterable[int]) -> bool:
    """Whether what is in these places depends on what was in memory that the step changes or replaces.

    Where it does not, running the step again computes it again, as the running averages of a batch norm show.
    """
    moved = {id(tensor()) for tensor, _ in recorder.moved}
    owners = [None if info.owner is None else info.owner() for info in recorder.places]
    states = [info.kind == STATE for info in recorder.places]
    changed = set(recorder.modified)
    changed |= {at for at, owner in enumerate(owners) if states[at] and owner is not None and id(owner) in moved}
    for compiled, flat, _ in recorder.calls:
        used = [int(x) for x in flat if type(x) is Place]
        outputs = count_outputs(compiled)
        if outputs is None:  # steps write all but gradients, or a factor
            outputs = len(used) - (compiled.attrs.get("count", 1) if compiled.op in _steps() else 0)
            read = used
        else:
            read = used[outputs:]
        if not changed.isdisjoint(read):
            changed.update(used[:outputs])
    return not changed.isdisjoint(places)


@cache
def _steps() -> frozenset[str]:
    return frozenset(op.kernel for op in all_ops() if op.kind == "step")
