"""norch-cuda: the backend of norch for NVIDIA GPUs, device "cuda". Nothing here is imported by hand: norch finds it."""
