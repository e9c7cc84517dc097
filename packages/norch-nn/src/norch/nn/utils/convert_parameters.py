"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

import norch


def _check_device(parameters: list[norch.Tensor], op: str) -> None:
    devices = list(dict.fromkeys(str(p.device) for p in parameters))
    if len(devices) > 1:
        raise norch.DeviceError(f"{op}(): parameters on several devices, {' and '.join(devices)}, are not one vector")


def parameters_to_vector(parameters: Iterable[norch.Tensor]) -> norch.Tensor:
    """All elements of the parameters, one after another, 1-D. Raises DeviceError where they are on several devices."""
    given = list(parameters)
    _check_device(given, "parameters_to_vector")
    return norch.cat([p.reshape(-1) for p in given])


def vector_to_parameters(vec: norch.Tensor, parameters: Iterable[norch.Tensor]) -> None:
    """Gives the parameters the elements of a vector, of which they become views.

    Raises DTypeError where `vec` is not a Tensor, ShapeError where it has too few elements.
    """
    if not isinstance(vec, norch.Tensor):
        raise norch.DTypeError(f"vector_to_parameters(): vec must be a Tensor, got {type(vec).__name__}")
    given = list(parameters)
    _check_device(given, "vector_to_parameters")
    needed = sum(p.numel() for p in given)
    if vec.ndim != 1 or vec.numel() < needed:
        raise norch.ShapeError(
            f"vector_to_parameters(): vec {tuple(vec.shape)} does not have the {needed} elements of the parameters"
        )
    at = 0
    for p in given:
        p.data = vec.detach()[at : at + p.numel()].reshape(tuple(p.shape))
        at += p.numel()
