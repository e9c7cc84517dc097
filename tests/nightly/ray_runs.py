"""Trains on Ray undisturbed, and with a worker killed at several points; prints what came of each run.

python ray_runs.py STORAGE prints a line of JSON for each run, and at the end one with the processes of all workers.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

INTERVAL, EPOCHS, STEPS = 3, 2, 5

# Steps are counted from 0. "step" is in the middle of one, "report" at once after a checkpoint.
KILLS = {
    "undisturbed": None,
    "rank 1 before any checkpoint": (1, 1, "step"),
    "rank 0 after a checkpoint": (0, 5, "report"),
    "rank 1 in the second epoch": (1, 7, "step"),
    "rank 0 one step before the end": (0, 8, "step"),
}


def train(config: dict[str, Any]) -> None:
    import hashlib
    import random

    import numpy as np
    import ray.train

    import norch
    import norch.ray
    from norch import distributed, nn, optim
    from norch.utils.data import DataLoader

    rank = distributed.get_rank()
    norch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
    model = norch.ray.prepare_model(model)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * STEPS)
    seed = 1 + rank if ray.train.get_checkpoint() is None else 99  # what a resumed run begins with does not matter
    norch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)

    loader = norch.ray.prepare_data_loader(DataLoader(range(12), batch_size=2, shuffle=True, seed=1))
    mine = [None, None]
    distributed.all_gather_object(mine, [int(i) for batch in loader for i in batch])
    assert sorted(mine[0] + mine[1]) == list(range(12)) != mine[0] + mine[1]

    state = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    found = norch.ray.resume(state)
    start = found.get("step", 0)
    assert found.get("rank", rank) == rank
    Path(config["log"], f"{os.getpid()}-{rank}-{start}").touch()

    def die(step: int, where: str) -> None:
        once = Path(config["log"], "killed")
        if config["kill"] == [rank, step, where] and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    shard = ray.train.get_dataset_shard("train")
    for epoch in range(start // STEPS, EPOCHS):
        skip = max(0, start - epoch * STEPS)
        for i, batch in enumerate(norch.ray.iter_norch_batches(shard, 8, dtypes=norch.float32, skip=skip), skip):
            step = epoch * STEPS + i
            x = batch["x"] + 0.01 * random.random() + 0.01 * np.random.standard_normal()
            loss = ((model(x).reshape(-1) - batch["y"]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            die(step, "step")
            optimizer.step()
            scheduler.step()
            done = step + 1
            if done % INTERVAL == 0 or done == EPOCHS * STEPS:
                bits = b"".join(p.detach().numpy().tobytes() for p in model.state_dict().values())
                metrics = {"loss": loss.item(), "bits": hashlib.sha256(bits).hexdigest(), "steps": done, "start": start}
                norch.ray.report(metrics, {**state, "step": done}, own={"rank": rank})
                die(step, "report")


def main(storage: str) -> None:
    os.environ["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] = "0.2"
    import ray
    import ray.data
    from ray.train import FailureConfig, RunConfig, ScalingConfig

    from norch.ray import NorchTrainer

    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
    data = ray.data.from_items(
        [{"x": [float(i * j % 7) for j in range(1, 5)], "y": float(i % 5)} for i in range(2 * 8 * STEPS)],
        override_num_blocks=4,
    )
    for number, (name, kill) in enumerate(KILLS.items()):
        log = Path(storage, f"log-{number}")
        log.mkdir()
        trainer = NorchTrainer(
            train,
            train_loop_config={"kill": list(kill or ()), "log": str(log)},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=storage, failure_config=FailureConfig(max_failures=1)),
            datasets={"train": data},
        )
        begun = time.monotonic()
        result = trainer.fit()
        print(
            json.dumps(
                {
                    "name": name,
                    "kill": kill,
                    "metrics": result.metrics,
                    "processes": [[int(n) for n in p.name.split("-")] for p in log.glob("*-*-*")],
                    "seconds": time.monotonic() - begun,
                }
            ),
            flush=True,
        )
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
