"""Whether results must be the same in every run. They always are; the switch is kept for scripts that set it."""

from __future__ import annotations

_mode, _warn_only = False, False


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """`mode` and `warn_only` are accepted, and remembered: norch's own backends have no kernel whose result depends on
    the order of threads.

    A stranger's backend answers for itself.
    """
    global _mode, _warn_only
    _mode, _warn_only = bool(mode), bool(mode) and bool(warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    """What `use_deterministic_algorithms` was given last."""
    return _mode


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether that was with `warn_only`."""
    return _warn_only


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms` by number or name (`debug_mode`): 0 "default", 1 "warn", 2 "error". ValueError for
    others.
    """
    levels = {"default": 0, "warn": 1, "error": 2}
    level = levels.get(debug_mode, debug_mode) if isinstance(debug_mode, str) else debug_mode
    if level not in (0, 1, 2):
        raise ValueError(
            f"set_deterministic_debug_mode(): expected 0, 1, 2 or one of {list(levels)}, got {debug_mode!r}"
        )
    use_deterministic_algorithms(level > 0, warn_only=level == 1)


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2: see `set_deterministic_debug_mode`."""
    return (1 if _warn_only else 2) if _mode else 0
