"""Architectures of timm and transformers, with weights as they are drawn, by norch in PyTorch's place beside PyTorch.

    python benchmarks/architectures.py [--device cuda] [--only vit] [--modes infer,train] [--json FILE]

Each runs in a process of its own for each library; their steps are timed in turn, and the least counts. On a GPU under
autocast in bfloat16. A training step is forward, backward and AdamW. It needs PyTorch, timm and transformers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SMALL = {"num_hidden_layers": 4, "hidden_size": 384, "num_attention_heads": 6}
GROUPED = SMALL | {"num_key_value_heads": 2, "intermediate_size": 1024, "vocab_size": 8192}
WIDE = SMALL | {"intermediate_size": 1536}
IMAGES = [
    "resnet50", "convnext_tiny", "vit_small_patch16_224", "swin_tiny_patch4_window7_224", "efficientnet_b0",
    "mobilenetv3_large_100", "regnety_032", "xcit_tiny_12_p16_224", "maxvit_tiny_rw_224", "densenet121", "vgg16_bn",
    "coatnet_0_rw_224", "dm_nfnet_f0", "levit_256", "mobilevit_s", "hrnet_w18", "ghostnet_100", "cait_xxs24_224",
    "davit_tiny", "hiera_tiny_224", "sequencer2d_s", "focalnet_tiny_srf", "lambda_resnet26t", "efficientvit_b1",
    "convmixer_768_32", "nextvit_small", "starnet_s2",
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
    cross_entropy = torch.nn.functional.cross_entropy
    if name in IMAGES:
        import timm

        model = timm.create_model(name)
        images = torch.randn(batch, *model.default_cfg["input_size"])
        classes = torch.randint(0, 1000, (batch,))
        return model, lambda: model(images), lambda out: cross_entropy(out, classes)
    import transformers

    kind, config, options = TEXTS[name]
    model = getattr(transformers, kind)(getattr(transformers, config)(**options))
    tokens = torch.randint(0, 1000, (batch, TOKENS))

    def loss(out: Any) -> Any:
        return cross_entropy(out.logits.float().flatten(0, 1), tokens.flatten())

    return model, lambda: model(input_ids=tokens), loss


def child(library: str, name: str, mode: str, device: str, batch: int, calls: int) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a model's code prints is no answer
    if library == "norch":
        from norch.compat import standin

        standin.install()
    import torch

    gpu = device == "cuda"
    torch.set_default_device(device)
    model, output, loss = built(torch, name, batch)
    model.train(mode == "train")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=gpu):
            value = loss(output())
        value.backward()
        optimizer.step()

    def infer() -> None:
        with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=gpu):
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
    print("ready", file=answers)
    for _ in sys.stdin:
        print(took(calls), file=answers)


# --- Beside each other ------------------------------------------------------------------------------------------------


def measure(name: str, mode: str, device: str, batch: int, rounds: int, calls: int) -> dict[str, Any]:
    row: dict[str, Any] = {"model": name, "mode": mode, "batch": batch}
    command = [sys.executable, "-W", "ignore", __file__, "--child", name, mode, device, str(batch), str(calls)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    children = {
        library: subprocess.Popen(
            [*command, library], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        for library in ("norch", "torch")
    }
    try:
        for library, process in children.items():
            if process.stdout.readline().strip() != "ready":  # type: ignore[union-attr]
                return row | {"error": f"{library} ended with {process.wait()}"}
        times: dict[str, list[float]] = {library: [] for library in children}
        for _ in range(rounds):
            for library, process in children.items():
                print("go", file=process.stdin, flush=True)
                times[library].append(float(process.stdout.readline()))  # type: ignore[union-attr]
        row |= {library: min(taken) for library, taken in times.items()}
        return row | {"time": row["norch"] / row["torch"]}
    finally:
        for process in children.values():
            process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description="Architectures of timm and transformers by norch beside PyTorch.")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--only", default="", help="a part of the names of the models to run")
    parser.add_argument("--modes", default="infer,train")
    parser.add_argument("--batch", type=int, help="32 images or 16 texts on a GPU, else 2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    print(f"{'milliseconds':42} {'norch':>9} {'torch':>9} {'time':>6}")
    for name in (*IMAGES, *TEXTS):
        for mode in options.modes.split(","):
            if options.only not in name:
                continue
            gpu = options.device == "cuda"
            batch = options.batch or ((32 if name in IMAGES else 16) if gpu else 2)
            row = measure(name, mode, options.device, batch, options.rounds, 5 if gpu else 1)
            rows.append(row)
            label = f"{name} {mode}"
            if "error" in row:
                print(f"{label:42} {row['error']}", flush=True)
            else:
                print(f"{label:42} {1e3 * row['norch']:9.2f} {1e3 * row['torch']:9.2f} {row['time']:6.2f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"device": options.device, "rows": rows}, indent=2) + "\n")
    return sum("error" in row for row in rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _name, _mode, _device, _batch, _calls, _library = sys.argv[2:]
        child(_library, _name, _mode, _device, int(_batch), int(_calls))
    else:
        sys.exit(main())
