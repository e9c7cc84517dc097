"""How precise matrix products of float32 must be."""

from __future__ import annotations

PRECISIONS = ("highest", "high", "medium")
_precision = "highest"


def set_float32_matmul_precision(precision: str) -> None:
    """Lets float32 matrix products (and convolutions) be less precise, where a device is then faster.

    "highest", the default: float32. "high" and "medium": factors may be rounded to tf32, which has float32's range and
    10 bits of mantissa, and are summed in float32. Devices without tf32 take no notice. Raises ValueError for another
    name. Kernels are compiled anew after a change: set it once.
    """
    global _precision
    if precision not in PRECISIONS:
        raise ValueError(f"set_float32_matmul_precision(): expected one of {', '.join(PRECISIONS)}, got {precision!r}")
    if precision != _precision:
        from .op import forget_plans

        _precision = precision
        forget_plans()


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` was given last. A backend asks this in `compile`."""
    return _precision
