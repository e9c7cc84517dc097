"""What programs ask of tensors, in sizes that they have: `rows(op, lib, device)` of each module calls `op(name,
function, *inputs, grad=True)`, where inputs are made by functions, for norch and PyTorch alike."""

from . import (
    attention,
    elementwise,
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
    rows,
    order,
    indices,
    layouts,
    products,
    elementwise,
    transforms,
    attention,
    linear_algebra,
    steps,
)
