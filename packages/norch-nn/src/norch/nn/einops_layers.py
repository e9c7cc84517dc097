"""The layers of einops as modules: `from einops.layers.norch import Rearrange, Reduce, EinMix`."""

from __future__ import annotations

from typing import Any

from einops.layers import RearrangeMixin, ReduceMixin
from einops.layers._einmix import _EinmixMixin

import norch
from norch.nn.module import Module
from norch.nn.parameter import Parameter


class Rearrange(RearrangeMixin, Module):  # type: ignore[misc,unused-ignore]
    """einops.rearrange as a module: `Rearrange("b c h w -> b (c h w)")`. Raises EinopsError for a wrong pattern."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return self._apply_recipe(input)  # type: ignore[no-any-return,unused-ignore]


class Reduce(ReduceMixin, Module):  # type: ignore[misc,unused-ignore]
    """einops.reduce as a module: `Reduce("b c h w -> b c", "mean")`. Raises EinopsError for a wrong pattern."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return self._apply_recipe(input)  # type: ignore[no-any-return,unused-ignore]


class EinMix(_EinmixMixin, Module):  # type: ignore[misc,unused-ignore]
    """einops' linear layer: `EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=8, d=16)`."""

    def _create_parameters(self, weight_shape: Any, weight_bound: float, bias_shape: Any, bias_bound: float) -> None:
        self.weight = Parameter(norch.zeros(weight_shape).uniform_(-weight_bound, weight_bound))
        self.bias = None if bias_shape is None else Parameter(norch.zeros(bias_shape).uniform_(-bias_bound, bias_bound))

    def _create_rearrange_layers(self, pre: Any, pre_lengths: Any, post: Any, post_lengths: Any) -> None:
        self.pre_rearrange = None if pre is None else Rearrange(pre, **pre_lengths)
        self.post_rearrange = None if post is None else Rearrange(post, **post_lengths)

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        if self.pre_rearrange is not None:
            input = self.pre_rearrange(input)
        out = norch.einsum(self.einsum_pattern, input, self.weight)
        out = out if self.bias is None else out + self.bias
        return out if self.post_rearrange is None else self.post_rearrange(out)  # type: ignore[no-any-return,unused-ignore]
