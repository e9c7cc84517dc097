"""Finding plug-ins: the entry points of installed distributions, and the hooks that their modules answer."""

from collections.abc import Callable, Iterable

reserved_names: Callable[[], Iterable[str]]
"""Returns the names of norch's own, which no plug-in may have. `norch` itself says what it is."""
