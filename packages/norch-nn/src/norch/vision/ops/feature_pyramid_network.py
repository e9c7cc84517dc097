"""Maps of one depth from the stages of a network, each with what deeper ones know (Lin et al., 2017)."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import norch
from norch import nn
from norch.nn import functional

from .misc import Conv2dNormActivation


class ExtraFPNBlock(nn.Module):
    """The base of what adds maps to a pyramid."""

    def forward(
        self, results: list[norch.Tensor], x: list[norch.Tensor], names: list[str]
    ) -> tuple[list[norch.Tensor], list[str]]:
        """The pyramid's maps, (n, c, h, w) each, and their names, with those that it adds.

        x: the maps that the pyramid was made of. Raises NotImplementedError unless a subclass has its own.
        """
        raise NotImplementedError(f"{type(self).__name__} has no forward")


class FeaturePyramidNetwork(nn.Module):
    """A 1 x 1 convolution of each map, plus the deeper one's twice as large, then a 3 x 3 one; after Lin et al. (2017).

    in_channels_list: channels of each map, from the largest map to the smallest. out_channels: of all results.
    extra_blocks: an `ExtraFPNBlock` for more maps. norm_layer: what makes norms after the convolutions. Raises
    ValueError for a map without channels, DTypeError for other extra_blocks.
    """

    def __init__(
        self,
        in_channels_list: Sequence[int],
        out_channels: int,
        extra_blocks: ExtraFPNBlock | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        if 0 in in_channels_list:
            raise ValueError("FeaturePyramidNetwork: a map of in_channels_list has no channels")
        if extra_blocks is not None and not isinstance(extra_blocks, ExtraFPNBlock):
            raise norch.DTypeError(f"extra_blocks must be an ExtraFPNBlock, got {type(extra_blocks).__name__}")

        def convolution(channels: int, size: int) -> nn.Module:
            return Conv2dNormActivation(channels, out_channels, size, norm_layer=norm_layer, activation_layer=None)

        self.inner_blocks = nn.ModuleList(convolution(channels, 1) for channels in in_channels_list)
        self.layer_blocks = nn.ModuleList(convolution(out_channels, 3) for _ in in_channels_list)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                _initialise(module)
        self.extra_blocks = extra_blocks

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Old files have no module around each convolution."""
        old = re.compile(re.escape(prefix) + r"(inner|layer)_blocks\.\d+\.(weight|bias)")
        for key in [key for key in state_dict if old.fullmatch(key)]:
            block, _, name = key.rpartition(".")
            state_dict[f"{block}.0.{name}"] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def get_result_from_inner_blocks(self, x: norch.Tensor, idx: int) -> norch.Tensor:
        """The 1 x 1 convolution of number `idx` of the map x (n, c, h, w)."""
        return self.inner_blocks[idx](x)

    def get_result_from_layer_blocks(self, x: norch.Tensor, idx: int) -> norch.Tensor:
        """The 3 x 3 convolution of number `idx` of the map x (n, c, h, w)."""
        return self.layer_blocks[idx](x)

    def forward(self, x: dict[str, norch.Tensor]) -> dict[str, norch.Tensor]:
        """Maps (n, c, h, w) by name -> maps (n, out_channels, h, w) by the same names and those of extra_blocks."""
        names, maps = list(x), list(x.values())
        results: list[norch.Tensor] = []
        above: norch.Tensor | None = None
        for i in reversed(range(len(maps))):
            own = self.get_result_from_inner_blocks(maps[i], i)
            above = own if above is None else own + functional.interpolate(above, size=own.shape[-2:], mode="nearest")
            results.insert(0, self.get_result_from_layer_blocks(above, i))
        if self.extra_blocks is not None:
            results, names = self.extra_blocks(results, maps, names)
        return OrderedDict(zip(names, results))


def _initialise(convolution: nn.Conv2d) -> None:
    nn.init.kaiming_uniform_(convolution.weight, a=1)
    if convolution.bias is not None:
        nn.init.zeros_(convolution.bias)


class LastLevelMaxPool(ExtraFPNBlock):
    """Adds every other pixel of the last map, as "pool"."""

    def forward(  # type: ignore[override]
        self, x: list[norch.Tensor], y: list[norch.Tensor], names: list[str]
    ) -> tuple[list[norch.Tensor], list[str]]:
        """x: the pyramid's maps, (n, c, h, w); y: what they were made of; names: of x."""
        return [*x, x[-1][:, :, ::2, ::2]], [*names, "pool"]


class LastLevelP6P7(ExtraFPNBlock):
    """Adds two maps, each of half the size, by convolutions: "p6" and "p7" of RetinaNet (Lin et al., 2017).

    in_channels: of the last map that the pyramid was made of, which is convolved unless it has as many channels as the
    pyramid's last, out_channels.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.p6 = nn.Conv2d(in_channels, out_channels, 3, 2, 1)
        self.p7 = nn.Conv2d(out_channels, out_channels, 3, 2, 1)
        for module in (self.p6, self.p7):
            _initialise(module)
        self.use_P5 = in_channels == out_channels

    def forward(  # type: ignore[override]
        self, p: list[norch.Tensor], c: list[norch.Tensor], names: list[str]
    ) -> tuple[list[norch.Tensor], list[str]]:
        """p: the pyramid's maps, (n, c, h, w); c: what they were made of; names: of p."""
        p6 = self.p6((p if self.use_P5 else c)[-1])
        return [*p, p6, self.p7(functional.relu(p6))], [*names, "p6", "p7"]
