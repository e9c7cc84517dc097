"""The examples run as a user runs them: in a process of their own, to the end, with a picture to show for it."""

import importlib.util
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

EXAMPLES = Path(__file__).parents[1] / "examples"
PNG = b"\x89PNG\r\n\x1a\n"


def run(name, cwd, *args, **environment):
    command = [sys.executable, str(EXAMPLES / name), *args]
    env = os.environ | environment
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120)


def losses(text, title):
    return float(re.search(rf"^{title}: mean loss (\S+) after", text, re.MULTILINE)[1])


def test_sin_squared_learns_the_mean_and_then_the_curve(tmp_path):
    done = run("sin_squared.py", tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^  epoch +\d+/10 ", done.stdout, re.MULTILINE)) == 10
    assert losses(done.stdout, "the article's model") == pytest.approx(0.13, abs=0.01)
    assert losses(done.stdout, "a wider model") < 0.01
    assert (tmp_path / "sin_squared.png").read_bytes().startswith(PNG)


def test_the_demos_last_line_says_what_computed_and_how_to_get_another(tmp_path):
    done = run("sin_squared.py", tmp_path, "--epochs", "1", NORCH_BACKEND_CPU="numpy")
    last = done.stdout.splitlines()[-1]
    assert last.startswith("computed by the NumPy reference of norch-core; ")
    assert "hatch run native" in last
    assert "pip install norch-cpu" in last
    if importlib.util.find_spec("norch_cpu"):
        done = run("sin_squared.py", tmp_path, "--epochs", "1")
        assert re.match(r"computed by norch-cpu \(\w+\); NORCH_BACKEND_CPU=numpy ", done.stdout.splitlines()[-1])


# Three seeds in one process: importing scikit-learn and Matplotlib takes longer than an epoch.
ONE_AFTER_THE_OTHER = """
import pathlib, runpy, sys
script, *options, first, second, third = sys.argv[1:]
sys.path.insert(0, str(pathlib.Path(script).parent))
for seed in (first, second, third):
    sys.argv = [script, *options, seed]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        assert not end.code, end.code
    print("ended")
"""


@pytest.mark.parametrize("name", ["sin_squared.py", "digits.py"])
def test_options(name, tmp_path):
    if name == "digits.py":
        pytest.importorskip("sklearn")
    options = ["--epochs", "1", "--device", "cpu", "--out", "picture.png", "--seed"]
    command = [sys.executable, "-c", ONE_AFTER_THE_OTHER, str(EXAMPLES / name), *options, "7", "7", "8"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "picture.png").read_bytes().startswith(PNG)
    numbers = [re.findall(r"\d\.\d{4}", text) for text in done.stdout.split("ended\n")]
    assert numbers.pop() == []
    assert len(numbers[0]) > 1
    assert numbers[0] == numbers[1] != numbers[2]


@pytest.mark.parametrize("name", ["sin_squared.py", "digits.py"])
def test_an_unknown_device_is_explained(name, tmp_path):
    if name == "digits.py":
        pytest.importorskip("sklearn")
    done = run(name, tmp_path, "--device", "abacus")
    assert done.returncode == 2
    assert "abacus" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_no_epochs_are_refused(tmp_path):
    done = run("sin_squared.py", tmp_path, "--epochs", "0")
    assert done.returncode == 2
    assert "--epochs" in done.stderr


def test_a_picture_that_cannot_be_written_is_explained(tmp_path):
    done = run("sin_squared.py", tmp_path, "--epochs", "1", "--out", "no/such/folder.png")
    assert done.returncode == 1
    assert "no picture" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C reaches a Windows process in another way")
def test_ctrl_c_ends_with_a_picture(tmp_path):
    command = [sys.executable, "-u", str(EXAMPLES / "sin_squared.py"), "--epochs", "1000"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        for line in process.stdout:
            if "epoch" in line:
                process.send_signal(signal.SIGINT)
                break
        text, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "interrupted" in text
    assert "Traceback" not in errors
    assert (tmp_path / "sin_squared.png").read_bytes().startswith(PNG)


def test_digits_are_read(tmp_path):
    pytest.importorskip("sklearn")
    done = run("digits.py", tmp_path)
    assert done.returncode == 0, done.stderr
    accuracy = re.search(r"^test accuracy (\S+)% after", done.stdout, re.MULTILINE)
    assert accuracy, done.stdout
    assert float(accuracy[1]) >= 95
    assert (tmp_path / "digits.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("out", ["backprop.svg", "page.html"])
def test_backpropagation_step_by_step(tmp_path, out):
    done = run("backprop.py", tmp_path, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "DIFFERENT" not in done.stdout
    w, b, x, target = 0.8, -0.3, 1.5, 1.0  # by hand
    a = math.tanh(w * x + b)
    slope = 2 * (a - target) * (1 - a * a)
    for name, gradient in (("w", slope * x + 0.2 * w), ("b", slope)):
        found = re.search(rf"^ +{name} +(\S+) +(\S+) +(\S+)$", done.stdout, re.MULTILINE)
        assert [float(number) for number in found.groups()] == pytest.approx([gradient] * 3, abs=1e-7)
    before, after = map(float, re.search(r"(\d\.\d+) -> (\d\.\d+)", done.stdout).groups())
    assert before == pytest.approx((a - target) ** 2 + 0.1 * w * w, abs=1e-6)
    assert after < before
    picture = (tmp_path / out).read_text(encoding="utf-8")
    assert "loss = add" in picture
    assert f"grad {slope * x + 0.2 * w:.4g}" in picture


def test_backpropagation_explains_what_it_cannot_do(tmp_path):
    done = run("backprop.py", tmp_path, "--device", "abacus")
    assert (done.returncode, "abacus" in done.stderr, "Traceback" in done.stderr) == (2, True, False)
    done = run("backprop.py", tmp_path, "--out", "no/such/folder.svg")
    assert (done.returncode, "no picture" in done.stderr, "Traceback" in done.stderr) == (1, True, False)


def test_a_backend_is_built_and_trains_the_articles_model(tmp_path):
    done = run("build_your_own_backend.py", tmp_path, "--epochs", "3")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^    (\w+Error): ", done.stdout, re.MULTILINE) == [
        "DeviceError", "BackendError", "ShapeError", "BackendError",
    ]  # fmt: skip
    assert re.search(r"conv2d +copy matmul\n", done.stdout)
    rows = re.findall(r"^ +\d+   (0\.\d{6})   (0\.\d{6})$", done.stdout, re.MULTILINE)
    assert len(rows) == 3
    assert all(float(ours) == pytest.approx(float(cpu), abs=1e-5) for ours, cpu in rows)
    assert re.search(r"level 2  primitives by value +passed: \d+ passed\n", done.stdout)
    assert [int(n) for n in re.findall(r"level 1 .* (\d+) failed\n", done.stdout)] == [6, 2]
    assert (tmp_path / "build_your_own_backend.png").read_bytes().startswith(PNG)
