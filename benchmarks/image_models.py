"""Networks on images that a benchmark trains, each written once for norch and for PyTorch: `lib` is either one."""

from __future__ import annotations

from typing import Any


def resnet18(lib: Any, classes: int = 10) -> Any:
    """ResNet-18 (He et al., 2016) for images of 32 x 32: its first convolution has stride 1 and no pooling."""
    nn = lib.nn

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, before: int, channels: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(channels)
            self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(channels)
            self.skip = nn.Sequential()
            if stride != 1 or before != channels:
                self.skip = nn.Sequential(nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

        def forward(self, x: Any) -> Any:
            out = nn.functional.relu(self.norm1(self.conv1(x)))
            out = self.norm2(self.conv2(out))
            out += self.skip(x)
            return nn.functional.relu(out)

    sizes = [
        (64, 64, 1),
        (64, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
        (128, 256, 2),
        (256, 256, 1),
        (256, 512, 2),
        (512, 512, 1),
    ]
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        *[Block(*size) for size in sizes],
        nn.AvgPool2d(4), nn.Flatten(), nn.Linear(512, classes),
    )  # fmt: skip


def unet(lib: Any, channels: int = 3, classes: int = 2) -> Any:
    """U-Net (Ronneberger et al., 2015) with batch_norm, widths 64 to 1024."""
    nn = lib.nn

    def double(before: int, after: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
        )  # fmt: skip

    class Up(nn.Module):  # type: ignore[misc]
        def __init__(self, before: int) -> None:
            super().__init__()
            self.grow, self.both = nn.ConvTranspose2d(before, before // 2, 2, 2), double(before, before // 2)

        def forward(self, x: Any, skip: Any) -> Any:
            return self.both(lib.cat([skip, self.grow(x)], 1))

    class UNet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.pool = double(channels, 64), nn.MaxPool2d(2)
            self.downs = nn.ModuleList([double(64 << i, 128 << i) for i in range(4)])
            self.ups = nn.ModuleList([Up(1024 >> i) for i in range(4)])
            self.last = nn.Conv2d(64, classes, 1)

        def forward(self, x: Any) -> Any:
            kept = [self.first(x)]
            for down in self.downs:
                kept.append(down(self.pool(kept[-1])))
            x = kept.pop()
            for up in self.ups:
                x = up(x, kept.pop())
            return self.last(x)

    return UNet()
