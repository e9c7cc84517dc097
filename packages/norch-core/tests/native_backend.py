"""A backend that compiles every composite: what the tests of composites and captured steps share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import norch
from norch.backend import Kernel, Operand
from norch.dispatch.op import Op
from norch.numpy_backend.backend import NumpyBackend
from norch.ops.families import by_name

Tensor = norch.Tensor


class NativeBackend(NumpyBackend):
    """Runs a composite's decomposition on the CPU as its kernel, and counts calls by op."""

    device_type = "native"

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}

    def compile(self, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
        entry = by_name().get(op)
        if entry is None or entry.kind != "composite":
            return super().compile(op, operands, attrs)
        given = attrs.get("given", (True,) * len(entry.tensors))
        present = dict(zip(entry.tensors, given, strict=True))
        wanted = [i for i in entry.slots if present.get(i, True)]
        outputs = len(operands) - len(wanted)

        def kernel(*args: Any) -> None:
            self.calls[op] = self.calls.get(op, 0) + 1
            flat = iter(args)
            tensors = [next(flat) if o.is_scalar else on_cpu(o, next(flat), next(flat)) for o in operands]
            inputs = dict(zip(wanted, tensors[outputs:], strict=True))
            values = [inputs.get(i) if i in entry.slots else attrs[name] for i, name in enumerate(entry.params)]
            with norch.no_grad():
                found = self.compute(entry, values)
            for out, value in zip(tensors, found if isinstance(found, tuple) else (found,), strict=False):
                out.copy_(value)

        return kernel

    def compute(self, entry: Op, values: list[Any]) -> Any:
        """The result of a composite on tensors of the CPU."""
        assert entry.decompose is not None
        return entry.decompose(*values)


def on_cpu(operand: Operand, buffer: Any, offset: int) -> Tensor:
    """A tensor of the CPU on the operand's memory."""
    size = operand.dtype.itemsize
    strides = tuple(s * size for s in operand.strides)
    start = offset * size if 0 not in operand.shape else 0
    return norch.from_numpy(np.ndarray(operand.shape, operand.dtype.numpy, buffer.data.data, start, strides))
