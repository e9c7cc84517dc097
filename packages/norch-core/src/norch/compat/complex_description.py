"""What complex numbers are that are kept as pairs of real ones: their shape, dtype and device, and their values for
Python and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtype import bfloat16, complex32, complex64, complex128, float16, float32, float64
from ..tensor import Tensor

_DTYPES = {float16: complex32, bfloat16: complex32, float32: complex64, float64: complex128}


class Described:
    """The part of a ComplexPair that asks its `pair`, whose last dim holds real and imaginary parts."""

    __slots__ = ()
    pair: Tensor
    real: Tensor
    imag: Tensor

    shape = property(lambda self: type(self.pair.shape)(self.pair.shape[:-1]), doc="Without the dim of the parts.")
    ndim = property(lambda self: self.pair.ndim - 1, doc="How many dims there are, without that of the parts.")
    device = property(lambda self: self.pair.device, doc="Where the parts are.")
    dtype = property(lambda self: _DTYPES[self.pair.dtype], doc="complex64 of float32 parts.")
    is_meta = property(lambda self: self.pair.is_meta, doc="Whether it is on the device 'meta', without values.")
    is_cuda = property(lambda self: self.pair.is_cuda, doc="Whether the parts are on a CUDA device.")
    requires_grad = property(
        lambda self: self.pair.requires_grad,
        lambda self, value: setattr(self.pair, "requires_grad", value),
        doc="Whether the graph records what it is in.",
    )
    is_leaf = property(lambda self: self.pair.is_leaf, doc="Whether it is no result of an op that is recorded.")
    grad_fn = property(lambda self: self.pair.grad_fn, doc="The op that it is a result of, if that is recorded.")

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return int(self.ndim)

    def numel(self) -> int:
        return self.pair.numel() // 2

    nelement = numel

    def element_size(self) -> int:
        return 2 * self.pair.element_size()

    def is_contiguous(self) -> bool:
        return self.pair.is_contiguous()

    def is_conj(self) -> bool:
        return False

    def is_complex(self) -> bool:
        return True

    def is_floating_point(self) -> bool:
        return False

    def __len__(self) -> int:
        return len(self.real)

    def _described(self) -> str:
        """What errors say of it."""
        return f"a {self.dtype} ComplexPair of shape {tuple(self.shape)}"

    def __repr__(self) -> str:
        return f"ComplexPair(real={self.real!r}, imag={self.imag!r})"

    def tolist(self) -> Any:
        def join(re: Any, im: Any) -> Any:
            return [join(a, b) for a, b in zip(re, im, strict=True)] if isinstance(re, list) else complex(re, im)

        return join(self.real.tolist(), self.imag.tolist())

    def item(self) -> Any:
        return complex(self.real.item(), self.imag.item())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        values: np.ndarray[Any, Any] = self.numpy()
        return values if dtype is None else values.astype(dtype)

    def numpy(self) -> Any:
        re, im = self.real.numpy(), self.imag.numpy()
        out = np.empty(re.shape, np.result_type(re.dtype, np.complex64))  # 1j * inf would have a real part, NaN
        out.real, out.imag = re, im
        return out
