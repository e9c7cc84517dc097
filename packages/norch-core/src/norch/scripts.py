"""Running a script as `python script.py arguments...` does, in this process: for the commands that watch one."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path


def run_script(script: str, arguments: Sequence[str], module: bool = False) -> int:
    """The exit status of the script, or with `module` of the module of that name, as `python -m` runs it. Raises what
    it raises."""
    argv, path = sys.argv, sys.path[:]
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path.cwd() if module else Path(script).resolve().parent))
    try:
        if module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    finally:
        sys.argv, sys.path[:] = argv, path
    return 0
