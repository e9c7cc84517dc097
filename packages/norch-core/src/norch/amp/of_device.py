"""`norch.cuda.amp` and its like: what `norch.amp` has, for one device type."""

from __future__ import annotations

from functools import cache, partial
from types import ModuleType
from typing import Any

from ..dtype import DType
from . import GradScaler, autocast, custom_bwd, custom_fwd


@cache
def amp_of(device_type: str) -> ModuleType:
    """The module `amp` of a device type."""

    class Autocast(autocast):
        def __init__(self, enabled: bool = True, dtype: DType | None = None, cache_enabled: bool | None = None) -> None:
            super().__init__(device_type, dtype, enabled, cache_enabled)

    class Scaler(GradScaler):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(device_type, *args, **kwargs)

    module: Any = ModuleType(f"norch.{device_type}.amp", f"`norch.amp` for {device_type!r}.")
    for name, kind in (("autocast", Autocast), ("GradScaler", Scaler)):
        kind.__name__ = kind.__qualname__ = name
        kind.__module__ = module.__name__
        setattr(module, name, kind)
    module.custom_fwd = partial(custom_fwd, device_type=device_type)
    module.custom_bwd = partial(custom_bwd, device_type=device_type)
    module.__path__ = ()
    return module  # type: ignore[no-any-return]
