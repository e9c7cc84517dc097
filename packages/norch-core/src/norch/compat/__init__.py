"""Names of PyTorch that norch has for the sake of scripts. Each file is loaded when one of its names is first used;
`norch.__init__` says which those are. `install`, `uninstall` and `report` are `standin`'s."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("install", "uninstall", "report"):
        from . import standin

        return getattr(standin, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
