"""Architectures of timm and transformers, with weights as they are drawn, by norch in PyTorch's place beside PyTorch.

    python benchmarks/architectures.py [--device cuda] [--only vit] [--modes check,infer,train] [--json FILE]

Each runs in a process of its own for each library; their steps are timed in turn, and the least counts. On a GPU under
autocast in bfloat16, unless `--precision float32`, and with the most memory that a step takes besides. A training step
is forward, backward and AdamW. "check" compares results and gradients in float32, of PyTorch's weights and without
dropout: their distance from PyTorch's as a part of these. It needs PyTorch, timm and transformers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SMALL = {"num_hidden_layers": 4, "hidden_size": 384, "num_attention_heads": 6}
GROUPED = SMALL | {"num_key_value_heads": 2, "intermediate_size": 1024, "vocab_size": 8192}
WIDE = SMALL | {"intermediate_size": 1536}
IMAGES = [
    "resnet50", "convnext_tiny", "vit_small_patch16_224", "swin_tiny_patch4_window7_224", "efficientnet_b0",
    "mobilenetv3_large_100", "regnety_032", "xcit_tiny_12_p16_224", "maxvit_tiny_rw_224", "densenet121", "vgg16_bn",
    "coatnet_0_rw_224", "dm_nfnet_f0", "levit_256", "mobilevit_s", "hrnet_w18", "ghostnet_100", "cait_xxs24_224",
    "davit_tiny", "hiera_tiny_224", "sequencer2d_s", "focalnet_tiny_srf", "lambda_resnet26t", "efficientvit_b1",
    "convmixer_768_32", "nextvit_small", "starnet_s2", "fastvit_t8", "poolformer_s12", "resnest50d",
]  # fmt: skip
TEXTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertForMaskedLM", "BertConfig", WIDE),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"n_layer": 4, "n_embd": 384, "n_head": 6}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "mistral": ("MistralForCausalLM", "MistralConfig", GROUPED | {"sliding_window": 64}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", GROUPED | {"head_dim": 64}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", GROUPED | {"head_dim": 64}),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", GROUPED | {"num_local_experts": 4}),
    "deberta": ("DebertaV2ForMaskedLM", "DebertaV2Config", WIDE | {
        "vocab_size": 8192, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "opt": ("OPTForCausalLM", "OPTConfig", SMALL | {"ffn_dim": 1536, "vocab_size": 8192}),
    "bloom": ("BloomForCausalLM", "BloomConfig", {"n_layer": 4, "hidden_size": 384, "n_head": 6, "vocab_size": 8192}),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", WIDE | {"vocab_size": 8192}),
    "roformer": ("RoFormerForMaskedLM", "RoFormerConfig", WIDE | {"vocab_size": 8192}),
    "mpnet": ("MPNetForMaskedLM", "MPNetConfig", WIDE | {"vocab_size": 8192}),
    "gptneox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", WIDE | {"vocab_size": 8192}),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", GROUPED | {"pad_token_id": 0}),
    "falcon": ("FalconForCausalLM", "FalconConfig", SMALL | {"vocab_size": 8192}),
    "olmoe": ("OlmoeForCausalLM", "OlmoeConfig", GROUPED | {"num_experts": 8, "num_experts_per_tok": 2}),
    "qwen3moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", GROUPED | {
        "head_dim": 64, "num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 256}),
    "mamba": ("MambaForCausalLM", "MambaConfig", {"num_hidden_layers": 4, "hidden_size": 256, "vocab_size": 8192}),
}  # fmt: skip
TOKENS = 128


# --- In a process of its own ------------------------------------------------------------------------------------------


def built(torch: Any, name: str, batch: int) -> tuple[Any, Callable[[], Any], Callable[[Any], Any]]:
    """The model, what gives its output for a batch, and the loss of that."""
    cross_entropy, draws = torch.nn.functional.cross_entropy, np.random.default_rng(0)
    if name in IMAGES:
        import timm

        model = timm.create_model(name)
        images = torch.tensor(draws.standard_normal((batch, *model.default_cfg["input_size"]), np.float32))
        classes = torch.tensor(draws.integers(0, 1000, batch))
        return model, lambda: model(images), lambda out: cross_entropy(out, classes)
    import transformers

    kind, config, options = TEXTS[name]
    model = getattr(transformers, kind)(getattr(transformers, config)(**options))
    tokens = torch.tensor(draws.integers(0, 1000, (batch, TOKENS)))

    def loss(out: Any) -> Any:
        return cross_entropy(out.logits.float().flatten(0, 1), tokens.flatten())

    return model, lambda: model(input_ids=tokens), loss


def compare(torch: Any, library: str, folder: Path, model: Any, output: Any, loss: Any) -> dict[str, float]:
    """PyTorch leaves its weights, result and gradients in the folder; norch says how far its own are from them."""
    weights, numbers = folder / "weights.pt", folder / "numbers.npz"
    if library == "torch":
        torch.save(model.state_dict(), weights)
    else:
        model.load_state_dict(torch.load(weights))
    model.eval()
    out = output()
    loss(out).backward()
    found = {k: p.grad.detach().cpu().numpy() for k, p in model.named_parameters() if p.grad is not None}
    found[""] = getattr(out, "logits", out).detach().cpu().numpy()
    if library == "torch":
        np.savez(numbers, **{f"-{k}": v for k, v in found.items()})
        return {}
    wanted = {k[1:]: v for k, v in np.load(numbers).items()}
    if wanted.keys() != found.keys():
        raise ValueError(f"gradients of one library only: {sorted(wanted.keys() ^ found.keys())[:5]}")

    def distance(keys: set[str]) -> float:
        off, whole = (sum(float(np.square(v, dtype=float).sum()) for v in part) for part in (
            (found[k] - wanted[k] for k in keys), (wanted[k] for k in keys)
        ))  # fmt: skip
        return (off / whole) ** 0.5

    return {"output": distance({""}), "gradients": distance(set(wanted) - {""})}


def child(library: str, name: str, mode: str, device: str, batch: int, calls: int, precision: str, folder: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a model's code prints is no answer
    if library == "norch":
        from norch.compat import standin

        standin.install()
    import torch

    gpu = device == "cuda"
    torch.set_default_device(device)
    torch.backends.cudnn.allow_tf32 = False  # which is norch's default
    model, output, loss = built(torch, name, batch)
    if mode == "check":
        print(json.dumps(compare(torch, library, Path(folder), model, output, loss)), file=answers)
        return
    model.train(mode == "train")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=gpu and precision == "bfloat16"):
            value = loss(output())
        value.backward()
        optimizer.step()

    def infer() -> None:
        with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=gpu and precision == "bfloat16"):
            output()

    call = step if mode == "train" else infer

    def took(count: int) -> float:
        if gpu:
            torch.cuda.synchronize()
        start = time.perf_counter() if gpu else time.process_time()
        for _ in range(count):
            call()
        if gpu:
            torch.cuda.synchronize()
        return ((time.perf_counter() if gpu else time.process_time()) - start) / count

    took(4 if gpu else 2)
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if gpu else 0
    call()
    most = torch.cuda.max_memory_allocated() - before if gpu else 0
    print(f"ready {most}", file=answers)
    for _ in sys.stdin:
        print(took(calls), file=answers)


# --- Beside each other ------------------------------------------------------------------------------------------------


def command(name: str, mode: str, options: argparse.Namespace, batch: int, folder: str = "") -> list[str]:
    calls = 5 if options.device == "cuda" else 1
    given = (name, mode, options.device, str(batch), str(calls), options.precision, folder)
    return [sys.executable, "-W", "ignore", __file__, "--child", *given]


def check(name: str, options: argparse.Namespace, batch: int) -> dict[str, Any]:
    row: dict[str, Any] = {"model": name, "mode": "check", "batch": batch}
    with tempfile.TemporaryDirectory() as folder:
        for library in ("torch", "norch"):
            run = subprocess.run(
                [*command(name, "check", options, batch, folder), library], stdout=subprocess.PIPE, env=ENVIRONMENT
            )
            if run.returncode:
                return row | {"error": f"{library} ended with {run.returncode}"}
    return row | json.loads(run.stdout)


def measure(name: str, mode: str, options: argparse.Namespace, batch: int) -> dict[str, Any]:
    row: dict[str, Any] = {"model": name, "mode": mode, "batch": batch}
    children = {
        library: subprocess.Popen(
            [*command(name, mode, options, batch), library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        for library in ("norch", "torch")
    }
    try:
        most = {}
        for library, process in children.items():
            ready, _, memory = process.stdout.readline().partition(" ")  # type: ignore[union-attr]
            if ready != "ready":
                return row | {"error": f"{library} ended with {process.wait()}"}
            most[library] = int(memory)
        times: dict[str, list[float]] = {library: [] for library in children}
        for _ in range(options.rounds):
            for library, process in children.items():
                print("go", file=process.stdin, flush=True)
                times[library].append(float(process.stdout.readline()))  # type: ignore[union-attr]
        row |= {library: min(taken) for library, taken in times.items()} | {"time": 0.0}
        row["time"] = row["norch"] / row["torch"]
        return row | ({"memory": most["norch"] / most["torch"]} if most["torch"] else {})
    finally:
        for process in children.values():
            process.kill()


ENVIRONMENT = os.environ | {"HF_HUB_OFFLINE": "1"}


def main() -> int:
    parser = argparse.ArgumentParser(description="Architectures of timm and transformers by norch beside PyTorch.")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--only", default="", help="a part of the names of the models to run")
    parser.add_argument("--modes", default="infer,train")
    parser.add_argument("--batch", type=int, help="32 images or 16 texts on a GPU, else 2")
    parser.add_argument("--precision", default="bfloat16", choices=["bfloat16", "float32"], help="on a GPU")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    print(f"{'milliseconds':42} {'norch':>9} {'torch':>9} {'time':>6} {'memory':>7}")
    for name in (*IMAGES, *TEXTS):
        for mode in options.modes.split(","):
            if options.only not in name:
                continue
            gpu = options.device == "cuda"
            batch = options.batch or ((32 if name in IMAGES else 16) if gpu else 2)
            row = check(name, options, batch) if mode == "check" else measure(name, mode, options, batch)
            rows.append(row)
            label = f"{name} {mode}"
            if "error" in row:
                print(f"{label:42} {row['error']}", flush=True)
            elif mode == "check":
                print(f"{label:42} result {row['output']:.1e}, gradients {row['gradients']:.1e}", flush=True)
            else:
                memory = f"{row['memory']:7.2f}" if "memory" in row else ""
                times = f"{1e3 * row['norch']:9.2f} {1e3 * row['torch']:9.2f} {row['time']:6.2f}"
                print(f"{label:42} {times} {memory}", flush=True)
    if options.json:
        report = {"device": options.device, "precision": options.precision, "rows": rows}
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return sum("error" in row for row in rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _name, _mode, _device, _batch, _calls, _precision, _folder, _library = sys.argv[2:]
        child(_library, _name, _mode, _device, int(_batch), int(_calls), _precision, _folder)
    else:
        sys.exit(main())
