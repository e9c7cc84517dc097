"""The safetensors format: the length of a JSON header (8 bytes, little-endian), the header, the bytes of the tensors.

The header maps each name to dtype, shape and data_offsets, and `__metadata__` to strings. The tensors fill the rest of
the file without gaps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple

MAX_HEADER = 100_000_000
ALIGNMENT = 64
"""The data start at a multiple of it, so that every tensor of a mapped file is aligned."""
MAX_DIMS = 32
LONG = 1_000_000
"""Characters from which on a header is looked through before it is parsed."""
MAX_CONTAINERS = 4_000_000
"""Lists and objects of JSON that are read: each takes a hundred times the two bytes that it takes in a file."""

BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
"""The dtypes of the format, and the bits of an element."""

Fail = Callable[[str], Exception]


class Entry(NamedTuple):
    """A tensor of the file: its bytes are those from `begin` to `end` of the data."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.begin


def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the key {name!r:.80} comes twice")
            seen.add(name)
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def parse_json(text: str, fail: Fail, what: str) -> Any:
    """JSON as the standard has it: no NaN, no duplicate keys. Raises `fail(...)` for what is not, or is too much."""
    if containers(text) > MAX_CONTAINERS:
        raise fail(f"{what} has more than {MAX_CONTAINERS:,} lists and objects")
    try:
        return json.loads(text, object_pairs_hook=no_duplicates, parse_constant=_refuse_constant)
    except RecursionError:
        raise fail(f"{what} is nested too deeply") from None
    except ValueError as error:
        raise fail(f"{what} is damaged: {error}") from None


def containers(text: str) -> int:
    """At most as many lists and objects are in a text of JSON."""
    return text.count("[") + text.count("{")


_STRING = r'\s*+"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*+'
_FIELDS = r"[^][{}]{0,2000}+"
_METADATA = re.compile(rf'\s*+"__metadata__"\s*+:\s*+\{{(?:{_STRING}:{_STRING},?+)*+\}}\s*+')
_ENTRY = re.compile(rf"{_STRING}:\s*+\{{{_FIELDS}(?:\[{_FIELDS}\]{_FIELDS}){{0,2}}+\}}\s*+")


def _refuse_early(text: str, fail: Fail) -> None:
    """Raises `fail(...)` where a long header holds more than metadata and tensors: as objects it would fill memory."""
    at = 0
    while text.startswith("{" if at == 0 else ",", at):
        found = _METADATA.match(text, at + 1) or _ENTRY.match(text, at + 1)
        if found is None:
            came = text[at + 1 : at + 81]
            raise fail(f"the header is damaged: expected a name, dtype, shape and data_offsets, got {came!r}")
        at = found.end()


def parse(raw: bytes, room: int, exact: bool, fail: Fail) -> tuple[dict[str, Entry], dict[str, str]]:
    """The tensors, in the order of the header, and the metadata. Everything is checked.

    room: how many bytes follow the header; with `exact` the tensors must fill them all.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise fail(f"the header is damaged: {error}") from None
    if not text.startswith("{"):
        raise fail(f"the header is damaged: it starts with {text[:1]!r}, not '{{'")
    if len(text) > LONG:
        _refuse_early(text, fail)
    header = parse_json(text, fail, "the header")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(type(v) is str for v in metadata.values()):
        raise fail("the header is damaged: __metadata__ must map strings to strings")
    entries = {name: _entry(name, value, fail) for name, value in header.items()}
    at = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].begin):
        if entry.begin != at and entry.nbytes:
            what = "overlaps the tensor before it" if entry.begin < at else "leaves a gap before it"
            raise fail(f"tensor {name!r:.80} at bytes {entry.begin} to {entry.end} {what}, which ends at {at}")
        if entry.end > room:
            raise fail(
                f"tensor {name!r:.80} is at bytes {entry.begin} to {entry.end}, but only {room} bytes follow the "
                "header: the file is cut off or its header is damaged"
            )
        if entry.nbytes:
            at = entry.end
    if exact and at != room:
        raise fail(f"{room} bytes follow the header, its tensors take {at}: the file is damaged")
    return entries, metadata


def _entry(name: str, value: Any, fail: Fail) -> Entry:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise fail(f"the name {name!r:.80} is not valid text") from None
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise fail(f"tensor {name!r:.80}: expected dtype, shape and data_offsets, got {value!r:.80}")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    bits = BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise fail(f"tensor {name!r:.80}: unknown dtype {dtype!r:.40}")
    if not are_sizes(shape) or len(shape) > MAX_DIMS or prod([n for n in shape if n]) * bits >= 2**63:
        raise fail(f"tensor {name!r:.80}: {shape!r:.80} is not a shape that memory could hold")
    if not are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise fail(f"tensor {name!r:.80}: {offsets!r:.80} are not offsets")
    if prod(shape) * bits != 8 * (offsets[1] - offsets[0]):
        raise fail(
            f"tensor {name!r:.80}: {dtype} of shape {shape} does not take the {offsets[1] - offsets[0]} bytes from "
            f"{offsets[0]} to {offsets[1]}"
        )
    return Entry(dtype, tuple(shape), *offsets)


def are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 2**60 for n in value)


def build(entries: Mapping[str, Entry], metadata: Mapping[str, str]) -> bytes:
    """Length and header, padded with spaces so that the data are aligned. Metadata comes first."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    for name, entry in entries.items():
        header[name] = {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [entry.begin, entry.end],
        }
    raw = json.dumps(header, separators=(",", ":"), allow_nan=False).encode("ascii")
    raw += b" " * (-(8 + len(raw)) % ALIGNMENT)
    return len(raw).to_bytes(8, "little") + raw


def arrange(tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, Entry]:
    """Where tensors of these dtypes and shapes go: large elements first, so that each is aligned to its own size."""
    entries, at = {}, 0
    for name, (dtype, shape) in sorted(tensors.items(), key=lambda item: -BITS[item[1][0]]):
        end = at + prod(shape) * BITS[dtype] // 8
        entries[name] = Entry(dtype, shape, at, end)
        at = end
    return entries
