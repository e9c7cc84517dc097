"""What a file of events has of a value: `scalar`, `histogram`, `image`, `text` and the others of tensorboardX's.

Each takes tensors wherever tensorboardX's takes arrays, and gives a protocol buffer, which `add_summary` of a writer's
file writes. Raises ImportError without tensorboardX.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from .writer import _taking_tensors, plain


def hparams(
    hparam_dict: Mapping[str, Any] | None = None,
    metric_dict: Mapping[str, Any] | None = None,
    hparam_domain_discrete: Mapping[str, Any] | None = None,
) -> tuple[Any, Any, Any]:
    """The options of a run, `hparam_dict`, and what it reached, `metric_dict`, as three summaries: of the experiment,
    of the session's start and of its end.

    hparam_domain_discrete: taken for PyTorch's sake; TensorBoard finds out itself which values there are.
    """
    made: tuple[Any, Any, Any] = import_module("tensorboardX.summary").hparams(
        plain(dict(hparam_dict or {})), plain(dict(metric_dict or {}))
    )
    return made


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module("tensorboardX.summary"), name)
    return _taking_tensors(found) if callable(found) else found
