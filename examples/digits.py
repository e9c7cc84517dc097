"""Learns to read handwritten digits: the 1797 images of 8x8 that scikit-learn ships, a quarter of them for the test.

python examples/digits.py [--device cpu] [--epochs 30] [--seed 0] [--out digits.png]
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

from sklearn.datasets import load_digits

import norch
from norch import nn, optim

BATCH = 64


@dataclass
class Split:
    images: norch.Tensor  # (N, 8, 8) float32, from 0 to 1
    labels: norch.Tensor  # (N,) int64


@dataclass
class Epoch:
    train_loss: float
    test_loss: float
    test_accuracy: float


def load(device: str) -> tuple[Split, Split]:
    """A training and a test set, drawn by norch's generator."""
    digits = load_digits()
    images = norch.tensor(digits.images, dtype=norch.float32) / 16
    labels = norch.tensor(digits.target, dtype=norch.int64)
    order = norch.randperm(len(labels))
    held = len(labels) // 4
    test, train = order[:held], order[held:]
    return (
        Split(images[train].to(device), labels[train].to(device)),
        Split(images[test].to(device), labels[test].to(device)),
    )


def build() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def train_epoch(model: nn.Module, criterion: nn.Module, optimizer: optim.Optimizer, data: Split) -> float:
    """One pass over the images in random order. The mean loss."""
    model.train()
    count, total = len(data.labels), 0.0
    order = norch.randperm(count, device=data.labels.device)
    for part in order.chunk(count // BATCH):  # as even as can be: a last batch of four would pull too hard
        loss = criterion(model(data.images[part]), data.labels[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(part)
    return total / count


def test(model: nn.Module, criterion: nn.Module, data: Split) -> tuple[float, float]:
    """Mean loss and accuracy."""
    model.eval()
    with norch.no_grad():
        scores = model(data.images)
        right = scores.argmax(1) == data.labels
        return criterion(scores, data.labels).item(), right.sum().item() / len(data.labels)


def draw(model: nn.Module, data: Split, history: list[Epoch], path: str) -> None:
    """Writes the picture: learning curves, some predictions, and what was misread."""
    from matplotlib.figure import Figure  # not pyplot: no window, no display needed

    with norch.no_grad():
        chances = model(data.images).softmax(1).cpu()
    guesses, sure = chances.argmax(1).tolist(), chances.amax(1).tolist()
    images, labels = data.images.cpu().numpy(), data.labels.cpu().tolist()
    wrong = [i for i, (guess, label) in enumerate(zip(guesses, labels)) if guess != label]

    figure = Figure(figsize=(11, 6.5), dpi=130, layout="constrained")
    figure.suptitle("norch reads digits", fontsize=15, fontweight="bold")
    left, right = figure.subfigures(1, 2, width_ratios=[5, 6])

    losses, accuracy = left.subplots(2, 1, sharex=True)
    epochs = range(1, len(history) + 1)
    losses.plot(epochs, [e.train_loss for e in history], color="#00798c", label="training")
    losses.plot(epochs, [e.test_loss for e in history], color="#d1495b", label="test")
    losses.set(ylabel="cross entropy", yscale="log", title="loss")
    losses.legend(frameon=False)
    accuracy.plot(epochs, [100 * e.test_accuracy for e in history], color="#d1495b")
    accuracy.axhline(95, color="0.5", linestyle=":", linewidth=1.2)
    accuracy.set(xlabel="epoch", ylabel="%", title="test accuracy")
    if history:
        accuracy.set_title(f"test accuracy: {100 * history[-1].test_accuracy:.1f} %")
    for axes in (losses, accuracy):
        axes.grid(alpha=0.25)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.spines[["top", "right"]].set_visible(False)

    grid = right.subplots(4, 6)
    misread = f"all {len(wrong)}" if len(wrong) <= 12 else f"12 of the {len(wrong)}"
    right.suptitle(f"the first 12 of the test set, then {misread} that were misread")
    for axes in grid.flat:
        axes.axis("off")
    for axes, i in zip(grid.flat, [*range(12), *wrong[:12]]):
        good = guesses[i] == labels[i]
        axes.imshow(images[i], cmap="gray_r", interpolation="nearest")
        text = f"{guesses[i]} ({sure[i]:.0%})" if good else f"{guesses[i]} ({sure[i]:.0%}), is {labels[i]}"
        axes.set_title(text, fontsize=9, color="0.2" if good else "#d1495b")
    figure.savefig(path)


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Learn to read digits with norch, and draw how it went.")
    parser.add_argument("--device", default="cpu", help="where to train (default: %(default)s)")
    parser.add_argument("--epochs", type=positive, default=30, help="passes over the images (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of split, weights and order (default: %(default)s)")
    parser.add_argument("--out", default="digits.png", help="the picture (default: %(default)s)")
    return parser.parse_args()


def main() -> int:
    args = parse()
    norch.manual_seed(args.seed)
    try:
        train_data, test_data = load(args.device)
    except norch.DeviceError as error:
        print(error, file=sys.stderr)
        return 2
    model = build().to(args.device)
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    print(f"{len(train_data.labels)} images to learn from, {len(test_data.labels)} to test on, on {args.device}")
    print(model, end="\n\n")

    history: list[Epoch] = []
    status = 0
    start = time.perf_counter()
    try:
        print("epoch   training loss   test loss   test accuracy")
        for number in range(1, args.epochs + 1):
            loss = train_epoch(model, criterion, optimizer, train_data)
            history.append(Epoch(loss, *test(model, criterion, test_data)))
            last = history[-1]
            print(f"{number:5}   {last.train_loss:13.4f}   {last.test_loss:9.4f}   {last.test_accuracy:13.1%}")
    except KeyboardInterrupt:
        print("\ninterrupted: the picture shows what there is")
        status = 130
    if history:
        print(f"\ntest accuracy {history[-1].test_accuracy:.1%} after {time.perf_counter() - start:.1f} s")
    try:
        draw(model, test_data, history, args.out)
    except OSError as error:
        print(f"no picture: {error}", file=sys.stderr)
        return 1
    print(f"picture: {args.out}")
    return status


if __name__ == "__main__":
    sys.exit(main())
