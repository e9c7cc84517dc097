"""examples/fashion_mnist.py as a user runs it: on the real pictures where they are, else on made-up ones.

The real ones are looked for where the environment variable NORCH_FASHION_MNIST says and where Debian's package
dataset-fashion-mnist puts them.
"""

import os
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")
np = pytest.importorskip("numpy")

import norch  # noqa: E402
from norch.vision.datasets import FashionMNIST  # noqa: E402

EXAMPLE = Path(__file__).parents[1] / "examples" / "fashion_mnist.py"
PNG = b"\x89PNG\r\n\x1a\n"
CHECKPOINT = "checkpoint.safetensors"


def write_idx(path, array):
    path.write_bytes(struct.pack(f">I{array.ndim}I", 0x800 | array.ndim, *array.shape) + array.tobytes())


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    """A folder in Fashion-MNIST's format: ten patterns under noise, 640 pictures to learn from."""
    folder = tmp_path_factory.mktemp("made_up")
    draws = np.random.default_rng(0)
    patterns = draws.integers(0, 160, (10, 7, 7)).repeat(4, 1).repeat(4, 2)
    for part, count in (("train", 640), ("t10k", 200)):
        labels = draws.integers(0, 10, count)
        pictures = patterns[labels] + draws.integers(0, 90, (count, 28, 28))
        write_idx(folder / f"{part}-images-idx3-ubyte", pictures.astype(np.uint8))
        write_idx(folder / f"{part}-labels-idx1-ubyte", labels.astype(np.uint8))
    return folder


def command(*args):
    return [sys.executable, "-u", str(EXAMPLE), *map(str, args)]


def run(cwd, *args):
    return subprocess.run(command(*args), cwd=cwd, capture_output=True, text=True, timeout=300)


def rows(text):
    """The table of a run, without the seconds."""
    return re.findall(r"^ +(\d+(?: +\d+\.\d+%?){4}) +\d+\.\d$", text, re.MULTILINE)


def accuracy(text):
    return float(re.search(r"^test accuracy (\S+)% after", text, re.MULTILINE)[1])


def flat(state, path=""):
    """The leaves of a nested state by their paths, tensors as bytes, without the times."""
    if isinstance(state, dict):
        return {k: v for key, part in state.items() if key != "seconds" for k, v in flat(part, f"{path}/{key}").items()}
    if isinstance(state, (list, tuple)):
        return {k: v for i, part in enumerate(state) for k, v in flat(part, f"{path}/{i}").items()}
    return {path: state.detach().numpy().tobytes() if isinstance(state, norch.Tensor) else state}


def same_end(first, second):
    one, other = (flat(norch.load(out / CHECKPOINT)) for out in (first, second))
    assert len(one) > 40
    assert one == other


def test_real_pictures_are_told_apart(tmp_path):
    data = os.environ.get("NORCH_FASHION_MNIST", FashionMNIST.package_folder)
    if not Path(data).is_dir():
        pytest.skip("Fashion-MNIST is not installed here")
    done = run(tmp_path, "--data", data, "--limit", 2000, "--epochs", 3, "--out", "out")
    assert done.returncode == 0, done.stderr
    assert len(rows(done.stdout)) == 3
    assert accuracy(done.stdout) > 75
    assert "2000 pictures to learn from, 2000 to test on" in done.stdout


def test_made_up_pictures_are_told_apart(made_up, tmp_path):
    done = run(tmp_path, "--data", made_up, "--unverified", "--epochs", 3, "--batch-size", 32, "--out", "a/b")
    assert done.returncode == 0, done.stderr
    assert len(rows(done.stdout)) == 3
    assert accuracy(done.stdout) > 95
    for name in ("curves.png", "confusion.png"):
        assert (tmp_path / "a" / "b" / name).read_bytes().startswith(PNG)
    assert (tmp_path / "a" / "b" / CHECKPOINT).is_file()


def test_going_on_is_as_if_it_had_never_stopped(made_up, tmp_path):
    options = ["--data", made_up, "--unverified", "--batch-size", 50, "--seed", 3]
    at_once = run(tmp_path, *options, "--epochs", 2, "--out", "at_once", "--num-workers", 0)
    assert at_once.returncode == 0, at_once.stderr
    first = run(tmp_path, *options, "--epochs", 1, "--out", "parts")
    second = run(tmp_path, *options, "--epochs", 2, "--out", "parts", "--resume", "--num-workers", 2)
    assert second.returncode == 0, second.stderr
    assert rows(first.stdout) == rows(at_once.stdout)[:1]
    assert rows(second.stdout) == rows(at_once.stdout)
    same_end(tmp_path / "at_once", tmp_path / "parts")
    other = run(tmp_path, *options[:-1], 4, "--epochs", 1, "--out", "other")
    assert rows(other.stdout) != rows(first.stdout)


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C reaches a Windows process in another way")
@pytest.mark.slow
def test_ctrl_c_in_the_middle_of_an_epoch(made_up, tmp_path):
    options = ["--data", made_up, "--unverified", "--batch-size", 4, "--epochs", 3]
    whole = run(tmp_path, *options, "--out", "whole")
    assert whole.returncode == 0, whole.stderr
    for attempt in range(5):
        out = tmp_path / f"parts{attempt}"
        pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with subprocess.Popen(command(*options, "--out", out), cwd=tmp_path, **pipes) as process:
            while not (out / CHECKPOINT).exists():
                assert process.poll() is None
                time.sleep(0.01)
            time.sleep(0.1 * (attempt + 1))
            process.send_signal(signal.SIGINT)
            text, errors = process.communicate(timeout=120)
        assert process.returncode == 130, errors
        assert "Traceback" not in errors
        batches = int(re.search(r"interrupted in epoch \d, after (\d+) of 160 batches; go on with --resume", text)[1])
        if batches:
            break
    assert batches
    rest = run(tmp_path, *options, "--out", out, "--resume")
    assert rest.returncode == 0, rest.stderr
    assert rows(rest.stdout) == rows(whole.stdout)
    same_end(tmp_path / "whole", out)


def test_what_cannot_be_done_is_explained(made_up, tmp_path):
    options = ["--data", made_up, "--unverified", "--limit", 20, "--epochs", 1, "--out", "out"]
    cases = [
        ([*options, "--device", "abacus"], "abacus"),
        (["--data", made_up], "does not have the checksum of the published file"),
        (["--data", made_up], "pass --unverified"),
        ([*options, "--resume"], "cannot go on from"),
    ]
    for args, message in cases:
        done = run(tmp_path, *args)
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr
    assert run(tmp_path, *options).returncode == 0
    done = run(tmp_path, *options, "--resume", "--lr", "0.5")
    assert done.returncode == 2
    assert "it was made with --lr 0.002" in done.stderr
    damaged = bytearray((tmp_path / "out" / CHECKPOINT).read_bytes())
    damaged[-100] ^= 1
    (tmp_path / "out" / CHECKPOINT).write_bytes(damaged)
    done = run(tmp_path, *options, "--resume")
    assert done.returncode == 2
    assert "cannot go on from" in done.stderr
    assert "Traceback" not in done.stderr
