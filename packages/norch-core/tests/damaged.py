"""What the tests of damaged files share: a state, its file, and files changed by hand."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

import norch

STATE = {
    "model": {"fc.weight": norch.arange(12.0).reshape(3, 4), "mask": norch.tensor([True, False, True])},
    "views": (norch.arange(6)[1:4], norch.ones(2, 2).t()),
    "optimizer": {"state": {0: {"step": 3, "m": norch.ones(2).bfloat16()}}, "lr": [0.1, float("inf")]},
    "numpy": np.arange(3, dtype=np.uint32),
    "rng": norch.get_rng_state(),
}


def saved(state: Any = STATE) -> bytes:
    file = io.BytesIO()
    norch.save(state, file)
    return file.getvalue()


def framed(header: Any, data: bytes = b"") -> bytes:
    """A file with this header: bytes, text, or an object to be written as JSON."""
    if not isinstance(header, bytes):
        header = (header if isinstance(header, str) else json.dumps(header)).encode()
    return len(header).to_bytes(8, "little") + header + data


def signed(content: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """A saved file whose structure was changed by someone who knows how to sign it."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    structure = json.loads(header["__metadata__"]["norch"])
    changed = change(structure)
    header["__metadata__"]["norch"] = json.dumps(structure if changed is None else changed)
    header["__metadata__"]["norch.header"] = "00000000"
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw = raw.replace(b"00000000", f"{zlib.crc32(raw):08x}".encode(), 1)
    return framed(raw, content[8 + length :])
