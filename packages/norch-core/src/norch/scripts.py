"""Running a script as `python script.py arguments...` does, in this process: for the commands that watch one."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path


def run_script(script: str, arguments: Sequence[str]) -> int:
    """The exit status of the script. Raises what it raises."""
    argv, path = sys.argv, sys.path[:]
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    finally:
        sys.argv, sys.path[:] = argv, path
    return 0
