"""U-Net (Ronneberger et al., 2015), with batch normalization and padding, so that the size is kept."""

from __future__ import annotations

from collections.abc import Sequence

import norch
from norch import nn

from .building import builder


def _twice(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [
            nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """What each pixel is: (n, in_channels, h, w) -> (n, num_classes, h, w).

    widths: the channels at each size, of which the first is that of the image and each next half of it.
    """

    def __init__(
        self, in_channels: int = 3, num_classes: int = 1, widths: Sequence[int] = (64, 128, 256, 512, 1024)
    ) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(_twice(a, b) for a, b in zip([in_channels, *widths], widths))
        self.pool = nn.MaxPool2d(2)
        steps = list(zip(widths[:0:-1], widths[-2::-1]))
        self.ups = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in steps)
        self.decoders = nn.ModuleList(_twice(2 * b, b) for _, b in steps)
        self.head = nn.Conv2d(widths[0], num_classes, 1)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        seen = [self.encoders[0](x)]
        for encoder in self.encoders[1:]:
            seen.append(encoder(self.pool(seen[-1])))
        x = seen.pop()
        for up, decoder in zip(self.ups, self.decoders):
            beside = seen.pop()
            x = decoder(norch.cat([beside, up(x, output_size=beside.shape[-2:])], 1))
        return self.head(x)


unet = builder("unet", UNet, doc="U-Net")
