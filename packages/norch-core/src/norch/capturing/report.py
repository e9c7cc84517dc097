"""What `report()` of a captured step says."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..backend.contract import Fed, Place
from ..spec import span

if TYPE_CHECKING:
    from .calls import Call
    from .captured import Captured
    from .program import Program


@dataclass
class Kernels:
    """The calls of one kernel in a program. bytes: of their operands, in all. seconds: in all, where it was timed."""

    op: str
    calls: int = 0
    bytes: int = 0
    seconds: float | None = None


@dataclass
class ProgramReport:
    """A program of a captured step.

    signature: the arguments that it is for. replayed: how often it has run. kernels: by op, most bytes (or time) first.
    parts: how many lists of kernels it is, between which Python runs. python: methods of optimisers and the like whose
    Python runs at each replay. scratch: bytes that its temporaries share. fused: the steps of each kernel that is
    several ops in one. native: whether the backend runs each part in one call; else core calls kernel after kernel.
    """

    signature: str
    replayed: int
    device: str
    kernels: list[Kernels]
    parts: int
    python: list[str]
    scratch: int
    fused: list[str]
    native: bool

    @property
    def calls(self) -> int:
        """How many kernels it calls."""
        return sum(k.calls for k in self.kernels)

    def __str__(self) -> str:
        how = "in one call of the backend" if self.native else "kernel by kernel"
        if self.parts > 1:
            how += f", in {self.parts} parts"
        lines = [
            f"{self.signature}: {self.replayed:,} replays of {self.calls:,} kernels on {self.device}, {how}, "
            f"{self.scratch:,} bytes of scratch memory"
        ]
        wide = max([len(k.op) for k in self.kernels], default=0)
        for k in self.kernels:
            time = "" if k.seconds is None else f"  {1e6 * k.seconds:,.1f} us"
            lines.append(f"    {k.op:{wide}}  {k.calls:,} calls  {k.bytes:,} bytes{time}")
        lines += [f"    fused: {steps}" for steps in self.fused]
        return "\n".join(lines + [f"    with the Python of {name}" for name in self.python])


@dataclass
class Report:
    """How often a captured step ran in which way, its programs, and what was in the way. It prints as text.

    eager, recorded, replayed: calls. refused: by signature, why calls are left as they are. captured_again: why
    programs were given up, the latest 20. apart: of a step that is replayed in parts, the first and last line of each,
    and its report. whole: why a step that could not be one program was not taken apart.
    """

    name: str
    eager: int
    recorded: int
    replayed: int
    programs: list[ProgramReport] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    captured_again: list[str] = field(default_factory=list)
    apart: list[tuple[tuple[int, int], Report]] = field(default_factory=list)
    whole: str | None = None

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.replayed:,} calls replayed, {self.recorded:,} recorded, {self.eager:,} eager"]
        lines += [str(program) for program in self.programs]
        lines += [f"{signature}: not replayed: {why}" for signature, why in self.refused.items()]
        lines += [f"captured again: {why}" for why in self.captured_again]
        lines += [] if self.whole is None else [f"not taken apart: {self.whole}"]
        for (first, last), part in self.apart:
            where = f"line {first}" if first == last else f"lines {first} to {last}"
            lines += [f"{where}: " + str(part).replace("\n", "\n    ")]
        return "\n".join(lines)


def make_report(captured: Captured, timed: bool) -> Report:
    with captured.lock:
        entries = list(captured.entries.values())
        programs = [(entry.signature, program) for entry in entries for program, _ in entry.programs]
        back = [
            (f"{entry.signature}, backward", program)
            for entry in entries
            if entry.programs and entry.backwards is not None
            for program in entry.backwards.programs()
        ]
        parts = captured.parts
        return Report(
            getattr(captured.function, "__name__", type(captured.function).__name__),
            captured.eager,
            captured.recorded,
            captured.replayed + sum(program.runs for _, program in programs),
            [_of_program(signature, program, timed) for signature, program in (*programs, *back)],
            _refused(entries),
            list(captured.captured_again),
            [] if parts is None else [(lines, make_report(part, timed)) for lines, part in parts.described()],
            None if parts is None else parts.odd,
        )


MANY = 16
"""Signatures without a program that say that there is another at each call."""


def _refused(entries: list[Any]) -> dict[str, str]:
    found = {entry.signature: entry.refusal for entry in entries if entry.refusal is not None}
    for entry in entries:
        if entry.refusal is None and entry.waiting is not None:
            found.setdefault(entry.signature, f"{entry.waiting}; it is recorded again")
    others = [entry for entry in entries if entry.refusal is None and not entry.programs]
    waiting = {id(entry.family): entry for entry in others if entry.calls < entry.first > 2}
    for entry in waiting.values():
        family = entry.family
        why = f"{family.wasted} like it came to nothing ({family.why}); it is recorded at call {entry.first:,}"
        found[f"{entry.signature}, and others like it"] = why
    passing = [entry.signature for entry in others if id(entry.family) not in waiting]
    if len(passing) >= MANY:
        why = (
            "an argument that is a number, an object or a tensor that requires grad is another at each call; give a "
            "tensor of no dims for a number, and let the step call requires_grad_()"
        )
        found[f"{len(passing)} signatures such as {passing[-1]}"] = why
    return found


def _of_program(signature: str, program: Program, timed: bool) -> ProgramReport:
    kernels: dict[str, Kernels] = {}
    for call in program.calls:
        found = kernels.setdefault(call.op, Kernels(call.op))
        found.calls += 1
        found.bytes += _bytes(call)
    if timed:
        _time(program, kernels)
    return ProgramReport(
        signature,
        program.runs,
        str(program.device),
        sorted(kernels.values(), key=lambda k: (-(k.seconds or 0), -k.bytes)),
        len(program.parts),
        [call.name for call in program.made_of[0].python],
        program.scratch,
        [str(call.attrs["steps"]) for call in program.calls if call.op in ("fused", "fused_rows")],
        program.native,
    )


def _bytes(call: Call) -> int:
    if not call.operands:  # a copy of bytes
        return 2 * int(call.arguments[-1])
    return sum(prod(o.shape) * o.dtype.itemsize for o in call.operands if not o.is_scalar)


ROUNDS = 5


def _time(program: Program, kernels: dict[str, Kernels]) -> None:
    """Runs each kernel on memory of its own, which holds zeros: the step's tensors are left alone. The least of some
    runs counts."""
    zeros: dict[tuple[Any, int], Any] = {}
    for kernel in kernels.values():
        kernel.seconds = 0.0
    for call in program.calls:
        backend, index = call.device.backend, call.device.index
        sizes = _reach(call)
        buffers = {}
        for place, size in sizes.items():
            key = place, size
            if key not in zeros:
                zeros[key] = backend.allocate(size, index)
                backend.copy_in(zeros[key], 0, memoryview(bytes(size)))
            buffers[place] = zeros[key]
        arguments = [buffers[a] if type(a) is Place else 1 if type(a) is Fed else a for a in call.arguments]
        times = []
        for _ in range(ROUNDS):
            backend.synchronize(index)
            start = perf_counter()
            try:
                call.kernel(*arguments)
            except Exception:  # zeros may be no value for it
                break
            backend.synchronize(index)
            times.append(perf_counter() - start)
        found = kernels[call.op]
        assert found.seconds is not None
        found.seconds += min(times, default=0.0)


def _reach(call: Call) -> dict[int, int]:
    """By place, how many bytes of it the call may touch."""
    found: dict[int, int] = {}
    if not call.operands:
        out, at, source, begin, nbytes = call.arguments
        return {out: at + nbytes, source: begin + nbytes}
    arguments = iter(call.arguments)
    for operand in call.operands:
        place = next(arguments)
        if operand.is_scalar:
            continue
        size = operand.dtype.itemsize
        end = (next(arguments) + span(operand.shape, operand.strides)) * size
        found[place] = max(found.get(place, 0), end)
    return found
