"""DataParallel, as far as one device needs it."""

from __future__ import annotations

from typing import Any

import norch

from ..module import Module


class DataParallel(Module):
    """Calls `module`: what PyTorch's does where there is one device. State dict keys begin with "module.", as there.

    Raises ValueError for more than one of `device_ids`: norch does not split batches over devices; DTypeError where
    `module` is no Module. `output_device` is ignored.
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        if not isinstance(module, Module):
            raise norch.DTypeError(f"DataParallel: {type(module).__name__} is not a Module subclass")
        ids = [] if device_ids is None else list(device_ids)
        if len(ids) > 1:
            raise ValueError(f"DataParallel: device_ids {ids} are several; norch does not split batches over devices")
        self.module = module
        self.device_ids, self.output_device, self.dim = ids, output_device, dim
        if ids:
            module.to(ids[0])

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)
