"""Models of norch-nn learn on OpenCL, of which norch-nn knows nothing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import norch
from norch import nn, optim

EXAMPLES = Path(__file__).parents[2]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(norch.randn(4, 1, 3, 3) * 0.3)
        self.second = nn.Parameter(norch.randn(8, 4, 3, 3) * 0.2)
        self.linear = nn.Linear(32, 2)

    def forward(self, x):
        x = norch.max_pool2d(norch.conv2d(x, self.first, padding=1).relu(), 2)
        return self.linear(norch.conv2d(x, self.second).relu().flatten(1))


def run(name, cwd, *args):
    command = [sys.executable, str(EXAMPLES / name), "--device", "opencl", *args]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
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


def test_a_convolutional_network():
    norch.manual_seed(0)
    model = Net().to("opencl")
    labels = norch.arange(32, device="opencl") % 2
    places = norch.randint(0, 8, (32, 1, 1, 1), device="opencl")
    grid = norch.arange(8, device="opencl")
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
