"""What WGSL makes of norch's dtypes: how each is stored, and in which type its values are computed with.

- float32 and int32 are WGSL's own. int64 is i64, where the adapter has shader-int64; without it, int64 is only moved.
- Dtypes of 1 and 2 bytes lie in u32 words, 4 and 2 to a word. float16 and bfloat16 are computed in float32 and rounded
  once, to nearest even; the integers in int32, cut to their width when they are stored.
- A word that a tensor has in part is changed by atomics, so that neighbours keep their bytes.
- float64 and complex dtypes are refused: no adapter but Vulkan's knows float64, and none has its functions.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from norch.backend import Operand

Attrs = Mapping[str, Any]
Operands = tuple[Operand, ...]
Number = Callable[[Any], Any]  # from a scalar operand to what `struct` packs


class Kind(NamedTuple):
    """`computed` is the WGSL type of a value, `per_word` how many elements a u32 holds, `code` the struct format of a
    number, `help` WGSL functions from bits to a value (decode_NAME) and back (encode_NAME)."""

    name: str
    computed: str
    per_word: int = 1
    code: str = "I"
    help: str = ""

    @property
    def is_floating(self) -> bool:
        return self.computed == "f32"

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return 8 if self.code in "qQ" else 4 // self.per_word

    def rounded(self, value: str) -> str:
        """A value as it would be read again after it was stored."""
        return f"decode_{self.name}(encode_{self.name}({value}))" if self.per_word > 1 else value


FLOAT16 = """
fn decode_float16(w: u32) -> f32 {
    let m = w & 0x3ffu; let e = w & 0x7c00u; let s = (w & 0x8000u) << 16u;
    if (e == 0x7c00u) { return bitcast<f32>(s | 0x7f800000u | m << 13u); }
    if (e == 0u) { return bitcast<f32>(s | bitcast<u32>(f32(m) * 0x1p-24f)); }
    return bitcast<f32>(s | ((w & 0x7fffu) << 13u) + 0x38000000u);
}
fn encode_float16(v: f32) -> u32 {
    let b = bitcast<u32>(v); let a = b & 0x7fffffffu; let s = b >> 16u & 0x8000u;
    if (a > 0x7f800000u) { return s | 0x7e00u; }
    if (a >= 0x477ff000u) { return s | 0x7c00u; }
    if (a < 0x33000001u) { return s; }
    if (a < 0x38800000u) { // subnormal: the last bits of the fraction go
        let m = a & 0x7fffffu | 0x800000u; let n = 126u - (a >> 23u);
        let q = m >> n; let rest = m & ((1u << n) - 1u); let half = 1u << (n - 1u);
        return s | q + u32(rest > half || (rest == half && (q & 1u) == 1u));
    }
    return s | (a + 0xfffu + (a >> 13u & 1u) - 0x38000000u) >> 13u;
}
"""
BFLOAT16 = """
fn decode_bfloat16(w: u32) -> f32 { return bitcast<f32>(w << 16u); }
fn encode_bfloat16(v: f32) -> u32 {
    let b = bitcast<u32>(v);
    return select((b + 0x7fffu + (b >> 16u & 1u)) >> 16u, 0x7fc0u, (b & 0x7fffffffu) > 0x7f800000u);
}
"""
SMALL = """
fn decode_{0}(w: u32) -> {1} {{ return {2}; }}
fn encode_{0}(v: {1}) -> u32 {{ return {3}; }}
"""


def _small(name: str, per_word: int, decode: str, encode: str = "", computed: str = "i32") -> Kind:
    encode = encode or f"u32(v) & {(1 << 32 // per_word) - 1}u"
    return Kind(
        name, computed, per_word, "i" if computed == "i32" else "I", SMALL.format(name, computed, decode, encode)
    )


KINDS = {
    kind.name: kind
    for kind in (
        Kind("float32", "f32", code="f"), Kind("int32", "i32", code="i"), Kind("int64", "i64", code="q"),
        Kind("float16", "f32", 2, "f", FLOAT16), Kind("bfloat16", "f32", 2, "f", BFLOAT16),
        _small("int16", 2, "extractBits(i32(w), 0u, 16u)"), _small("int8", 4, "extractBits(i32(w), 0u, 8u)"),
        _small("uint8", 4, "i32(w)"), _small("bool", 4, "i32(w)", "u32(v != 0)"),
        # These are moved and not computed with:
        _small("bytes1", 4, "w", "v", "u32"), _small("bytes2", 2, "w", "v", "u32"), Kind("bytes4", "u32"),
        Kind("bytes8", "vec2<u32>", code="Q"),
    )
}  # fmt: skip


def kind(operand: Operand) -> Kind:
    """The kind of an operand, for what computes with it. Raises KeyError for a dtype that is refused."""
    return KINDS[operand.dtype.name]


def raw(operand: Operand) -> Kind:
    """The kind of the bytes of an element, for what only moves them: dtypes of one size share a program."""
    return KINDS[f"bytes{operand.dtype.itemsize}"]


def as_bits(o: Operand) -> Number:
    """A number's bytes in the dtype."""
    unsigned = np.dtype(f"u{o.dtype.itemsize}")
    return np.errstate(all="ignore")(lambda value: int(np.array(value).astype(o.dtype.numpy).view(unsigned)))


def as_stored(o: Operand) -> Number:
    """A number as the dtype holds it."""
    if not o.dtype.is_floating_point:
        return int
    return np.errstate(all="ignore")(lambda value: float(np.array(value).astype(o.dtype.numpy)))


def as_computed(o: Operand) -> Number:
    """A number in the type computed in, which for 16-bit floats has more digits."""
    return as_float32 if o.dtype.is_floating_point else int


def as_float32(value: Any) -> float:
    return value if -3e38 < value < 3e38 else float(np.float32(value))
