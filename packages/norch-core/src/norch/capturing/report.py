"""What `report()` of a captured step says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


@dataclass
class Kernels:
    """The calls of one kernel in a program. bytes: of their operands. seconds: of a run, where it was timed."""

    op: str
    calls: int = 0
    bytes: int = 0
    seconds: float | None = None


@dataclass
class ProgramReport:
    """A program: what it is run for, and what it is made of.

    signature: the arguments that it is for. replayed: how often it has run. kernels: by op, most bytes first. scratch:
    bytes of memory that its temporaries share. fused: the steps of each call that is several ops in one. native:
    whether the backend runs it in one call; else core calls kernel after kernel.
    """

    signature: str
    replayed: int
    kernels: list[Kernels]
    scratch: int
    fused: list[str]
    native: bool
    device: str

    @property
    def calls(self) -> int:
        """How many kernels it calls."""
        return sum(k.calls for k in self.kernels)


@dataclass
class Report:
    """How often a captured step ran in which way, its programs, and what was in the way.

    refused: by signature, why calls of it are left as they are. captured_again: why programs were given up, oldest
    first. print() shows all of it.
    """

    name: str
    eager: int
    recorded: int
    replayed: int
    programs: list[ProgramReport] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    captured_again: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.replayed} calls replayed, {self.recorded} recorded, {self.eager} as they are"]
        for program in self.programs:
            lines += _of_program(program)
        lines += [f"not replayed, {signature}: {why}" for signature, why in self.refused.items()]
        lines += [f"captured again: {why}" for why in self.captured_again]
        return "\n".join(lines)


def _of_program(program: ProgramReport) -> list[str]:
    how = "in one native call" if program.native else "kernel by kernel"
    lines = [
        f"{program.signature}: {program.replayed} calls of {program.calls} kernels on {program.device}, {how}, "
        f"{program.scratch:,} bytes of scratch memory"
    ]
    wide = max([len(k.op) for k in program.kernels], default=0)
    for k in program.kernels:
        time = "" if k.seconds is None else f" {1e6 * k.seconds:10.1f} us"
        lines.append(f"    {k.op:{wide}} {k.calls:5} calls {k.bytes:14,} bytes{time}")
    return lines + [f"    fused: {steps}" for steps in program.fused]


def make_report(captured, timed):
    entries = list(captured.entries.items())
    return Report(
        "step",
        captured.eager,
        captured.recorded,
        captured.replayed + sum(p.runs for k, e in entries for p, _ in e.programs),
        [],
        {str(i): e.refusal for i, (k, e) in enumerate(entries) if e.refusal},
        list(captured.captured_again),
    )
