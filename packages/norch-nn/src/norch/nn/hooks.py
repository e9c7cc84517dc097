"""Functions that a user hangs on a module's call."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

_next_id = count().__next__


class RemovableHandle:
    """What registering a hook returns: `remove()` takes the hook away, as does leaving a `with` block."""

    def __init__(self, hooks: dict[int, Hook], hook: Hook, prepend: bool) -> None:
        self.id = _next_id()
        self._hooks = hooks
        later = list(hooks.items()) if prepend else []
        for key, _ in later:
            del hooks[key]
        hooks[self.id] = hook
        hooks.update(later)

    def remove(self) -> None:
        self._hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


class Hook:
    """A hook and whether it wants the keyword arguments of the call."""

    def __init__(self, function: Callable[..., Any], with_kwargs: bool) -> None:
        self.function = function
        self.with_kwargs = with_kwargs


def call_with_hooks(
    module: Any, before: dict[int, Hook], after: dict[int, Hook], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`module.forward(*args, **kwargs)` with every hook in its turn. A hook may remove itself."""
    for hook in tuple(before.values()):
        if hook.with_kwargs:
            changed = hook.function(module, args, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise TypeError(
                        f"a forward pre-hook with kwargs must return None or (args, kwargs), got {changed!r}"
                    )
                args, kwargs = changed
        else:
            changed = hook.function(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
    result = module.forward(*args, **kwargs)
    for hook in tuple(after.values()):
        if hook.with_kwargs:
            changed = hook.function(module, args, kwargs, result)
        else:
            changed = hook.function(module, args, result)
        if changed is not None:
            result = changed
    return result
