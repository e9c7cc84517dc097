"""norch-cpu: the native backend of norch for device "cpu". Nothing here is imported by hand: norch finds it."""
