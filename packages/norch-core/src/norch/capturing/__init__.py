"""`norch.capture`: a step that trains or infers is recorded as a list of kernel calls and replayed in one call."""
