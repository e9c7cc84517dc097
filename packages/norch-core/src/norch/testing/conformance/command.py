"""`norch conformance --device NAME`, and `--distributed NAME` for an engine of norch.distributed."""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path

from ...errors import DeviceError
from . import LEVELS, Result, levels_of, run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    levels = "; ".join(f"{n} {name}" for n, name in LEVELS.items())
    tried = parser.add_mutually_exclusive_group(required=True)
    tried.add_argument("--device", help="the device to try, such as opencl or cuda:1")
    tried.add_argument("--distributed", metavar="ENGINE", help="the engine of norch.distributed to try, such as mpi")
    parser.add_argument("-n", type=int, default=2, help="with --distributed: how many processes (2)")
    parser.add_argument("--levels", type=_levels, default=tuple(LEVELS), help=f"such as 3 or 1-4 ({levels})")
    parser.add_argument("--ops", help="only these, separated by commas")
    parser.add_argument("--scripts", type=int, default=3, help="how many failing cases to print as scripts (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report there")
    parser.add_argument("--badge", type=Path, metavar="FILE", help="also write the badge, a line of Markdown, there")


def _levels(text: str) -> tuple[int, ...]:
    try:
        return tuple(levels_of(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main(options: argparse.Namespace) -> int:
    """0 if every case passed, 1 if one failed, 2 if the device, or the engine, cannot be used."""
    if options.distributed:
        try:
            kit = import_module("norch.distributed.conformance")
        except ModuleNotFoundError as error:
            print(f"engines are norch-nn's ({error}); try: pip install norch-nn", file=sys.stderr)
            return 2
        status: int = kit.main(options)
        return status
    ops = options.ops.split(",") if options.ops else None
    counts = {"tried": 0, "failed": 0}

    def progress(result: Result) -> None:
        counts["tried"] += 1
        counts["failed"] += bool(result.error)
        if sys.stderr.isatty() and counts["tried"] % 20 == 0:
            shown = f"level {result.case.level}: {counts['tried']} cases, {counts['failed']} failed"
            print(f"\r{shown}", end="\r", file=sys.stderr, flush=True)

    try:
        report = run(options.device, options.levels, ops, progress)
    except DeviceError as error:
        print(error, file=sys.stderr)
        return 2
    if not report.results:
        print(f"there are no cases of {options.ops} at these levels", file=sys.stderr)
        return 2
    print(report.text(scripts=options.scripts))
    if options.json:
        options.json.write_text(json.dumps(report.json(), indent=2) + "\n")
    if options.badge:
        options.badge.write_text(report.badge() + "\n")
    return 0 if report.passed else 1
