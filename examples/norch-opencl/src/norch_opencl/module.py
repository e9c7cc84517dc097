"""What `norch.opencl` offers beside what every device has."""

import norch


def get_device_name(device: norch.device | str | int = 0) -> str:
    """The name that the driver gives a device."""
    found = norch.device(f"opencl:{device}" if isinstance(device, int) else device)
    if found.type != "opencl":
        raise norch.DeviceError(f"get_device_name(): {found} is no OpenCL device")
    return found.backend.run.devices[found.index].device.name.strip()
