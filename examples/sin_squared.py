"""Learns sin(x)^2 twice: with the ten sigmoids of "Recreating PyTorch from Scratch", then with a model that can.

The first model sees one point at a time, as in the article, and learns little more than the mean. The second is wider,
sees all points at once, and gets the curve. Both fits and both loss curves go into a PNG.

    python examples/sin_squared.py [--device cpu] [--epochs 10] [--seed 1] [--out sin_squared.png]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tqdm import tqdm

import norch
from norch import nn, optim

POINTS = 51  # 0.0, 0.4, ..., 20.0
WIDE_EPOCHS = 300  # of the wide model for each of the article's, which has 51 updates where the wide one has 1


class ArticleModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(1, 10)
        self.sigmoid = nn.Sigmoid()
        self.fc2 = nn.Linear(10, 1)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return self.fc2(self.sigmoid(self.fc1(x)))


class WideModel(nn.Module):
    """Two hidden layers of 64. x is scaled to [-1, 1]; steep first weights let each unit bend at a place of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        nn.init.uniform_(self.layers[0].weight, -20, 20)
        nn.init.uniform_(self.layers[0].bias, -20, 20)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return self.layers(x / 10 - 1)


@dataclass
class Run:
    """A model and how its training went."""

    title: str
    model: nn.Module
    updates_per_epoch: int
    losses: list[float] = field(default_factory=list)  # the mean of each epoch
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        if not self.losses:
            return f"{self.title}: not trained"
        epochs = f"{len(self.losses)} epoch{'s' * (len(self.losses) > 1)}"
        return f"{self.title}: mean loss {self.losses[-1]:.4f} after {epochs}, {self.seconds:.1f} s"


def train(run: Run, optimizer: optim.Optimizer, x: norch.Tensor, y: norch.Tensor, epochs: int) -> None:
    """Trains on the rows of x and y in `run.updates_per_epoch` equal parts; prints ten mean losses."""
    criterion = nn.MSELoss()
    batches = list(zip(x.chunk(run.updates_per_epoch), y.chunk(run.updates_per_epoch), strict=True))
    start = time.perf_counter()
    try:
        with tqdm(total=epochs * len(batches), unit=" updates", leave=False, disable=None) as bar:
            for epoch in range(1, epochs + 1):
                total = 0.0
                for inputs, targets in batches:
                    loss = criterion(run.model(inputs), targets)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    total += loss.item()
                    bar.update()
                run.losses.append(total / len(batches))
                if epoch % max(1, epochs // 10) == 0 or epoch == epochs:
                    bar.set_postfix(loss=f"{run.losses[-1]:.4f}")
                    tqdm.write(f"  epoch {epoch:>{len(str(epochs))}}/{epochs}   mean loss {run.losses[-1]:.4f}")
    finally:
        run.seconds = time.perf_counter() - start


def draw(runs: list[Run], device: str, path: str) -> None:
    """Writes the picture: the fits above, the loss curves below."""
    from matplotlib.figure import Figure  # not pyplot: no window, no display needed

    colors = ["#d1495b", "#00798c"]
    x = norch.linspace(0, 20, 801).unsqueeze(1)
    points = norch.linspace(0, 20, POINTS)
    figure = Figure(figsize=(10, 7.5), dpi=130, layout="constrained")
    fits, curves = figure.subplots(2, 1, height_ratios=[3, 2])
    figure.suptitle("norch learns sin(x)²", fontsize=15, fontweight="bold")

    fits.plot(x.flatten().numpy(), x.sin().square().flatten().numpy(), color="0.78", linewidth=5, label="sin(x)²")
    fits.plot(points.numpy(), points.sin().square().numpy(), "o", color="0.25", markersize=4, label=f"{POINTS} points")
    for run, color in zip(runs, colors):
        if run.losses:
            with norch.no_grad():
                fitted = run.model(x.to(device)).cpu()
            label = f"{run.title} (mean loss {run.losses[-1]:.4f})"
            fits.plot(x.flatten().numpy(), fitted.flatten().numpy(), color=color, linewidth=1.8, label=label)
    fits.set(xlabel="x", xlim=(0, 20), ylim=(-0.15, 1.15))
    fits.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False)

    for run, color in zip(runs, colors):
        updates = [run.updates_per_epoch * (i + 1) for i in range(len(run.losses))]
        marker = "o" if len(updates) <= 20 else None
        curves.plot(updates, run.losses, color=color, marker=marker, markersize=4, label=run.title)
    curves.axhline(0.01, color="0.5", linestyle=":", linewidth=1.2, label="0.01")
    curves.set(xlabel="updates of the parameters", ylabel="mean loss of an epoch", xscale="log", yscale="log")
    curves.legend(loc="lower left", frameon=False)
    for axes in (fits, curves):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def computed_by(device: str) -> str:
    """Which backend that was, and how to get another."""
    module = type(norch.device(device).backend).__module__
    if module.startswith("norch.numpy_backend"):
        native = "native kernels: `hatch run native` in a clone, `pip install norch-cpu` elsewhere"
        return f"computed by the NumPy reference of norch-core; {native}"
    package = module.partition(".")[0].replace("_", "-")
    if package == "norch-cpu":
        package += f" ({norch.cpu.instruction_set()}); NORCH_BACKEND_CPU=numpy chooses the NumPy reference"
    return f"computed by {package}"


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Learn sin(x)^2 with norch, and draw the fit.")
    parser.add_argument("--device", default="cpu", help="where to train (default: %(default)s)")
    parser.add_argument(
        "--epochs",
        type=positive,
        default=10,
        help=f"of the article's model; the wide one gets {WIDE_EPOCHS} times as many (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the initial weights (default: %(default)s)")
    parser.add_argument("--out", default="sin_squared.png", help="the picture (default: %(default)s)")
    return parser.parse_args()


def main() -> int:
    args = parse()
    norch.manual_seed(args.seed)
    x = norch.linspace(0, 20, POINTS).unsqueeze(1)
    y = x.sin().square()
    try:
        x, y = x.to(args.device), y.to(args.device)
    except norch.DeviceError as error:
        print(error, file=sys.stderr)
        return 2

    article = Run("the article's model", ArticleModel().to(args.device), POINTS)
    wide = Run("a wider model", WideModel().to(args.device), 1)
    plans: list[tuple[Run, Callable[[], optim.SGD], int]] = [
        (article, lambda: optim.SGD(article.model.parameters(), lr=0.001), args.epochs),
        (wide, lambda: optim.SGD(wide.model.parameters(), lr=0.01, momentum=0.95), WIDE_EPOCHS * args.epochs),
    ]
    status = 0
    try:
        for run, optimizer, epochs in plans:
            print(f"{run.title}, on {args.device}:\n{run.model}")
            train(run, optimizer(), x, y, epochs)
    except KeyboardInterrupt:
        print("\ninterrupted: the picture shows what there is")
        status = 130
    print()
    for run in (article, wide):
        print(run.summary)
    print("drawing ...", flush=True)
    try:
        draw([article, wide], args.device, args.out)
    except OSError as error:
        print(f"no picture: {error}", file=sys.stderr)
        return 1
    print(f"picture: {args.out}")
    print(computed_by(args.device))
    return status


if __name__ == "__main__":
    sys.exit(main())
