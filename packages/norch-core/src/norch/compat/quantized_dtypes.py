"""The dtypes of PyTorch's quantised tensors and those of few bits: names to be compared with, which no tensor of norch
has."""

from __future__ import annotations

from .. import shown


class QuantizedDType:
    """A name for a dtype of integers that stand for scaled numbers, or have fewer bits than a byte.

    Attributes: `name`, `itemsize` (bytes), `is_signed`, `is_floating_point` and `is_complex` (False).
    """

    __slots__ = ("is_signed", "itemsize", "name")
    is_floating_point, is_complex = False, False

    def __init__(self, name: str, itemsize: int) -> None:
        self.name, self.itemsize, self.is_signed = name, itemsize, not name.startswith(("qu", "u"))

    def __repr__(self) -> str:
        return f"{shown.root}.{self.name}"

    def __reduce__(self) -> str:
        return self.name


qint8, quint8, qint32 = QuantizedDType("qint8", 1), QuantizedDType("quint8", 1), QuantizedDType("qint32", 4)
quint4x2, quint2x4 = QuantizedDType("quint4x2", 1), QuantizedDType("quint2x4", 1)
int1, int2, int3, int4, int5, int6, int7 = [QuantizedDType(f"int{bits}", 1) for bits in range(1, 8)]
uint1, uint2, uint3, uint4, uint5, uint6, uint7 = [QuantizedDType(f"uint{bits}", 1) for bits in range(1, 8)]


class qscheme:
    """A name for how PyTorch scales the numbers of a quantised tensor. Shows as `norch.per_tensor_affine`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"{shown.root}.{self.name}"

    def __reduce__(self) -> str:
        return self.name


per_tensor_affine, per_tensor_symmetric = qscheme("per_tensor_affine"), qscheme("per_tensor_symmetric")
per_channel_affine, per_channel_symmetric = qscheme("per_channel_affine"), qscheme("per_channel_symmetric")
per_channel_affine_float_qparams = qscheme("per_channel_affine_float_qparams")
