"""A case of the kit: what is tried, at which level, and how to try it alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...device import Device
from .calls import Call
from .place import Number, Place

LEVELS = {
    1: "memory, copies, views",
    2: "primitives by value",
    3: "every dtype",
    4: "layouts",
    5: "gradients",
    6: "composites",
    7: "models train",
    8: "contract",
    9: "captured steps",
}


class Skipped(Exception):
    """Raised by a case that cannot be tried here, with the reason."""


@dataclass(frozen=True)
class Case:
    """level: a key of LEVELS. op, dtype: what it is counted under. size: elements involved, so that the smallest of the
    failing ones can be shown. check: raises if the device fails. snippet: a script that does the same."""

    level: int
    op: str
    dtype: str
    name: str
    size: int
    check: Callable[[Device], None]
    snippet: Callable[[str], str]

    @property
    def id(self) -> str:
        return f"{self.level}: {self.name}"


def rerunning(identity: str) -> Callable[[str], str]:
    """The snippet for a case that has no shorter one."""

    def snippet(device: str) -> str:
        return f"from norch.testing import conformance\n\nconformance.rerun({device!r}, {identity!r})"

    return snippet


def kernel_case(level: int, call: Call, check: Callable[..., None], **options: Any) -> Case:
    """A kernel call, held to `check` (a function of norch.testing.conformance.kernels)."""
    tensors = [*call.outputs, *(p for p in call.inputs if isinstance(p, Place))]
    dtype = tensors[-1].dtype if len(tensors) > len(call.outputs) else tensors[0].dtype
    what = {"check_values": "", "check_untouched": " leaves the rest alone", "check_repeatable": " repeats"}
    name = f"{call}{what[check.__name__]}{' over poison' if options else ''}"

    def run(device: Device) -> None:
        check(device, call, **options)

    def snippet(device: str) -> str:
        if call.size > 400:
            return rerunning(f"{level}: {name}")(device)
        return kernel_snippet(device, call, check.__name__, options)

    return Case(level, call.op, dtype, name, call.size, run, snippet)


def kernel_snippet(device: str, call: Call, check: str, options: dict[str, Any]) -> str:
    """A script that holds a kernel call to `check`."""
    held = len(call.values) - len(call.inputs)
    places = [*call.outputs[:held], *call.inputs]
    values = [
        f"    {value!r},"
        if isinstance(place, Number)
        else f"    np.array({np.asarray(value).astype(float if 'float' in place.dtype else value.dtype).tolist()}),"
        for place, value in zip(places, call.values)
    ]
    extra = "".join(f", {k}={v!r}" for k, v in options.items())
    lines = [
        "import numpy as np",
        "",
        "import norch",
        f"from norch.testing.conformance import Call, Number, Place, {check}",
        "",
        "nan, inf = np.nan, np.inf",
        f"outputs = {_tuple(call.outputs)}",
        f"inputs = {_tuple(call.inputs)}",
        "values = (",
        *values,
        ")",
        f"{check}(norch.device({device!r}), Call({call.op!r}, outputs, inputs, {call.attrs!r}, values){extra})",
    ]
    return "\n".join(lines)


def _tuple(places: tuple[Any, ...]) -> str:
    def text(p: Any) -> str:
        if isinstance(p, Number):
            return f"Number({p.dtype!r}, {p.value!r})"
        return f"Place({p.dtype!r}, {p.shape}" + (")" if p.layout == "dense" else f", {p.layout!r})")

    return f"({', '.join(map(text, places))},)"
