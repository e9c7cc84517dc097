"""Mixed precision: `autocast`, which runs ops in the dtype that suits them, and `GradScaler`, as PyTorch's."""

from __future__ import annotations

from ..submodules import late_submodules
from .autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available, keep_autocast
from .grad_scaler import GradScaler

__getattr__ = late_submodules(__name__)

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available", "keep_autocast"]
