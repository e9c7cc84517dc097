"""What programs ask of tensors, in sizes that they have: `rows(op, lib, device)` of each module calls `op(name,
function, *inputs, grad=True)`, where inputs are made by functions, for norch and PyTorch alike."""

from . import (
    attention,
    channels_last,
    elementwise,
    half_precision,
    indices,
    layouts,
    linear_algebra,
    order,
    pooling_and_convolution,
    products,
    rows,
    sampling,
    steps,
    transforms,
)

MODULES = (
    sampling,
    pooling_and_convolution,
    channels_last,
    rows,
    order,
    indices,
    layouts,
    products,
    elementwise,
    half_precision,
    transforms,
    attention,
    linear_algebra,
    steps,
)
