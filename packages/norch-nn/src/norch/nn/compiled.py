"""Modules whose calls are captured: what `norch.compile` and `norch.capture` make of a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from norch import switches

from .hooks import runs_as_it_is
from .module import Module

_OWN = frozenset({"_orig_mod", "_captured", "_seen", "_as_it_is"})


class OptimizedModule(Module):
    """A module that behaves as `_orig_mod`, whose parameters and state it shares; its calls are captured.

    As in PyTorch, `_orig_mod.` stands before the names in its `state_dict`, attributes are those of `_orig_mod`, and
    methods that the latter has itself run as they are. While any module in it has forward or backward hooks, or talks
    to other processes, calls run as they are: replays would leave that out.
    """

    _orig_mod: Module

    def __init__(self, module: Module, capture: Callable[[Callable[..., Any]], Any]) -> None:
        super().__init__()
        del self.__dict__["training"]
        self._register("_module_names", "_orig_mod", module)
        self.__dict__.update(_captured=capture(module), _seen=None, _as_it_is=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        own = self.__dict__
        if own["_seen"] == switches.fingerprint and not own["_as_it_is"] and own["_hooks"] is None:
            return own["_captured"](*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        own = self.__dict__
        if own["_seen"] != switches.fingerprint:
            own["_as_it_is"] = any(runs_as_it_is(module) for module in own["_orig_mod"].modules())
            own["_seen"] = switches.fingerprint
        if own["_as_it_is"]:
            return own["_orig_mod"](*args, **kwargs)
        return own["_captured"](*args, **kwargs)

    def report(self) -> Any:
        """What `norch.capture` knows of the calls."""
        return self.__dict__["_captured"].report()

    training = property(  # type: ignore[assignment]
        lambda self: self._orig_mod.training, lambda self, mode: setattr(self._orig_mod, "training", mode)
    )

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":  # of one that is being made
            raise AttributeError(name)
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN or name == "training":
            object.__setattr__(self, name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def __len__(self) -> int:
        return len(self._orig_mod)  # type: ignore[arg-type]

    def __iter__(self) -> Any:
        return iter(self._orig_mod)  # type: ignore[call-overload]

    def __getitem__(self, key: Any) -> Any:
        return self._orig_mod[key]  # type: ignore[index]

    def __contains__(self, key: Any) -> bool:
        return key in self._orig_mod  # type: ignore[operator,attr-defined]

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> Any:
        return _again, (self._orig_mod, self.__dict__["_captured"].fullgraph)


def _again(module: Module, fullgraph: bool) -> OptimizedModule:
    import norch

    made: OptimizedModule = norch.capture(module, fullgraph=fullgraph)
    return made
