"""What `norch.opencl` offers beside what every device has."""

import norch


def get_device_name(device: norch.device | str | int = 0) -> str:
    """The name that the driver gives a device."""
    return _device(device).device.name.strip()


def empty_cache(device: norch.device | str | int = 0) -> None:
    """Gives memory that no tensor uses back to the driver."""
    _device(device).pool.free_held()


def _device(device: norch.device | str | int):
    found = norch.device(f"opencl:{device}" if isinstance(device, int) else device)
    if found.type != "opencl":
        raise norch.DeviceError(f"{found} is no OpenCL device")
    return found.backend.run.devices[found.index or 0]
