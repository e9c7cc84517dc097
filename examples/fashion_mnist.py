"""Learns what kind of clothes a picture shows: Fashion-MNIST, 60,000 pictures to learn from and 10,000 to be tested on.

python examples/fashion_mnist.py [--data data] [--device cpu] [--epochs 5] [--out fashion_mnist] [--resume]

The pictures come with Debian's package dataset-fashion-mnist, or by --download. The folder --out gets the learning
curves, the confusion matrix, and a checkpoint after each epoch and at Ctrl-C, from which --resume goes on as if nothing
had happened, bit for bit.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from tqdm import tqdm

import norch
from norch import nn, optim
from norch.utils.data import DataLoader, Subset
from norch.vision import datasets, transforms

MEAN, STD = 0.2860, 0.3530  # of the pixels of the training set
HEADER = "epoch   train loss   train accuracy   test loss   test accuracy   seconds"
BLUE, RED = "#00798c", "#d1495b"


@dataclass
class Epoch:
    train_loss: float
    train_accuracy: float
    test_loss: float
    test_accuracy: float
    seconds: float

    def row(self, number: int) -> str:
        return (
            f"{number:5}   {self.train_loss:10.4f}   {self.train_accuracy:14.2%}   {self.test_loss:9.4f}   "
            f"{self.test_accuracy:13.2%}   {self.seconds:7.1f}"
        )


@dataclass
class Run:
    """All that a training run consists of, but for the data."""

    model: nn.Module
    optimizer: optim.Optimizer
    schedule: Any
    loader: DataLoader
    options: dict[str, Any]  # that decide the numbers
    history: list[Epoch] = field(default_factory=list)
    # Of the epoch that is under way:
    batches: int = 0
    seconds: float = 0.0
    loss: Any = 0.0  # the sum over the pictures so far; a tensor, so that no step waits for a number
    right: Any = 0

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "loader": self.loader.state_dict(),
            "rng": norch.get_rng_state(),
            "options": self.options,
            "history": [asdict(epoch) for epoch in self.history],
            "under way": {"batches": self.batches, "seconds": self.seconds, "loss": self.loss, "right": self.right},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        other = {name: value for name, value in state["options"].items() if self.options.get(name) != value}
        if other:
            raise ValueError("it was made with " + ", ".join(f"--{name} {value}" for name, value in other.items()))
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.loader.load_state_dict(state["loader"])
        norch.set_rng_state(state["rng"])
        self.history = [Epoch(**epoch) for epoch in state["history"]]
        for name, value in state["under way"].items():
            setattr(self, name, value)


class Interrupt:
    """Makes the first Ctrl-C a wish, which is granted between two batches; the second one ends the program at once."""

    wished = False

    def __enter__(self) -> Interrupt:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.wished = True
        signal.signal(signal.SIGINT, self._before)


def load(args: argparse.Namespace) -> tuple[DataLoader, DataLoader]:
    """A training and a test loader."""
    finish = [transforms.ToTensor(), transforms.Normalize((MEAN,), (STD,))]
    vary = transforms.Compose([transforms.RandomHorizontalFlip(), *finish])
    get = dict(download=args.download, verify=not args.unverified)
    train = datasets.FashionMNIST(args.data, train=True, transform=vary, **get)
    test = datasets.FashionMNIST(args.data, train=False, transform=transforms.Compose(finish), **get)
    if args.limit:
        train, test = (Subset(part, range(min(args.limit, len(part)))) for part in (train, test))
    common = dict(num_workers=args.num_workers, seed=args.seed)
    return (
        DataLoader(train, batch_size=args.batch_size, shuffle=True, **common),
        DataLoader(test, batch_size=500, **common),
    )


def build() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.25), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.25), nn.Linear(128, 10),
    )  # fmt: skip


def train_epoch(run: Run, device: str, interrupt: Interrupt) -> bool:
    """One pass over the pictures, or the rest of one. False if interrupted."""
    run.model.train()
    criterion = nn.CrossEntropyLoss()
    start = time.perf_counter() - run.seconds
    title = f"epoch {len(run.history) + 1}"
    with tqdm(
        total=len(run.loader), initial=run.batches, desc=title, unit=" batches", leave=False, disable=None
    ) as bar:
        for images, labels in run.loader:
            images, labels = images.to(device), labels.to(device)
            scores = run.model(images)
            loss = criterion(scores, labels)
            run.optimizer.zero_grad()
            loss.backward()
            run.optimizer.step()
            run.loss = run.loss + loss.detach() * len(labels)
            run.right = run.right + (scores.detach().argmax(1) == labels).sum()
            run.batches += 1
            run.seconds = time.perf_counter() - start
            bar.update()
            if not bar.disable and run.batches % 20 == 0:
                bar.set_postfix(loss=f"{loss.item():.3f}")
            if interrupt.wished:
                return False
    return True


def test(model: nn.Module, loader: DataLoader, device: str) -> tuple[float, float, np.ndarray]:
    """Mean loss, accuracy and the confusion matrix: [i, j] is how many pictures of class i were taken for class j."""
    model.eval()
    losses, confusion = 0.0, np.zeros((10, 10), int)
    with norch.no_grad():
        for images, labels in loader:
            scores = model(images.to(device))
            losses += nn.functional.cross_entropy(scores, labels.to(device), reduction="sum").item()
            pairs = labels * 10 + scores.argmax(1).to(labels.device)
            confusion += np.bincount(pairs.numpy(), minlength=100).reshape(10, 10)
    return losses / confusion.sum(), float(confusion.trace() / confusion.sum()), confusion


def train(run: Run, tests: DataLoader, args: argparse.Namespace, checkpoint: Path) -> np.ndarray | None:
    """Trains until there are `args.epochs` epochs. The last confusion matrix; None if interrupted."""
    confusion = None
    for number, epoch in enumerate(run.history, 1):
        print(epoch.row(number))
    with Interrupt() as interrupt:
        while len(run.history) < args.epochs:
            finished = train_epoch(run, args.device, interrupt)
            if finished:
                count = len(run.loader.dataset)
                start = time.perf_counter()
                test_loss, accuracy, confusion = test(run.model, tests, args.device)
                run.schedule.step()
                seconds = run.seconds + time.perf_counter() - start
                run.history.append(Epoch(float(run.loss) / count, int(run.right) / count, test_loss, accuracy, seconds))
                run.batches, run.seconds, run.loss, run.right = 0, 0.0, 0.0, 0
                print(run.history[-1].row(len(run.history)), flush=True)
            norch.save(run.state_dict(), checkpoint)
            if interrupt.wished:
                where = f"in epoch {len(run.history) + 1}, after {run.batches} of {len(run.loader)} batches"
                print(f"\ninterrupted {where}; go on with --resume", flush=True)
                return None
    return test(run.model, tests, args.device)[2] if confusion is None else confusion


def draw_curves(history: list[Epoch], path: Path) -> None:
    from matplotlib.figure import Figure  # not pyplot: no window, no display needed

    figure = Figure(figsize=(10, 4.2), dpi=130, layout="constrained")
    figure.suptitle("norch learns Fashion-MNIST", fontsize=14, fontweight="bold")
    epochs = range(1, len(history) + 1)
    panels = (("cross entropy", "loss", 1), ("accuracy, %", "accuracy", 100))
    for axes, (title, kind, scale) in zip(figure.subplots(1, 2), panels):
        curves = {part: [scale * getattr(epoch, f"{part}_{kind}") for epoch in history] for part in ("train", "test")}
        for part, label, color in (("train", "training", BLUE), ("test", "test", RED)):
            values = curves[part]
            axes.plot(epochs, values, color=color, marker="o", markersize=4, label=label)
            text = f"{values[-1]:.3f}" if scale == 1 else f"{values[-1]:.1f}"
            other = curves["test" if part == "train" else "train"][-1]
            up = values[-1] > other or (values[-1] == other and part == "train")
            place = dict(xytext=(7, 6 if up else -6), textcoords="offset points", va="center")
            axes.annotate(text, (epochs[-1], values[-1]), color=color, fontsize=9, **place)
        if kind == "accuracy":
            axes.axhline(90, color="0.5", linestyle=":", linewidth=1.2)
        axes.set(xlabel="epoch", title=title)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.margins(x=0.12)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    figure.savefig(path)


def draw_confusion(confusion: np.ndarray, names: list[str], path: Path) -> None:
    from matplotlib.figure import Figure

    shares = 100 * confusion / np.maximum(confusion.sum(1, keepdims=True), 1)
    accuracy = confusion.trace() / confusion.sum()
    figure = Figure(figsize=(8.6, 7.6), dpi=130, layout="constrained")
    axes = figure.subplots()
    axes.imshow(np.sqrt(shares), cmap="Blues", vmin=0, vmax=11)  # the root shows rare mistakes too
    for i, row in enumerate(shares):
        for j, share in enumerate(row):
            if confusion[i, j]:
                text = f"{share:.1f}" if 0 < share < 99.95 else f"{share:.0f}"
                weight = "bold" if i == j else "normal"
                color = "white" if share > 45 else "0.15" if share >= 1 else "0.45"
                axes.text(j, i, text, ha="center", va="center", fontsize=9, color=color, fontweight=weight)
    axes.set_xticks(range(10), names, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(10), names)
    axes.set_xticks(np.arange(-0.5, 10), minor=True)
    axes.set_yticks(np.arange(-0.5, 10), minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    axes.set(xlabel="taken for", ylabel="is")
    title = f"What was taken for what, % of each kind: {accuracy:.1%} of {confusion.sum():,} are right"
    axes.set_title(title, fontsize=12, fontweight="bold", pad=12)
    figure.savefig(path)


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Learn to tell clothes apart with norch, and draw how it went.")
    add = parser.add_argument
    add("--data", default="data", metavar="FOLDER", help="where the data set is (default: %(default)s)")
    add("--download", action="store_true", help="get the data set into that folder, if it is nowhere")
    add("--unverified", action="store_true", help="take files whose checksums are not the published ones")
    add("--device", default="cpu", help="where to train (default: %(default)s)")
    add("--epochs", type=positive, default=5, help="passes over the pictures in all (default: %(default)s)")
    add("--batch-size", type=positive, default=128, help="pictures in a step (default: %(default)s)")
    add("--lr", type=float, default=2e-3, help="of the first epoch (default: %(default)s)")
    add("--seed", type=int, default=0, help="of weights, order, flips and dropout (default: %(default)s)")
    add("--limit", type=positive, metavar="N", help="use the first N pictures only, of either set")
    add("--num-workers", type=int, default=0, help="threads that prepare the pictures (default: %(default)s)")
    add("--out", default="fashion_mnist", metavar="FOLDER", help="for pictures and checkpoint (default: %(default)s)")
    add("--resume", action="store_true", help="go on from the checkpoint in that folder")
    return parser.parse_args()


def main() -> int:
    args = parse()
    norch.manual_seed(args.seed)
    out = Path(args.out)
    checkpoint = out / "checkpoint.safetensors"
    try:
        model = build().to(args.device)
        train_loader, test_loader = load(args)
        out.mkdir(parents=True, exist_ok=True)
    except (norch.DeviceError, datasets.DatasetError, OSError) as error:
        print(
            str(error).replace("download=True", "--download").replace("verify=False", "--unverified"), file=sys.stderr
        )
        return 2
    optimizer = optim.AdamW(model.parameters(), lr=args.lr)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.6)
    options = {"batch-size": args.batch_size, "lr": args.lr, "seed": args.seed, "limit": args.limit}
    run = Run(model, optimizer, schedule, train_loader, options)
    if args.resume:
        try:
            run.load_state_dict(norch.load(checkpoint, map_location=args.device))
        except (OSError, ValueError, norch.CheckpointError) as error:
            print(f"cannot go on from {checkpoint}: {error}", file=sys.stderr)
            return 2
    print(
        f"{len(train_loader.dataset)} pictures to learn from, {len(test_loader.dataset)} to test on, on {args.device}"
    )
    print(model, end="\n\n")
    print(HEADER)
    confusion = train(run, test_loader, args, checkpoint)
    if confusion is None:
        return 130
    last = run.history[-1]
    print(f"\ntest accuracy {last.test_accuracy:.2%} after {sum(epoch.seconds for epoch in run.history):.1f} s")
    draw_curves(run.history, out / "curves.png")
    draw_confusion(confusion, datasets.FashionMNIST.classes, out / "confusion.png")
    print(f"pictures: {out / 'curves.png'}, {out / 'confusion.png'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
