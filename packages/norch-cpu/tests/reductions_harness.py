"""Values, dtypes and layouts that tests of reductions and of scans share."""

from __future__ import annotations

from functools import cache

import numpy as np

import norch

FLOATS = [norch.float64, norch.float32, norch.float16, norch.bfloat16]
INTS = [norch.int64, norch.int32, norch.int16, norch.int8, norch.uint8]
DTYPES = [*FLOATS, *INTS, norch.bool]
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
LAYOUTS = ["dense", "reversed", "stepped", "offset", "expanded"]
ids = {"ids": lambda v: v.name if isinstance(v, norch.dtype) else None}


def placed(values, dtype, layout="dense"):
    """A tensor with these values in a layout, and what the rounded values are as an array."""
    values = np.asarray(values)
    if layout == "reversed":
        x = norch.tensor(values.T.copy(), dtype=dtype).permute(tuple(range(values.ndim))[::-1])
    elif layout == "stepped":
        wide = np.full((*values.shape[:-1], 2 * values.shape[-1]), 77, values.dtype)
        wide[..., ::2] = values
        x = norch.tensor(wide, dtype=dtype)[..., ::2]
    elif layout == "offset":
        wide = np.full((values.shape[0] + 1, *values.shape[1:]), 77, values.dtype)
        wide[1:] = values
        x = norch.tensor(wide, dtype=dtype)[1:]
    elif layout == "expanded":
        x = norch.tensor(values[..., :1], dtype=dtype).expand(values.shape)
    else:
        x = norch.tensor(values, dtype=dtype)
    return x, x.contiguous().numpy()


def numbers(shape, dtype, seed=0):
    """The same for every layout and op."""
    kind = "float" if dtype.is_floating_point else "bool" if dtype is norch.bool else "int"
    return _numbers(tuple(shape), kind, seed)


@cache
def _numbers(shape, kind, seed):
    rng = np.random.default_rng(seed)
    found = rng.normal(size=shape) if kind == "float" else rng.integers(0, 2 if kind == "bool" else 100, shape)
    found.flags.writeable = False
    return found
