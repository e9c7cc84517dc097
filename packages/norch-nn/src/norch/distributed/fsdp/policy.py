"""In which dtypes a sharded module computes and its gradients are reduced."""

from __future__ import annotations

from dataclasses import dataclass

import norch


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes of a sharded module, None for as they are. The optimiser's parameters keep theirs.

    param_dtype: what gathered parameters are, so that the module computes in it and half as many bytes travel.
    reduce_dtype: what gradients are reduced in. output_dtype: what its results are cast to. cast_forward_inputs:
    whether floating arguments of `forward` are cast to param_dtype.
    """

    param_dtype: norch.DType | None = None
    reduce_dtype: norch.DType | None = None
    output_dtype: norch.DType | None = None
    cast_forward_inputs: bool = True


@dataclass(frozen=True)
class OffloadPolicy:
    """Of `fully_shard`: that nothing is kept elsewhere than where it is computed with."""
