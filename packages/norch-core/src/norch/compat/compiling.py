"""`norch.compile`: the function itself, and whether one is being recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any

_BACKENDS = ("inductor", "cudagraphs", "aot_eager", "eager", "aot_ts", "onnxrt", "openxla", "tvm")
_STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile")
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite")


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """`norch.capture(model, fullgraph=fullgraph)`, under the name of PyTorch's `torch.compile`.

    Of a module it is one that has it as `_orig_mod`, shares its parameters, and whose calls are recorded and replayed,
    forward and backward; of a function a function. What cannot be replayed runs as it is. There is no compiler to
    choose: `dynamic`, `mode` and `options` have no effect, since each shape has a program of its own. With `disable`,
    or with backend "eager", `model` itself. With no `model`, a decorator. Raises TypeError for what is neither a
    function nor a module, RuntimeError for an unknown mode or backend, and for both `mode` and `options`.
    """
    if model is None:
        return lambda function: compile(
            function, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable
        )
    if not callable(model):
        raise TypeError(f"compile(): expected a function or a module, got {type(model).__name__}")
    if mode is not None and options is not None:
        raise RuntimeError("compile(): give mode or options, not both")
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"compile(): unknown mode {mode!r}; known are {', '.join(_MODES)}")
    if isinstance(backend, str) and backend not in _BACKENDS:
        raise RuntimeError(f"compile(): unknown backend {backend!r}; known are {', '.join(_BACKENDS)}")
    if disable or backend in ("eager", eager):
        return model
    from ..capturing import capture

    return capture(model, fullgraph=fullgraph)


def eager(gm: Callable[..., Any], fake_tensor_inputs: Any, **options: Any) -> Callable[..., Any]:
    """A backend of `compile` as PyTorch calls them: `gm` itself, which runs op by op. As `backend="eager"`."""
    return gm


class set_stance(ContextDecorator):
    """How compiled functions meet what they were not compiled for, by PyTorch's name: for a block, for a function, or
    from now on. Accepted: norch records again, or runs op by op, with the same results.

    stance: one of PyTorch's names. Raises RuntimeError for another.
    """

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None
    ) -> None:
        if stance not in _STANCES:
            raise RuntimeError(f"set_stance(): unknown stance {stance!r}; known are {', '.join(_STANCES)}")

    def __enter__(self) -> None:
        """Begins a block."""

    def __exit__(self, *error: Any) -> None:
        """Ends it."""


def is_compiling() -> bool:
    """Whether `norch.capture` or `norch.compile` is recording a step in this thread: code that reads values, or warns
    once, leaves that out then. Of a replay it is never asked.
    """
    recording = sys.modules.get("norch.capturing.recording")
    return recording is not None and recording.recorder_here() is not None
