"""The repository's examples learn on WebGPU, of which neither they nor norch-nn know anything."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import norch
from norch import nn, optim

EXAMPLES = Path(__file__).parents[2]


def run(name, cwd, *args):
    command = [sys.executable, str(EXAMPLES / name), "--device", "webgpu", *args]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_articles_model(tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("tqdm")
    said = run("sin_squared.py", tmp_path, "--epochs", "1")
    losses = [float(loss) for loss in re.findall(r"model: mean loss (\S+) after", said)]
    assert losses == pytest.approx([0.336, 0.032], abs=0.005)  # the CPU's


def test_digits(tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    said = run("digits.py", tmp_path, "--epochs", "5")
    assert float(re.search(r"test accuracy ([\d.]+)%", said)[1]) > 90


def test_strides(tmp_path):
    said = run("strides.py", tmp_path)
    assert said.count("the same") >= 5


@pytest.mark.slow
def test_a_language_model(tmp_path):
    pytest.importorskip("matplotlib")
    size = "--width 32 --depth 2 --heads 2 --context 32 --batch 8".split()
    said = run(
        "char_gpt.py", tmp_path, "--text", str(EXAMPLES / "char_gpt.py"), "--steps", "60", "--every", "30", *size
    )
    losses = [float(loss) for loss in re.findall(r"^ +\d+ +(\d+\.\d+)", said, re.MULTILINE)]
    assert losses[-1] < 3.2 < losses[0]


@pytest.mark.slow
def test_a_captured_step_is_the_eager_one():
    found = []
    for capture in (False, True):
        norch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3)).to("webgpu")
        optimizer = optim.AdamW(model.parameters(), lr=0.01)
        x, y = norch.randn(32, 8, device="webgpu"), norch.randint(0, 3, (32,), device="webgpu")

        def step(x, y, model=model, optimizer=optimizer):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        call = norch.capture(step) if capture else step
        found.append([call(x, y).item() for _ in range(8)])
    assert found[0] == found[1]
    assert found[0][-1] < found[0][0]


@pytest.mark.slow
def test_a_convolutional_network():
    norch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(32, 2),
    ).to("webgpu")  # fmt: skip
    labels = norch.arange(32, device="webgpu") % 2
    places = norch.randint(0, 8, (32, 1, 1, 1), device="webgpu")
    grid = norch.arange(8, device="webgpu")
    rows, columns = grid.reshape(1, 1, 8, 1) == places, grid == places
    x = norch.where(labels.reshape(32, 1, 1, 1) == 1, rows.expand(32, 1, 8, 8), columns.expand(32, 1, 8, 8)).float()
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    for _ in range(60):
        loss = criterion(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
    assert (model(x).argmax(1) == labels).all().item()
