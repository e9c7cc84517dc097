"""Learns to write as a text is written, on several processes that share out the model: the GPT of char_gpt.py.

    mpirun -n 4 python examples/fsdp_gpt.py --text FILE [--device cpu] [--steps 2000] [--checkpoint fsdp_gpt]
    mpirun -n 2 python examples/fsdp_gpt.py --text FILE --resume    # goes on, on another number of processes too

Of each block's parameters, their gradients and what the optimizer keeps for them, every process has an equal part; a
block's parameters are gathered while it computes. `--batch` is what all processes learn from at a time.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import Any

from char_gpt import CharGPT, batch, encode, loss_of, pieces, positive, sample

import norch
import norch.distributed as dist
from norch import nn, optim
from norch.distributed import checkpoint
from norch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from norch.distributed.fsdp import fully_shard
from norch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

SETTINGS = ("steps", "seed", "batch", "context", "width", "depth", "heads", "dropout", "lr", "warmup", "every")
HELD = 0.1  # of the text, at its end, is never learnt from


class Training:
    """Model, optimizer and schedule, as `settings` (a dict of SETTINGS) say."""

    def __init__(self, settings: dict[str, Any], alphabet: str, device: norch.device) -> None:
        self.settings, self.alphabet, self.device, self.step = settings, alphabet, device, 0
        norch.manual_seed(settings["seed"])
        sizes = [settings[name] for name in ("context", "width", "depth", "heads", "dropout")]
        self.model = CharGPT(len(alphabet), *sizes).to(device)
        self.count = sum(p.numel() for p in self.model.parameters())
        matrices = [p for p in self.model.parameters() if p.ndim > 1]  # the same objects are flat shards soon
        vectors = [p for p in self.model.parameters() if p.ndim < 2]
        for block in self.model.blocks.layers:
            fully_shard(block)
        fully_shard(self.model)
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = optim.AdamW(groups, lr=settings["lr"], betas=(0.9, 0.98))
        warmup = min(settings["warmup"], settings["steps"])
        self.schedule = SequentialLR(
            self.optimizer,
            [
                LinearLR(self.optimizer, start_factor=1 / max(1, warmup), total_iters=warmup),
                CosineAnnealingLR(self.optimizer, max(1, settings["steps"] - warmup), eta_min=settings["lr"] / 10),
            ],
            milestones=[warmup],
        )

    def update(self, data: norch.Tensor) -> norch.Tensor:
        """Learns from this process' part of the next batch. Returns its loss."""
        settings, rank, size = self.settings, dist.get_rank(), dist.get_world_size()
        norch.manual_seed(settings["seed"] + self.step)  # the same batch whatever came before
        part = batch(data, settings["batch"], settings["context"]).chunk(size)[rank]
        norch.manual_seed((settings["seed"] + self.step) * size + rank)  # dropout is each process' own
        loss = loss_of(self.model, part)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.step += 1
        return loss.detach()

    def evaluate(self, parts: norch.Tensor) -> float:
        """The mean loss over `parts`, of which each process looks at its own."""
        rank, size = dist.get_rank(), dist.get_world_size()
        mine = parts[: len(parts) // size * size].chunk(size)[rank]
        self.model.eval()
        with norch.no_grad():
            loss = loss_of(self.model, mine)
        self.model.train()
        dist.all_reduce(loss, dist.ReduceOp.AVG)
        return loss.item()

    def state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {
            "settings": self.settings,
            "alphabet": self.alphabet,
            "step": self.step,
            "schedule": {"all": self.schedule.state_dict()},
            "model": model,
            "optimizer": optimizer,
        }

    def save(self, path: str) -> None:
        checkpoint.save(self.state(), checkpoint_id=path)

    @classmethod
    def load(cls, path: str, device: norch.device) -> Training:
        start: dict[str, Any] = {"settings": dict.fromkeys(SETTINGS), "alphabet": None}
        checkpoint.load(start, checkpoint_id=path)
        training = cls(start["settings"], start["alphabet"], device)
        state = training.state()
        checkpoint.load(state, checkpoint_id=path)
        set_state_dict(
            training.model,
            training.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        training.schedule.load_state_dict(state["schedule"]["all"])
        training.step = state["step"]
        return training


def say(text: str = "") -> None:
    if dist.get_rank() == 0:
        print(text, flush=True)


def train(training: Training, data: norch.Tensor, parts: norch.Tensor, path: str) -> None:
    """Trains to the last step, and saves to `path` at every line that it prints."""
    settings, losses = training.settings, []
    say("  step   training loss   validation loss   learning rate")
    while training.step < settings["steps"]:
        rate = training.optimizer.param_groups[0]["lr"]
        losses.append(training.update(data))
        if training.step % settings["every"] == 0 or training.step == settings["steps"]:
            mean = norch.stack(losses).mean()
            losses.clear()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            held = training.evaluate(parts)
            say(f"{training.step:6}   {mean.item():13.4f}   {held:15.4f}   {rate:13.2e}")
            training.save(path)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Learn to write as a text is written, on several processes.")
    add = parser.add_argument
    add("--text", required=True, metavar="FILE", help="what to learn from: any UTF-8 text")
    add("--device", default="cpu", help="cpu, or cuda: a GPU for each process (default: %(default)s)")
    add("--steps", type=positive, default=2000, help="updates of the weights (default: %(default)s)")
    add("--seed", type=int, default=0, help="of weights, batches and samples (default: %(default)s)")
    add("--checkpoint", default="fsdp_gpt", metavar="FOLDER", help="the state (default: %(default)s)")
    add("--resume", action="store_true", help="go on from the checkpoint, with its settings")
    add("--every", type=positive, default=100, help="steps from one line and checkpoint to the next (%(default)s)")
    add("--context", type=positive, default=128, help="characters it sees (default: %(default)s)")
    add("--width", type=positive, default=128, help="numbers for a character (default: %(default)s)")
    add("--depth", type=positive, default=4, help="blocks (default: %(default)s)")
    add("--heads", type=positive, default=4, help="of the attention (default: %(default)s)")
    add("--dropout", type=float, default=0.1, help="(default: %(default)s)")
    add("--batch", type=positive, default=32, help="pieces of text for an update (default: %(default)s)")
    add("--lr", type=float, default=2e-3, help="the highest learning rate (default: %(default)s)")
    add("--warmup", type=positive, default=100, help="steps to get there (default: %(default)s)")
    add("--sample", type=int, default=400, metavar="N", help="characters to write in the end (default: %(default)s)")
    return parser.parse_args()


def main() -> int:
    args = parse()
    dist.init_process_group()
    size = dist.get_world_size()
    device = norch.device(f"cuda:{dist.get_local_rank()}" if args.device == "cuda" else args.device)
    text = Path(args.text).read_text(encoding="utf-8")
    if args.resume:
        training = Training.load(args.checkpoint, device)
    else:
        settings = {name: getattr(args, name) for name in SETTINGS}
        training = Training(settings, "".join(sorted(set(text) | {"\n"})), device)
    context = training.settings["context"]
    data = encode(text, training.alphabet, device)
    held = int(len(data) * HELD)
    parts = pieces(data[-held:], context) if held >= context + 2 else data[:0]
    if len(parts) < size or training.settings["batch"] % size:
        say(f"{args.text}: too few characters, or a batch of {training.settings['batch']} for {size} processes")
        return 2
    own = sum(p.numel() for p in training.model.parameters())
    say(f"{training.count:,} weights, {own:,} of them with process 0 of {size}, from step {training.step} on")

    start_step, start_time = training.step, time.perf_counter()
    train(training, data[:-held], parts, args.checkpoint)
    seconds, steps = time.perf_counter() - start_time, training.step - start_step
    if steps:
        say(f"\n{steps} steps in {seconds:.1f} s, {steps * training.settings['batch'] * context / seconds:,.0f} "
            "characters a second")  # fmt: skip
    loss = training.evaluate(parts)
    say(f"validation loss {loss:.4f}, {loss / math.log(2):.2f} bits a character\n")
    norch.manual_seed(training.settings["seed"])  # all processes write the same
    found = sample(training.model, encode("\n", training.alphabet, device), args.sample, 0.8, 20)
    say("".join(training.alphabet[i] for i in found.tolist()))
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
