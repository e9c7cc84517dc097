"""How norch's dtypes are stored, and in which type of WGSL their values are computed with: the README tells it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from norch.backend import Operand

Attrs = Mapping[str, Any]
Operands = tuple[Operand, ...]
Number = Callable[[Any], Any]  # from a scalar operand to what `struct` packs


class Kind(NamedTuple):
    """`computed` is the WGSL type of a value, `per_word` how many elements a u32 holds, `code` the struct format of a
    number. Functions of WGSL go from bits to a value, decode_NAME, and back, encode_NAME, where words are shared."""

    name: str
    computed: str
    per_word: int = 1
    code: str = "I"

    @property
    def is_floating(self) -> bool:
        return self.computed == "f32"

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return 8 if self.code in "qQ" else 4 // self.per_word

    def rounded(self, value: str) -> str:
        """A value as it would be read again after it was stored, hidden by P.zero from compilers that know better."""
        if self.per_word > 1:
            return f"decode_{self.name}(encode_{self.name}({value}) ^ P.zero)"
        return f"bitcast<f32>(bitcast<u32>({value}) ^ P.zero)" if self.is_floating else value


KINDS = {kind.name: kind for kind in (
    Kind("float32", "f32", 1, "f"), Kind("float16", "f32", 2, "f"), Kind("bfloat16", "f32", 2, "f"),
    Kind("int64", "i64", 1, "q"), Kind("int32", "i32", 1, "i"), Kind("int16", "i32", 2, "i"),
    Kind("int8", "i32", 4, "i"), Kind("uint8", "i32", 4, "i"), Kind("bool", "i32", 4, "i"),
    # These are moved and not computed with:
    Kind("bytes1", "u32", 4), Kind("bytes2", "u32", 2), Kind("bytes4", "u32"), Kind("bytes8", "vec2<u32>", 1, "Q"),
)}  # fmt: skip


def kind(operand: Operand) -> Kind:
    """The kind of an operand, for what computes with it."""
    return KINDS[operand.dtype.name]


def raw(operand: Operand) -> Kind:
    """The kind of the bytes of an element, for what only moves them: dtypes of one size share a program."""
    return KINDS[f"bytes{operand.dtype.itemsize}"]


def as_bits(o: Operand) -> Number:
    """A number's bytes in the dtype."""
    stored = np.errstate(all="ignore")(lambda value: np.array(value).astype(o.dtype.numpy))
    return lambda value: int(stored(value).view(f"u{o.dtype.itemsize}"))


@np.errstate(over="ignore")
def as_float32(value: Any) -> float:
    return value if -3e38 < value < 3e38 else float(np.float32(value))
