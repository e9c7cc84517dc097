"""The build of the extension that this processor runs best, as `native`.

NORCH_CPU_INSTRUCTION_SET=baseline (or avx2, avx512) chooses another.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

BUILDS = ("baseline", "avx2", "avx512")

detected: str = importlib.import_module("._detect", __package__).instruction_set()
chosen = os.environ.get("NORCH_CPU_INSTRUCTION_SET") or detected


def _load(name: str) -> ModuleType:
    if name not in BUILDS or BUILDS.index(name) > BUILDS.index(detected):
        usable = ", ".join(BUILDS[: BUILDS.index(detected) + 1])
        raise ImportError(f"NORCH_CPU_INSTRUCTION_SET={name}: this processor runs {usable}")
    return importlib.import_module(f"._{name}", __package__)


native = _load(chosen)
