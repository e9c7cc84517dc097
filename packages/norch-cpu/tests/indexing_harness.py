"""What the tests of gather, scatter and what is made of them share: exact numbers, and layouts."""

import ml_dtypes
import numpy as np

import norch

FLOATS = ("float64", "float32", "float16", "bfloat16")
DTYPES = (*FLOATS, "int64", "int32", "int16", "int8", "uint8", "bool")
INTS = ("int64", "int32", "int16", "int8", "uint8")


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def values(name, *shape, seed=0):
    """Small integers, whose sums are exact in every dtype."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2 if name == "bool" else 4, shape).astype(numpy_dtype(name))


def tensor(array):
    return norch.tensor(array.tolist(), dtype=getattr(norch, array.dtype.name)).reshape(array.shape)


def as_float(t):
    return np.array(t.tolist(), float).reshape(t.shape)


def layouts(array):
    """Tensors of the array's values in several layouts."""
    x = tensor(array)
    yield x
    if array.ndim > 1:
        reverse = tuple(range(array.ndim))[::-1]
        yield x.permute(reverse).contiguous().permute(reverse)
        yield x.transpose(-1, -2).contiguous().transpose(-1, -2)
    yield norch.stack([x, x, x], -1)[..., 1]
