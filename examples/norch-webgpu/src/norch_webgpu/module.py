"""What `norch.webgpu` has beside what every device has."""

from typing import Any

import norch


def _device(device: norch.device | str | int) -> Any:
    found = norch.device(f"webgpu:{device}" if isinstance(device, int) else device)
    if found.type != "webgpu":
        raise norch.DeviceError(f"{found} is no WebGPU device")
    return found.backend.run.devices[found.index]


def get_device_name(device: norch.device | str | int = 0) -> str:
    """The name that the driver gives a device."""
    name: str = _device(device).name
    return name


def get_device_properties(device: norch.device | str | int = 0) -> dict[str, Any]:
    """The adapter's "name", "api", "driver" and "type", the "features" in use, its "limits", the dtypes "refused"."""
    found = _device(device)
    info = found.adapter.info
    return {
        "name": found.name, "api": info["backend_type"], "driver": info["description"], "type": info["adapter_type"],
        "features": sorted(found.features), "limits": dict(found.limits),
        "refused": norch.device("webgpu").backend.missing_dtypes,
    }  # fmt: skip


def memory_allocated(device: norch.device | str | int = 0) -> int:
    """Bytes that tensors hold."""
    pool = _device(device).pool
    pool.collect()
    return int(pool.used)


def max_memory_allocated(device: norch.device | str | int = 0) -> int:
    """The most bytes that tensors held at once."""
    return int(_device(device).pool.peak)


def memory_reserved(device: norch.device | str | int = 0) -> int:
    """Bytes of the buffers that tensors are pieces of."""
    return int(_device(device).pool.reserved())


def empty_cache(device: norch.device | str | int = 0) -> None:
    """Gives buffers of which no tensor holds a piece back to the device."""
    _device(device).pool.release()
