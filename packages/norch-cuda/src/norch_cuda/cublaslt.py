"""Where cuBLASLt is: in NVIDIA's wheel (nvidia-cublas), in a toolkit, or where the system looks."""

from __future__ import annotations


def find() -> str:
    """The library's path; nothing where it is not found."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return load_nvidia_dynamic_lib("cublasLt").abs_path or ""
    except Exception:  # the system's own search is tried next, and that one's failure is reported
        return ""
