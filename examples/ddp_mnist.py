"""Learns what a picture shows, in several processes that average their gradients: DistributedDataParallel.

    mpirun -n 2 python examples/ddp_mnist.py [--data data] [--device cpu] [--epochs 3] [--resume]
    python examples/ddp_mnist.py                       # one process, the same losses
    python examples/ddp_mnist.py --ray 2               # on a Ray cluster: pip install norch-nn[ray]

The pictures are Fashion-MNIST's (Debian's package dataset-fashion-mnist, or --download), else the 1797 digits of 8x8
that scikit-learn ships. Each process has its part of every batch, so that the losses are those of one process whatever
the number; on GPUs (--device cuda) each has its own. After each epoch rank 0 writes a checkpoint, from which --resume
goes on. Ray keeps checkpoints itself, and goes on by itself where a worker dies.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import norch
import norch.distributed as dist
from norch import nn, optim
from norch.nn.parallel import DistributedDataParallel
from norch.utils.data import DataLoader, Dataset, DistributedSampler, Subset, TensorDataset
from norch.vision import datasets, transforms

DEFAULTS: dict[str, Any] = {
    "data": "data",
    "download": False,
    "unverified": False,
    "device": "cpu",
    "epochs": 3,
    "batch_size": 64,
    "lr": 1e-3,
    "seed": 0,
    "limit": None,
    "checkpoint": "ddp_mnist.safetensors",
    "resume": False,
    "ray": 0,
}

State = dict[str, Any]


def load(config: dict[str, Any]) -> tuple[Dataset[Any], Dataset[Any]]:
    """What to learn from, and what to be tested on: pairs of a picture (1, n, n) and the number of its class."""
    found: list[Dataset[Any]]
    try:
        finish = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.286,), (0.353,))])
        get = {"transform": finish, "download": config["download"], "verify": not config["unverified"]}
        found = [datasets.FashionMNIST(config["data"], train=train, **get) for train in (True, False)]
    except datasets.DatasetError:
        if config["download"]:
            raise
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = norch.tensor(digits.images, dtype=norch.float32).unsqueeze(1) / 16
        whole = TensorDataset(images, norch.tensor(digits.target, dtype=norch.int64))
        found = [Subset(whole, range(450, len(whole))), Subset(whole, range(450))]
    if config["limit"]:
        found = [Subset(part, range(min(config["limit"], len(part)))) for part in found]  # type: ignore[arg-type]
    return found[0], found[1]


def build(side: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * (side // 4) ** 2, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def test(model: nn.Module, loader: DataLoader, device: str) -> tuple[float, float]:
    """Mean loss and accuracy over the parts of all processes."""
    sums = norch.zeros(3, device=device)
    with norch.no_grad():
        for images, labels in loader:
            scores, labels = model(images.to(device)), labels.to(device)
            loss = nn.functional.cross_entropy(scores, labels, reduction="sum")
            sums += norch.stack([loss, (scores.argmax(1) == labels).sum().float(), norch.ones_like(loss) * len(labels)])
    dist.all_reduce(sums)
    loss, right, count = sums.tolist()
    return loss / count, right / count


def resume(config: dict[str, Any], state: State) -> int:
    """Loads the checkpoint, with --resume, and returns how many epochs it has seen."""
    if not config["resume"]:
        return 0
    kept = norch.load(config["checkpoint"], map_location="cpu")
    for name, part in state.items():
        part.load_state_dict(kept[name])
    return int(kept["epoch"])


def report(config: dict[str, Any], found: dict[str, float], state: State) -> None:
    """Writes a checkpoint after an epoch."""
    if dist.get_rank() == 0:
        kept = {name: part.state_dict() if hasattr(part, "state_dict") else part for name, part in state.items()}
        norch.save(kept, config["checkpoint"])


def train(
    config: dict[str, Any],
    resume: Callable[[dict[str, Any], State], int] = resume,
    report: Callable[[dict[str, Any], dict[str, float], State], None] = report,
) -> None:
    """Trains in each process of the group, which is there already. `resume` and `report` keep checkpoints."""
    config = DEFAULTS | config
    rank, size = dist.get_rank(), dist.get_world_size()
    device = f"cuda:{dist.get_local_rank()}" if config["device"] == "cuda" else config["device"]
    if rank == 0:
        load(config)  # may download
    dist.barrier()
    pictures, tests = load(config)
    norch.manual_seed(config["seed"])
    model = build(pictures[0][0].shape[-1]).to(device)
    optimizer = optim.AdamW(model.parameters(), lr=config["lr"])
    state = {"model": model, "optimizer": optimizer}
    first = resume(config, state)
    together = DistributedDataParallel(model)
    sampler: DistributedSampler[int] = DistributedSampler(pictures, seed=config["seed"], drop_last=True)  # type: ignore[arg-type]
    loader = DataLoader(pictures, batch_size=config["batch_size"] // size, sampler=sampler, drop_last=True)
    own = Subset(tests, range(rank, len(tests), size))  # type: ignore[arg-type]
    test_loader = DataLoader(own, batch_size=250)
    for epoch in range(first, config["epochs"]):
        sampler.set_epoch(epoch)
        start, total = time.perf_counter(), norch.zeros((), device=device)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(together(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total, dist.ReduceOp.AVG)
        test_loss, accuracy = test(model, test_loader, device)
        found = {"epoch": epoch + 1, "loss": total.item() / len(loader), "test_loss": test_loss, "accuracy": accuracy}
        report(config, found, {**state, "epoch": epoch + 1})
        if rank == 0:
            seconds = time.perf_counter() - start
            print(
                f"epoch {epoch + 1}: loss {found['loss']:.4f}, test loss {test_loss:.4f}, accuracy {accuracy:.2%}, "
                f"{seconds:.1f} s",
                flush=True,
            )


def train_on_ray(config: dict[str, Any]) -> None:
    import norch.ray

    train(
        config,
        lambda config, state: norch.ray.resume(state).get("epoch", 0),
        lambda config, found, state: norch.ray.report(found, state),
    )


def start_on_ray(config: dict[str, Any]) -> None:
    from ray.train import FailureConfig, RunConfig, ScalingConfig

    from norch.ray import NorchTrainer

    config["data"] = str(Path(config["data"]).absolute())  # workers run elsewhere
    folder = Path(config["checkpoint"]).absolute().with_suffix("")
    trainer = NorchTrainer(
        train_on_ray,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=config["ray"], use_gpu=config["device"] == "cuda"),
        run_config=RunConfig(storage_path=str(folder), failure_config=FailureConfig(max_failures=3)),
    )
    print(trainer.fit().metrics)


def parse() -> dict[str, Any]:
    parser = argparse.ArgumentParser(description="Learn to tell pictures apart in several processes.")
    add = parser.add_argument
    add("--data", metavar="FOLDER", help="where the data set is (default: %(default)s)")
    add("--download", action="store_true", help="get the data set into that folder, if it is nowhere")
    add("--unverified", action="store_true", help="take files whose checksums are not the published ones")
    add("--device", help="cpu, or cuda: a GPU for each process (default: %(default)s)")
    add("--epochs", type=int, help="passes over the pictures in all (default: %(default)s)")
    add("--batch-size", type=int, help="pictures in a step of all processes together (default: %(default)s)")
    add("--lr", type=float, help="learning rate (default: %(default)s)")
    add("--seed", type=int, help="of weights and order (default: %(default)s)")
    add("--limit", type=int, metavar="N", help="use the first N pictures only, of either set")
    add("--checkpoint", metavar="FILE", help="the state (default: %(default)s)")
    add("--resume", action="store_true", help="go on from it")
    add("--ray", type=int, metavar="N", help="train in N workers of a Ray cluster, or of this machine")
    parser.set_defaults(**DEFAULTS)
    return vars(parser.parse_args())


def main() -> int:
    config = parse()
    if config["ray"]:
        start_on_ray(config)
        return 0
    dist.init_process_group()
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} processes on {config['device']}, by {dist.get_backend()}", flush=True)
    train(config)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
