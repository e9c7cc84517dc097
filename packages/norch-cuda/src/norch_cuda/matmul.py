"""What matrix products need of Python: where cuBLASLt is, and in which precision float32 is multiplied."""

from __future__ import annotations

from norch.op import forget_plans

from . import _ext

_PRECISIONS = ("highest", "high", "medium")
_precision = "highest"


def _find_cublaslt() -> str:
    """The library's path: from NVIDIA's wheel or toolkit. Nothing where it is not found."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return load_nvidia_dynamic_lib("cublasLt").abs_path or ""
    except Exception:  # the system's own search is tried next, and that one's failure is reported
        return ""


_ext.set_cublaslt_finder(_find_cublaslt)


def set_float32_matmul_precision(precision: str) -> None:
    """How matrix products of float32 are computed: "highest" (the default) in float32, "high" or "medium" in tf32,
    which has 10 bits of mantissa and is several times as fast."""
    global _precision
    if precision not in _PRECISIONS:
        raise ValueError(f"set_float32_matmul_precision(): expected one of {', '.join(_PRECISIONS)}, got {precision!r}")
    allows = precision != "highest"
    if allows != _ext.get_allows_tf32():
        _ext.set_allows_tf32(allows)
        forget_plans()
    _precision = precision


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` was given last."""
    return _precision
