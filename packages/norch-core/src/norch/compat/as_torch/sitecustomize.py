"""Has `import torch` mean norch in this process too: it was started by a program under `norch run --as-torch`.

Python imports it at its start. It loads nothing of norch before something asks for PyTorch.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from contextlib import suppress
from typing import Any


class _AtFirst:
    """Asked for modules until the first of PyTorch's, for which it puts norch in their place and itself away."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname.partition(".")[0] not in ("torch", "torchvision", "functorch"):
            return None
        sys.meta_path.remove(cls)
        importlib.import_module("norch.compat.standin").install()
        return importlib.util.find_spec(fullname)


def _next() -> None:
    """Imports the `sitecustomize` that this one hides."""
    here = os.path.realpath(os.path.dirname(__file__))
    sys.path[:] = [place for place in sys.path if os.path.realpath(place or ".") != here]
    this = sys.modules.pop("sitecustomize", None)
    with suppress(ImportError):
        importlib.import_module("sitecustomize")
    if this is not None:
        sys.modules.setdefault("sitecustomize", this)


if __name__ == "sitecustomize":
    if importlib.util.find_spec("norch") is not None:
        sys.meta_path.insert(0, _AtFirst)
    _next()
