"""From a call of an op to a kernel: ops, their plans, the call paths, and the fallback on the CPU."""
