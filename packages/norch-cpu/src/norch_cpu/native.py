"""The build of the extension that this processor runs best, of those that are installed, as `native`.

NORCH_CPU_INSTRUCTION_SET=baseline (or avx2, avx512) chooses another. A build to develop with (NORCH_CPU_BUILD=native,
see CMakeLists.txt) has one module, named "native", and is chosen where there is no other.
"""

from __future__ import annotations

import importlib
import os
from importlib.util import find_spec
from types import ModuleType

BUILDS = ("baseline", "avx2", "avx512")

_detect = importlib.import_module("._detect", __package__)
detected: str = _detect.instruction_set()
_runs = BUILDS[: BUILDS.index(detected) + 1]
usable = [name for name in _runs if find_spec(f"._{name}", __package__) is not None]
if _detect.native in _runs:  # what `_native` was compiled for
    usable.insert(0, "native")
chosen = os.environ.get("NORCH_CPU_INSTRUCTION_SET") or (usable[-1] if usable else detected)


def _load(name: str) -> ModuleType:
    if usable and name not in usable:
        raise ImportError(
            f"NORCH_CPU_INSTRUCTION_SET={name}: of the builds that are installed the processor runs {', '.join(usable)}"
        )
    return importlib.import_module(f"._{name}", __package__)


native = _load(chosen)
