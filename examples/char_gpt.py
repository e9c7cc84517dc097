"""Learns to write as a text is written, character by character: a small GPT on a file of yours.

    python examples/char_gpt.py --text FILE [--device cpu] [--steps 2000] [--seed 0] [--out char_gpt.png]
    python examples/char_gpt.py --text FILE --resume           # goes on from the checkpoint, bit for bit
    python examples/char_gpt.py --text FILE --resume --prompt "Once " --temperature 0.7 --top-k 10

The transformer (Radford et al., 2019) sees `--context` characters and guesses the next one, at each place. Ctrl-C saves
what there is and ends. A checkpoint holds everything that training goes on from; with --resume the settings come from
there, but for those that have nothing to do with training.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from tqdm import tqdm

import norch
import norch.nn.functional as F
from norch import nn, optim
from norch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

SETTINGS = ("steps", "seed", "batch", "context", "width", "depth", "heads", "dropout", "lr", "warmup", "every")
HELD = 0.1  # of the text, at its end, is never learnt from


class CharGPT(nn.Module):
    """From characters (N, L), as integers, to a score for each possible next one, (N, L, characters)."""

    def __init__(self, characters: int, context: int, width: int, depth: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.context = context
        self.characters = nn.Embedding(characters, width)
        self.places = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, depth, nn.LayerNorm(width))
        self.head = nn.Linear(width, characters, bias=False)
        self.apply(start)
        self.head.weight = self.characters.weight  # tied: what a character means is also how it is guessed
        mask = nn.Transformer.generate_square_subsequent_mask(context)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, text: norch.Tensor) -> norch.Tensor:
        length = text.shape[1]
        x = self.characters(text) + self.places.weight[:length]
        x = self.blocks(self.dropout(x), mask=self.mask[:length, :length], is_causal=True)
        return self.head(x)


def start(module: nn.Module) -> None:
    """First weights as GPT-2's, normal, but the wider the model, the smaller: its 0.02 is for a width of 768."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


# --- Text -----------------------------------------------------------------------------------------------------------


def encode(text: str, alphabet: str, device: str) -> norch.Tensor:
    """The place of each character in the alphabet; those that it lacks are left out."""
    places = {c: i for i, c in enumerate(alphabet)}
    return norch.tensor([places[c] for c in text if c in places], dtype=norch.int64, device=device)


def batch(data: norch.Tensor, count: int, context: int) -> norch.Tensor:
    """`count` pieces of the text, of one character more than the context, from anywhere."""
    starts = norch.randint(0, len(data) - context, (count, 1), device=data.device)
    return data[starts + norch.arange(context + 1, device=data.device)]


