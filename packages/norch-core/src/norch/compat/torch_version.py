"""PyTorch's `torch.torch_version`: a version that is text, and compared as the numbers that it names."""

from __future__ import annotations

import re
from typing import Any

_VERSION = re.compile(
    r"\s*v?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<pre>a|b|c|rc|alpha|beta|pre|preview)[-_.]?(?P<pre_number>\d*))?"
    r"(?:[-_.]?(?:post|rev|r)[-_.]?(?P<post>\d*))?"
    r"(?:[-_.]?dev[-_.]?(?P<dev>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?\s*",
    re.IGNORECASE,
)
_STAGES = {"a": 0, "alpha": 0, "b": 1, "beta": 1}


def _key(version: Any) -> tuple[Any, ...] | None:
    """What versions are ordered by; None for what is none."""
    text = ".".join(map(str, version)) if isinstance(version, tuple | list) else str(version)
    found = _VERSION.fullmatch(text)
    if found is None:
        return None
    release = [int(number) for number in found["release"].split(".")]
    while release and not release[-1]:
        release.pop()
    post = -1 if found["post"] is None else int(found["post"] or 0)
    dev = float("inf") if found["dev"] is None else int(found["dev"] or 0)
    if found["pre"]:
        stage = (_STAGES.get(found["pre"].lower(), 2), int(found["pre_number"] or 0))
    else:
        stage = (-1, 0) if found["dev"] is not None and post < 0 else (3, 0)
    parts = re.split("[-_.]", found["local"]) if found["local"] else []
    return release, stage, post, dev, [(part.isdecimal(), int(part) if part.isdecimal() else part) for part in parts]


class TorchVersion(str):
    """The text of a version that compares with others, their text and tuples of their numbers by what they mean.

    What names no version is compared as text.
    """

    __slots__ = ()

    def _keys(self, other: Any) -> tuple[Any, Any]:
        ours, theirs = _key(self), _key(other)
        return (ours, theirs) if ours is not None and theirs is not None else (str(self), str(other))

    def __lt__(self, other: Any) -> bool:
        ours, theirs = self._keys(other)
        return bool(ours < theirs)

    def __le__(self, other: Any) -> bool:
        ours, theirs = self._keys(other)
        return bool(ours <= theirs)

    def __gt__(self, other: Any) -> bool:
        ours, theirs = self._keys(other)
        return bool(ours > theirs)

    def __ge__(self, other: Any) -> bool:
        ours, theirs = self._keys(other)
        return bool(ours >= theirs)

    def __eq__(self, other: object) -> bool:
        ours, theirs = self._keys(other)
        return bool(ours == theirs)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__
