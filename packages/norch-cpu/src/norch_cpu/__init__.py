"""norch-cpu: the native backend of norch for device "cpu". Nothing here is imported by hand: norch finds it."""

__version__ = "0.1.0"
