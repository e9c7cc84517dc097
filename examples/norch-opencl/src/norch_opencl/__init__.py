"""An OpenCL backend for norch: device "opencl"."""
