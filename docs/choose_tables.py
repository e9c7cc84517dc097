"""The tables of choose.md, from benchmarks/results/choose.json and programs.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
TITLES = {"norch": "norch", "torch": "PyTorch", "jax": "JAX", "mlx": "MLX", "tinygrad": "tinygrad", "numpy": "NumPy"}
COMPILED = {"norch": "captured", "torch": "compiled", "jax": "compiled", "mlx": "compiled", "tinygrad": "compiled"}
OPS = {"add": "4x4 add, us", "exp": "exp of 1,000,000, ms", "matmul": "512x512 matmul, ms"}
MODELS = {
    "article": "article's model, batch 1, us",
    "mlp": "MLP, batch 64, ms",
    "cnn": "CNN, batch 64, ms",
    "gpt": "GPT, 4 x 128, batch 16, ms",
}
SCALES = {"us": 1e6, "ms": 1e3, "s": 1.0}
MISSING = "-"


def shown(value: Any, scale: float = 1.0) -> str:
    """A number with three digits that count; what there is none of as a dash."""
    if not isinstance(value, int | float):
        return MISSING
    scaled = value * scale
    return f"{scaled:,.0f}" if scaled >= 99.5 else f"{scaled:.1f}" if scaled >= 9.95 else f"{scaled:.2g}"


def table(rows: list[list[str]]) -> str:
    head, *rest = rows
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---", *["---:"] * (len(head) - 1)], *rest))


def _row(title: str, frameworks: dict[str, Any], *path: str, scale: float | None = None) -> list[str]:
    cells = []
    for row in frameworks.values():
        found: Any = row
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        cells.append(shown(found, SCALES[title.rpartition(", ")[2]] if scale is None else scale))
    return [title, *cells]


def _head(frameworks: dict[str, Any]) -> list[str]:
    return ["", *[TITLES[name] for name in frameworks]]


def start(frameworks: dict[str, Any]) -> str:
    """What it takes to have it."""
    versions = [next(iter(row.get("versions", {}).values()), MISSING) for row in frameworks.values()]
    packages = [str(len(row["install"]["packages"])) if "install" in row else MISSING for row in frameworks.values()]
    return table(
        [
            _head(frameworks),
            ["version", *versions],
            [
                "what pip was given",
                *[f"`{row['install']['spec']}`" if "install" in row else MISSING for row in frameworks.values()],
            ],
            _row("size on disk, MB", frameworks, "install", "bytes", scale=1e-6),
            ["packages, itself included", *packages],
            _row("`pip install` with its downloads, s", frameworks, "install", "seconds"),
            _row("import, ms", frameworks, "start", "import"),
            _row("a script that adds two 4x4 matrices, s", frameworks, "start", "first_sum"),
        ]
    )


def ops(frameworks: dict[str, Any]) -> str:
    return table([_head(frameworks), *[_row(title, frameworks, "ops", op) for op, title in OPS.items()]])


def eager(frameworks: dict[str, Any]) -> str:
    return table(
        [_head(frameworks)]
        + [_row(title, frameworks, "steps", model, "eager", "seconds") for model, title in MODELS.items()]
    )


def compiled(frameworks: dict[str, Any]) -> str:
    """The steps, and under each how long the first six took, with what had to be compiled."""
    own = {name: row for name, row in frameworks.items() if name in COMPILED}
    flat = {
        name: {m: row.get("steps", {}).get(m, {}).get(COMPILED[name], {}) for m in MODELS} for name, row in own.items()
    }
    rows = [_head(own)]
    for model, title in MODELS.items():
        rows.append(_row(title, flat, model, "seconds"))
        rows.append(_row("its first six, s", flat, model, "first"))
    return table(rows)


def reasons(frameworks: dict[str, Any]) -> str:
    """What has no figure, and why."""
    found = []
    for name, row in frameworks.items():
        found += [f"- {TITLES[name]}: {row['why']}\n"] if "why" in row else []
        found += [
            f"- {TITLES[name]}, {OPS[k]}: {v['why']}\n" for k, v in row.get("ops", {}).items() if isinstance(v, dict)
        ]
        for model, modes in row.get("steps", {}).items():
            found += [f"- {TITLES[name]}, {MODELS[model]}, {k}: {v['why']}\n" for k, v in modes.items() if "why" in v]
    return "".join(found) or "Everything was installed and ran.\n"


def machine(result: dict[str, Any]) -> str:
    compilers = ", ".join(result["compilers"].values()) or "no compiler"
    others = result["others"]
    shared = "" if others is None or others < 0.05 else (
        f" **Others used {others:.0%} of the machine meanwhile**: the times are too long, and unevenly so."
    )  # fmt: skip
    return (
        f"Measured {result['date'][:10]} at commit {result['commit']} on {result['cores']} cores, {result['cpu']}, "
        f"Python {result['python']}, {compilers}.{shared}\n"
    )


def programs() -> str:
    result = json.loads((RESULTS / "programs.json").read_text())
    rows = result["programs"]
    ran = sum(row.get("difference") is not None and row["difference"] <= 1e-3 for row in rows)
    return (
        f"{ran} of {len(rows)} programs out of {len({row['repository'] for row in rows})} public repositories and "
        "packages, written for PyTorch, run on norch with only their imports changed and give PyTorch's numbers "
        f"({result['date']}).\n"
    )


def filled(text: str) -> str:
    """The page with what stands between "<!-- measured NAME -->" and "<!-- end -->" written anew."""
    result = json.loads((RESULTS / "choose.json").read_text())
    frameworks = result["frameworks"]
    makers = {f.__name__: lambda f=f: f(frameworks) for f in (start, ops, eager, compiled, reasons)}
    makers |= {"machine": lambda: machine(result), "programs": programs}
    before, *parts = text.split("<!-- measured ")
    for i, part in enumerate(parts):
        name, _, rest = part.partition(" -->\n")
        parts[i] = f"{name} -->\n{makers[name]()}<!-- end -->{rest.partition('<!-- end -->')[2]}"
    return "<!-- measured ".join([before, *parts])
