"""Models whose layers are quantised."""

import numpy as np
import pytest

import norch
from norch import nn
from norch.nn.quantized import quantize_

FORMATS = ("int8", "q8_0", "q4_0")
# How far scores may be from those of the floating model, of the largest.
NEAR = {"int8": 0.03, "q8_0": 0.03, "q4_0": 0.4}


class Words(nn.Module):
    """A table, two layers, and scores by the table again."""

    def __init__(self):
        super().__init__()
        norch.manual_seed(3)
        self.table = nn.Embedding(40, 64)
        self.body = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64))
        self.scores = nn.Linear(64, 40, bias=False)
        self.scores.weight = self.table.weight

    def forward(self, x):
        return self.scores(self.body(self.table(x)))


WORDS = norch.tensor(np.arange(24).reshape(2, 12))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16])
def test_a_model_gives_about_what_it_gave(format, dtype):
    model = Words().to(dtype).eval()
    before = model(WORDS).float()
    assert quantize_(model, format) is model
    after = model(WORDS)
    assert after.dtype is dtype
    assert float((after.float() - before).abs().max()) < NEAR[format] * float(before.abs().max())
    assert list(model.parameters()) == []
    assert model.scores.weight is model.table.weight
    assert type(model.body[0]) is nn.quantized.Linear
    assert not model.body[0].training
    assert repr(model.body[2]) == f"Linear(in_features=96, out_features=64, bias=True, format={format!r})"
    assert repr(model.table) == f"Embedding(40, 64, format={format!r})"


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("assign", [False, True])
def test_a_saved_model_is_loaded_whatever_format_it_was_made_with(format, assign, tmp_path):
    model = quantize_(Words(), format)
    norch.save(model.state_dict(), tmp_path / "x")
    for other in FORMATS:
        again = quantize_(Words(), other)
        again.load_state_dict(norch.load(tmp_path / "x"), assign=assign)
        assert again.body[0].format == format
        assert norch.equal(again(WORDS), model(WORDS))


def test_floating_weights_are_quantised_as_they_are_loaded():
    floating = Words()
    for part in floating.body[::2]:
        nn.init.normal_(part.weight)
    model = quantize_(Words(), "q8_0")
    model.load_state_dict(floating.state_dict())
    assert norch.equal(model(WORDS), quantize_(floating, "q8_0")(WORDS))


def test_a_load_that_fails_changes_no_result():
    model = quantize_(Words(), "q8_0")
    before = model(WORDS)
    state = quantize_(Words(), "int8").state_dict()
    del state["body.2.bias"]
    with pytest.raises(nn.StateDictError, match="body.2.bias"):
        model.load_state_dict(state)
    assert float((model(WORDS) - before).abs().max()) < NEAR["int8"] * float(before.abs().max())


def test_wrong_shapes_are_refused():
    layer = nn.quantized.Linear(64, 3, format="q8_0")
    for wrong in (norch.ones(3, 32), norch.zeros(4, 68, dtype=norch.uint8), norch.zeros(3, 50, dtype=norch.uint8)):
        with pytest.raises(nn.StateDictError, match="size mismatch for weight"):
            layer.load_state_dict({"weight": wrong, "bias": norch.zeros(3)})


def test_blocks_of_a_gguf_file_are_computed_with(tmp_path):
    package = pytest.importorskip("gguf")
    rng = np.random.default_rng(0)
    numbers = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in {
        "up": (96, 64), "down": (64, 96)}.items()}  # fmt: skip
    kinds = {"up": package.GGMLQuantizationType.Q8_0, "down": package.GGMLQuantizationType.Q4_0}
    stored = {name: package.quants.quantize(w, kinds[name]) for name, w in numbers.items()}
    writer = package.GGUFWriter(tmp_path / "x.gguf", "llama")
    for name, raw in stored.items():
        writer.add_tensor(f"{name}.weight", raw, raw_dtype=kinds[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = nn.Sequential()
    for name, w in numbers.items():
        model.add_module(name, nn.Linear(w.shape[1], w.shape[0], bias=False, device="meta"))
    quantize_(model)
    model.load_state_dict(norch.load(tmp_path / "x.gguf", dequantize=False), assign=True)
    assert [part.format for part in model] == ["q8_0", "q4_0"]
    x = rng.standard_normal((20, 64)).astype(np.float32)
    want = x
    for name, raw in stored.items():
        want = want @ package.quants.dequantize(raw, kinds[name]).T
    given = norch.tensor(x)
    found = model.to(given.device)(given).cpu().numpy()
    assert np.allclose(found, want, rtol=2e-2, atol=2e-2 * np.abs(want).max())


def test_what_is_replaced():
    class Own(nn.Linear):
        pass

    layers = [nn.Linear(32, 3), Own(32, 3), nn.Embedding(4, 32, max_norm=1.0), nn.Linear(32, 3), nn.Conv1d(1, 1, 1)]
    layers[3].register_forward_hook(lambda *_: None)
    model = nn.Sequential(*layers, nn.MultiheadAttention(32, 2), layers[0])
    quantize_(model, "q8_0")
    assert type(model[0]) is nn.quantized.Linear
    assert model[6] is model[0]
    assert [part is old for part, old in zip(model, layers, strict=False)] == [False, True, True, True, True]
    assert isinstance(model[5].out_proj, nn.Linear)
    named = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    quantize_(named, filter_fn=lambda part, name: name == "1" and part.in_features == 32)
    assert [type(part) for part in named] == [nn.Linear, nn.quantized.Linear]
    assert type(quantize_(nn.Linear(5, 2))) is nn.quantized.Linear


def test_a_model_that_does_not_fit_stays_as_it_is():
    model = nn.Sequential(nn.Linear(32, 33), nn.Linear(33, 2))
    with pytest.raises(norch.ShapeError, match=r"quantize_\(\): 1: .* a multiple of 32"):
        quantize_(model, "q4_0")
    assert type(model[0]) is nn.Linear
    with pytest.raises(ValueError, match="must be one of int8, q8_0, q4_0"):
        quantize_(model, "int4")


def test_it_is_not_trained():
    layer = quantize_(nn.Linear(32, 3))
    x = norch.randn(2, 32, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    with pytest.raises(ValueError, match="empty parameter list"):
        norch.optim.SGD(layer.parameters(), lr=0.1)
    with pytest.raises(norch.DTypeError, match="only floating tensors can require grad"):
        layer.weight.requires_grad_()


@pytest.mark.parametrize("format", FORMATS)
def test_captured(format):
    model = quantize_(Words().eval(), format)

    @norch.capture
    def scores(x):
        with norch.no_grad():
            return model(x)

    for words in (WORDS, WORDS + 3, WORDS[:1], WORDS + 3):
        assert norch.equal(scores(words), model(words))