def pieces(data: norch.Tensor, context: int, most: int = 128) -> norch.Tensor:
    """The same pieces every time, evenly spaced."""
    count = max(1, min(most, (len(data) - 1) // context))
    step = (len(data) - context - 1) // max(1, count - 1)
    starts = norch.arange(count, device=data.device).unsqueeze(1) * step
    return data[starts + norch.arange(context + 1, device=data.device)]


def loss_of(model: nn.Module, part: norch.Tensor) -> norch.Tensor:
    scores = model(part[:, :-1])
    return F.cross_entropy(scores.flatten(0, 1), part[:, 1:].flatten())


def evaluate(model: nn.Module, parts: norch.Tensor) -> float:
    """The mean loss over `parts`."""
    model.eval()
    with norch.no_grad():
        total = sum(loss_of(model, some).item() * len(some) for some in parts.split(32))
    model.train()
    return total / len(parts)


def sample(model: CharGPT, prompt: norch.Tensor, count: int, temperature: float, top_k: int) -> norch.Tensor:
    """`prompt` (L,) and `count` more characters. `top_k` 0 chooses among all."""
    model.eval()
    text = prompt.unsqueeze(0)
    with norch.no_grad():
        for _ in range(count):
            scores = model(text[:, -model.context :])[:, -1]
            if not temperature:
                chosen = scores.argmax(-1, keepdim=True)
            else:
                scores = scores / temperature
                if 0 < top_k < scores.shape[-1]:
                    least = scores.topk(top_k).values[:, -1:]
                    scores = scores.masked_fill(scores < least, -math.inf)
                # The first of exponential clocks with these rates to ring: each with its chance.
                chosen = (scores.softmax(-1) / -norch.log(norch.rand_like(scores))).argmax(-1, keepdim=True)
            text = norch.cat([text, chosen], 1)
    model.train()
    return text[0]


# --- Training -------------------------------------------------------------------------------------------------------


class Training:
    """Model, optimizer, schedule and how it went, as `settings` (a dict of SETTINGS) say."""

    def __init__(self, settings: dict[str, Any], alphabet: str, device: str) -> None:
        self.settings, self.alphabet, self.device = settings, alphabet, device
        norch.manual_seed(settings["seed"])
        self.model = CharGPT(
            len(alphabet), *(settings[name] for name in ("context", "width", "depth", "heads", "dropout"))
        ).to(device)
        matrices = [p for p in self.model.parameters() if p.ndim > 1]
        vectors = [p for p in self.model.parameters() if p.ndim < 2]
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
        self.step = 0
        self.losses: list[norch.Tensor] = []  # of the steps since the last line of the history
        self.history: list[dict[str, float]] = []  # step, train, validation, lr

    def update(self, part: norch.Tensor) -> None:
        loss = loss_of(self.model, part)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.step += 1
        self.losses.append(loss.detach())

    def save(self, path: str) -> None:
        norch.save(
            {
                "settings": self.settings,
                "alphabet": self.alphabet,
                "step": self.step,
                "losses": self.losses,
                "history": self.history,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict(),
                "random": norch.get_rng_state(),
            },
            path,
        )

    @classmethod
    def load(cls, path: str, device: str) -> Training:
        saved = norch.load(path, map_location=device)
        training = cls(saved["settings"], saved["alphabet"], device)
        training.model.load_state_dict(saved["model"])
        training.optimizer.load_state_dict(saved["optimizer"])
        training.schedule.load_state_dict(saved["schedule"])
        training.step, training.losses, training.history = saved["step"], saved["losses"], saved["history"]
        norch.set_rng_state(saved["random"].cpu())
        return training


class Interrupt:
    """Whether Ctrl-C was pressed: a step is never left half done. The second one is as usual."""

    def __init__(self) -> None:
        self.pressed = False

    def __enter__(self) -> Interrupt:
        self.before = signal.signal(signal.SIGINT, self)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self.before)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.pressed = True
        signal.signal(signal.SIGINT, self.before)


def train(training: Training, data: norch.Tensor, parts: norch.Tensor, path: str) -> bool:
    """Trains to the last step, or until Ctrl-C: then False. Saves to `path` at every line that it prints."""
    settings = training.settings
    print("  step   training loss   validation loss   learning rate")
    with (
        Interrupt() as interrupt,
        tqdm(total=settings["steps"], initial=training.step, unit=" steps", leave=False, disable=None) as bar,
    ):
        while training.step < settings["steps"] and not interrupt.pressed:
            rate = training.optimizer.param_groups[0]["lr"]
            training.update(batch(data, settings["batch"], settings["context"]))
            bar.update()
            if training.step % settings["every"] == 0 or training.step == settings["steps"]:
                mean = norch.stack(training.losses).mean().item()
                training.losses.clear()
                held = evaluate(training.model, parts)
                training.history.append({"step": training.step, "train": mean, "validation": held, "lr": rate})
                bar.set_postfix(loss=f"{held:.3f}")
                tqdm.write(f"{training.step:6}   {mean:13.4f}   {held:15.4f}   {rate:13.2e}")
                training.save(path)
        if interrupt.pressed:
            training.save(path)
    return not interrupt.pressed


def draw(training: Training, path: str) -> None:
    """Writes the picture: the losses, and the learning rate below."""
    from matplotlib.figure import Figure  # not pyplot: no window, no display needed

    steps = [line["step"] for line in training.history]
    figure = Figure(figsize=(8, 6), dpi=130, layout="constrained")
    losses, rate = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    figure.suptitle("norch learns to write", fontsize=15, fontweight="bold")
    for name, color in (("train", "#00798c"), ("validation", "#d1495b")):
        values = [line[name] for line in training.history]
        losses.plot(steps, values, color=color, marker="o" if len(steps) <= 20 else None, markersize=4, label=name)
    losses.axhline(math.log(len(training.alphabet)), color="0.5", linestyle=":", linewidth=1.2, label="blind guess")
    losses.set(ylabel="cross entropy of a character")
    losses.legend(frameon=False)
    rate.plot(steps, [line["lr"] for line in training.history], color="#edae49")
    rate.set(xlabel="step", ylabel="learning rate")
    for axes in (losses, rate):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


# --- The command ----------------------------------------------------------------------------------------------------


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Learn to write as a text is written, with norch.")
    add = parser.add_argument
    add("--text", required=True, metavar="FILE", help="what to learn from: any UTF-8 text")
    add("--device", default="cpu", help="where to train (default: %(default)s)")
    add("--steps", type=positive, default=2000, help="updates of the weights (default: %(default)s)")
    add("--seed", type=int, default=0, help="of weights, batches and samples (default: %(default)s)")
    add("--out", default="char_gpt.png", help="the picture (default: %(default)s)")
    add("--checkpoint", default="char_gpt.norch", metavar="FILE", help="the state (default: %(default)s)")
    add("--resume", action="store_true", help="go on from the checkpoint, with its settings")
    add("--every", type=positive, default=100, help="steps from one line and checkpoint to the next (%(default)s)")
    size = parser.add_argument_group("model and training")
    add = size.add_argument
    add("--context", type=positive, default=128, help="characters it sees (default: %(default)s)")
    add("--width", type=positive, default=128, help="numbers for a character (default: %(default)s)")
    add("--depth", type=positive, default=4, help="blocks (default: %(default)s)")
    add("--heads", type=positive, default=4, help="of the attention (default: %(default)s)")
    add("--dropout", type=float, default=0.1, help="(default: %(default)s)")
    add("--batch", type=positive, default=32, help="pieces of text for an update (default: %(default)s)")
    add("--lr", type=float, default=2e-3, help="the highest learning rate (default: %(default)s)")
    add("--warmup", type=positive, default=100, help="steps to get there (default: %(default)s)")
    writing = parser.add_argument_group("writing")
    add = writing.add_argument
    add("--prompt", default="\n", help="what the sample starts with (default: a line end)")
    add("--sample", type=int, default=400, metavar="N", help="its characters (default: %(default)s)")
    add("--temperature", type=float, default=0.8, help="0: always the likeliest (default: %(default)s)")
    add("--top-k", type=int, default=20, metavar="K", help="of the K likeliest, 0: of all (default: %(default)s)")
    return parser.parse_args()


def main() -> int:
    args = parse()
    try:
        text = Path(args.text).read_text(encoding="utf-8")
        if args.resume:
            training = Training.load(args.checkpoint, args.device)
        else:
            settings = {name: getattr(args, name) for name in SETTINGS}
            training = Training(settings, "".join(sorted(set(text) | {"\n"})), args.device)
    except (OSError, ValueError, norch.NorchError) as error:
        print(error, file=sys.stderr)
        return 2
    context = training.settings["context"]
    data = encode(text, training.alphabet, args.device)
    held = int(len(data) * HELD)
    if held < context + 2:
        print(f"{args.text}: {len(data)} characters are too few for a context of {context}", file=sys.stderr)
        return 2
    learnt, parts = data[:-held], pieces(data[-held:], context)
    count = sum(p.numel() for p in training.model.parameters())
    print(f"{len(learnt):,} characters to learn from, {held:,} held back, {len(training.alphabet)} different ones")
    print(f"{count:,} weights, {training.settings['steps']} steps, on {args.device}", end="\n\n")

    start_step, start_time = training.step, time.perf_counter()
    done = train(training, learnt, parts, args.checkpoint)
    seconds, steps = time.perf_counter() - start_time, training.step - start_step
    if not done:
        print(f"\ninterrupted after step {training.step}: --resume goes on from there")
    if steps:
        print(f"\n{steps} steps in {seconds:.1f} s, {steps * training.settings['batch'] * context / seconds:,.0f} "
              "characters a second")  # fmt: skip
    if done and training.history:
        last = training.history[-1]
        print(f"validation loss {last['validation']:.4f}, {last['validation'] / math.log(2):.2f} bits a character\n")
        prompt = encode(args.prompt, training.alphabet, args.device)
        if not len(prompt):
            prompt = encode("\n", training.alphabet, args.device)
        found = sample(training.model, prompt, args.sample, args.temperature, args.top_k)
        print("".join(training.alphabet[i] for i in found.tolist()), end="\n\n")
    try:
        draw(training, args.out)
    except OSError as error:
        print(f"no picture: {error}", file=sys.stderr)
        return 1
    print(f"picture: {args.out}, checkpoint: {args.checkpoint}")
    return 0 if done else 130


if __name__ == "__main__":
    sys.exit(main())
