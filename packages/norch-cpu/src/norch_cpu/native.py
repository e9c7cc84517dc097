"""The build of the extension that this processor runs best, of those that the wheel has, as `native`.

NORCH_CPU_INSTRUCTION_SET=baseline (or avx2, avx512) chooses another.
"""

from __future__ import annotations

import importlib
import os
from importlib.util import find_spec
from types import ModuleType

BUILDS = ("baseline", "avx2", "avx512")

detected: str = importlib.import_module("._detect", __package__).instruction_set()
usable = [name for name in BUILDS[: BUILDS.index(detected) + 1] if find_spec(f"._{name}", __package__) is not None]
chosen = os.environ.get("NORCH_CPU_INSTRUCTION_SET") or (usable[-1] if usable else detected)


def _load(name: str) -> ModuleType:
    if usable and name not in usable:
        raise ImportError(
            f"NORCH_CPU_INSTRUCTION_SET={name}: of the builds in this wheel the processor runs {', '.join(usable)}"
        )
    return importlib.import_module(f"._{name}", __package__)


native = _load(chosen)
