"""The dtypes of safetensors files as norch's and NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtype import (
    DType,
    bfloat16,
    bool_,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

NAMES: dict[DType, str] = {
    bool_: "BOOL", uint8: "U8", int8: "I8", int16: "I16", int32: "I32", int64: "I64",
    float16: "F16", bfloat16: "BF16", float32: "F32", float64: "F64",
    uint16: "U16", uint32: "U32", uint64: "U64", float8_e4m3fn: "F8_E4M3", float8_e5m2: "F8_E5M2",
    float8_e4m3fnuz: "F8_E4M3FNUZ", float8_e5m2fnuz: "F8_E5M2FNUZ",
}  # fmt: skip
DTYPES = {name: dtype for dtype, name in NAMES.items()}

_FOREIGN = {"C64": "complex64"}
_ML_DTYPES = {"F8_E8M0": "float8_e8m0fnu"}
_BY_NUMPY_NAME = {
    **{dtype.name: name for dtype, name in NAMES.items()},
    **{numpy_name: name for name, numpy_name in (_FOREIGN | _ML_DTYPES).items()},
}


def numpy_dtype(name: str) -> np.dtype[Any] | None:
    """The NumPy dtype of a dtype of the format; None where there is none."""
    if name in DTYPES:
        return DTYPES[name].numpy
    if name in _FOREIGN:
        return np.dtype(_FOREIGN[name])
    if name in _ML_DTYPES:
        import ml_dtypes

        kind = getattr(ml_dtypes, _ML_DTYPES[name], None)
        return None if kind is None else np.dtype(kind)
    return None


def name_of(dtype: np.dtype[Any]) -> str | None:
    """The format's name of a NumPy dtype of any byte order; None where it has none."""
    return _BY_NUMPY_NAME.get(dtype.name)
