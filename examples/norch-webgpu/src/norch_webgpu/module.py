"""What `norch.webgpu` has beside what every device has. Each function takes a device, or its index."""

from typing import Any

import norch

Which = norch.device | str | int


def _device(device: Which) -> Any:
    found = norch.device(f"webgpu:{device}" if isinstance(device, int) else device)
    if found.type != "webgpu":
        raise norch.DeviceError(f"{found} is no WebGPU device")
    return found.backend.run.devices[found.index or 0]


def get_device_name(device: Which = 0) -> str:
    """The name that the driver gives a device."""
    return str(_device(device).name)


def get_device_properties(device: Which = 0) -> dict[str, Any]:
    """The adapter's "name", "api", "driver" and "type", the "features" in use, its "limits", the dtypes "refused"."""
    found = _device(device)
    names = {"api": "backend_type", "driver": "description", "type": "adapter_type"}
    said = {"name": found.name, **{name: found.adapter.info[key] for name, key in names.items()}}
    refused = norch.device("webgpu").backend.missing_dtypes
    return {**said, "features": found.features, "limits": dict(found.limits), "refused": refused}


def memory_allocated(device: Which = 0) -> int:
    """Bytes that tensors hold."""
    _device(device).pool.collect()
    return int(_device(device).pool.used)


def max_memory_allocated(device: Which = 0) -> int:
    """The most bytes that tensors held at once."""
    return int(_device(device).pool.peak)


def memory_reserved(device: Which = 0) -> int:
    """Bytes of the buffers that tensors are pieces of."""
    return int(_device(device).pool.reserved())


def empty_cache(device: Which = 0) -> None:
    """Gives buffers of which no tensor holds a piece back to the device."""
    _device(device).pool.release()
