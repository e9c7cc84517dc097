"""Attention and the Transformer beside PyTorch's, where it is installed: outputs, weights and every gradient."""

import warnings

import numpy as np
import pytest

import norch
import norch.nn.functional as F
from norch import nn

torch = pytest.importorskip("torch")

from beside_torch import compare, flat, leaves, numbers, pair, shown, value  # noqa: E402

L, S, N, E, HEADS = 5, 6, 3, 8, 2


@pytest.fixture(autouse=True)
def quiet():
    """PyTorch warns of its own affairs: nested tensors, kinds of masks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def both(array):
    return torch.tensor(array), norch.tensor(array)


def blocked(*shape, seed=0):
    """A bool mask that leaves each query something to look at."""
    mask = np.random.default_rng(seed).random(shape) < 0.4
    mask[..., 0] = False
    return mask


def masks(kind):
    """attn_mask and key_padding_mask for queries (N, L) and keys (N, S)."""
    floats = lambda *shape: np.where(blocked(*shape), -np.inf, numbers(*shape, seed=5))  # noqa: E731
    return {
        "none": {},
        "bool": {"attn_mask": blocked(L, S)},
        "float": {"attn_mask": floats(L, S)},
        "of heads": {"attn_mask": blocked(N * HEADS, L, S)},
        "padding": {"key_padding_mask": blocked(N, S)},
        "float padding": {"key_padding_mask": floats(N, S)},
        "both": {"attn_mask": blocked(L, S), "key_padding_mask": blocked(N, S, seed=1)},
        "mixed": {"attn_mask": floats(N * HEADS, L, S), "key_padding_mask": blocked(N, S, seed=1)},
    }[kind]


KINDS = ["none", "bool", "float", "of heads", "padding", "float padding", "both", "mixed"]


def sized(n, length, width, batch_first, seed):
    return numbers(*((n, length) if batch_first else (length, n)), width, seed=seed)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_masks(kind, need_weights):
    theirs, ours = pair("MultiheadAttention", E, HEADS, batch_first=True)
    inputs = leaves([sized(N, L, E, True, 0), sized(N, S, E, True, 1)])
    given = [{k: both(v)[i] for k, v in masks(kind).items()} for i in range(2)]
    results = [
        [r for r in m(x, y, y, need_weights=need_weights, **g) if r is not None]
        for m, (x, y), g in zip((theirs, ours), inputs, given)
    ]
    assert len(results[1]) == 1 + need_weights
    compare(theirs, ours, inputs, results)


OPTIONS = [
    {},
    {"bias": False},
    {"kdim": 3, "vdim": 5},
    {"vdim": 5, "bias": False},
    {"add_bias_kv": True},
    {"add_zero_attn": True},
    {"add_bias_kv": True, "add_zero_attn": True},
]


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
def test_options(options, batch_first):
    theirs, ours = pair("MultiheadAttention", E, HEADS, batch_first=batch_first, **options)
    widths = options.get("kdim", E), options.get("vdim", E)
    inputs = leaves(
        [sized(N, L, E, batch_first, 0), *(sized(N, S, w, batch_first, i) for i, w in enumerate(widths, 1))]
    )
    given = [{k: both(v)[i] for k, v in masks("both").items()} for i in range(2)]
    for need_weights in (False, True):
        results = [
            [r for r in m(*x, need_weights=need_weights, average_attn_weights=False, **g) if r is not None]
            for m, x, g in zip((theirs, ours), inputs, given)
        ]
        compare(theirs, ours, inputs, results)


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("batch_first", [False, True])
def test_self_attention(batch_first, batch):
    theirs, ours = pair("MultiheadAttention", E, HEADS, batch_first=batch_first)
    inputs = leaves([sized(N, L, E, batch_first, 0) if batch else numbers(L, E)])
    results = [m(x, x, x) for m, (x,) in zip((theirs, ours), inputs)]
    compare(theirs, ours, inputs, results)
    causal = [lib.Transformer.generate_square_subsequent_mask(L) for lib in (torch.nn, nn)]
    np.testing.assert_array_equal(value(causal[1]), value(causal[0]))
    results = [
        m(x, x, x, attn_mask=mask.to(x.dtype), is_causal=True, need_weights=False)[0]
        for m, (x,), mask in zip((theirs, ours), inputs, causal)
    ]
    compare(theirs, ours, inputs, results)


def test_the_function():
    q, w = numbers(L, N, E), numbers(3 * E, E, seed=1)
    rest = numbers(E, E, seed=2), numbers(E, seed=3)
    static = numbers(N * HEADS, S, E // HEADS, seed=4)
    found = []
    for lib, function in ((torch, torch.nn.functional), (norch, F)):
        x, weight, out, bias, k = (lib.tensor(v) for v in (q, w, *rest, static))
        found.append(
            function.multi_head_attention_forward(
                x, x, x, E, HEADS, weight, None, None, None, False, 0.0, out, bias, static_k=k, static_v=k * 2
            )
        )
    for a, b in zip(*found):
        np.testing.assert_allclose(value(b), value(a), rtol=1e-11, atol=1e-12)


LAYERS = [
    {},
    {"norm_first": True},
    {"activation": "gelu", "bias": False},
    {"layer_norm_eps": 0.1, "batch_first": True},
]


def layer_pair(name, options):
    theirs, ours = pair(name, E, HEADS, 16, **options)
    for module in (theirs, ours):
        module.eval()
    return theirs, ours


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("options", LAYERS)
def test_encoder_layer(options, masked):
    theirs, ours = layer_pair("TransformerEncoderLayer", options)
    inputs = leaves([sized(N, L, E, options.get("batch_first"), 0)])
    mask, padding = both(blocked(L, L)), both(blocked(N, L, seed=1))
    results = [m(x, mask[i], padding[i]) if masked else m(x) for i, (m, (x,)) in enumerate(zip((theirs, ours), inputs))]
    compare(theirs, ours, inputs, results)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("options", LAYERS)
def test_decoder_layer(options, masked):
    theirs, ours = layer_pair("TransformerDecoderLayer", options)
    first = options.get("batch_first")
    inputs = leaves([sized(N, L, E, first, 0), sized(N, S, E, first, 1)])
    given = [blocked(L, L), blocked(L, S), blocked(N, L, seed=1), blocked(N, S, seed=1)]
    results = [
        m(*x, *(both(g)[i] for g in given)) if masked else m(*x) for i, (m, x) in enumerate(zip((theirs, ours), inputs))
    ]
    compare(theirs, ours, inputs, results)


@pytest.mark.parametrize(("norm_first", "batch_first"), [(False, False), (True, True)])
def test_transformer(norm_first, batch_first):
    theirs, ours = pair("Transformer", E, HEADS, 2, 2, 16, dropout=0.0, norm_first=norm_first, batch_first=batch_first)
    inputs = leaves([sized(N, S, E, batch_first, 0), sized(N, L, E, batch_first, 1)])
    results = []
    for lib, m, x in zip((torch.nn, nn), (theirs, ours), inputs):
        mask = lib.Transformer.generate_square_subsequent_mask(L).to(x[0].dtype)
        padding = both(blocked(N, S))[lib is nn]
        results.append(
            m(*x, tgt_mask=mask, tgt_is_causal=True, src_key_padding_mask=padding, memory_key_padding_mask=padding)
        )
    compare(theirs, ours, inputs, results)


def test_encoder_with_a_norm_and_a_module_as_activation():
    modules = []
    for lib, dtype in ((torch.nn, torch.float64), (nn, norch.float64)):
        layer = lib.TransformerEncoderLayer(E, HEADS, 16, 0.0, lib.SiLU(), batch_first=True, dtype=dtype)
        modules.append(lib.TransformerEncoder(layer, 2, lib.LayerNorm(E, dtype=dtype), enable_nested_tensor=False))
    theirs, ours = modules
    assert shown(ours) == shown(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    inputs = leaves([numbers(N, L, E)])
    compare(theirs, ours, inputs, [m(x) for m, (x,) in zip(modules, inputs)])


@pytest.mark.parametrize("kind", ["none", "bool", "float"])
@pytest.mark.parametrize("options", [{}, {"scale": 0.3}, {"enable_gqa": True}, {"is_causal": True}])
def test_scaled_dot_product_attention(kind, options):
    if options.get("is_causal") and kind != "none":
        return
    shared = 1 if options.get("enable_gqa") else HEADS
    inputs = leaves([numbers(N, HEADS, L, E), numbers(N, shared, S, E, seed=1), numbers(N, shared, S, 3, seed=2)])
    mask = {"none": None, "bool": ~blocked(L, S), "float": numbers(L, S, seed=3)}[kind]
    results = []
    for lib, function, x in zip((torch, norch), (torch.nn.functional, F), inputs):
        given = None if mask is None else lib.tensor(mask)
        results.append(function.scaled_dot_product_attention(*x, attn_mask=given, **options))
    compare(torch.nn.Identity(), nn.Identity(), inputs, results)
    assert len(flat(results)) == 2


def test_start():
    """The same distributions: the same spread of each parameter, the same bounds of those that are uniform."""
    torch.manual_seed(0)
    norch.manual_seed(0)
    for options in OPTIONS[:5]:
        theirs = torch.nn.MultiheadAttention(64, 4, **options).state_dict()
        ours = nn.MultiheadAttention(64, 4, **options).state_dict()
        for name, p in theirs.items():
            assert float(ours[name].std()) == pytest.approx(float(p.std()), rel=0.3), name
            if p.ndim == 2:
                assert float(ours[name].abs().max()) == pytest.approx(float(p.abs().max()), rel=0.05), name
