"""Attention and the Transformer, against NumPy a head at a time."""

import copy
import math

import numpy as np
import pytest

import norch
import norch.nn.functional as F
from norch import nn

L, S, N, E, HEADS = 4, 5, 2, 8, 2


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def state(module):
    return {k: v.cpu().numpy() for k, v in module.state_dict().items()}


def attention(own, x, y, looks, heads=HEADS, lead=""):
    """(L, E), (S, E) and, for each head, whether a query may look at a key. The result and each head's weights."""
    width = x.shape[-1]
    w, b = own[lead + "in_proj_weight"], own.get(lead + "in_proj_bias", np.zeros(3 * width))
    q, k, v = (a @ w[i * width : (i + 1) * width].T + b[i * width : (i + 1) * width] for i, a in enumerate((x, y, y)))
    size, out, all_weights = width // heads, [], []
    for h in range(heads):
        part = slice(h * size, (h + 1) * size)
        weights = softmax(np.where(looks[h], q[:, part] @ k[:, part].T / math.sqrt(size), -np.inf))
        out.append(weights @ v[:, part])
        all_weights.append(weights)
    out = np.concatenate(out, -1) @ own[lead + "out_proj.weight"].T
    return out + own.get(lead + "out_proj.bias", 0), np.array(all_weights)


def norm(own, name, x, eps=1e-5):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
    return x * own[name + ".weight"] + own.get(name + ".bias", 0)


def feed_forward(own, x, activate):
    hidden = activate(x @ own["linear1.weight"].T + own.get("linear1.bias", 0))
    return hidden @ own["linear2.weight"].T + own.get("linear2.bias", 0)


def relu(x):
    return np.maximum(x, 0)


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def close(found, expected):
    np.testing.assert_allclose(found.detach().cpu().numpy(), expected, rtol=1e-10, atol=1e-12)


def stir(module):
    """Gives biases and norms values that are not 0 or 1."""
    with norch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(norch.tensor(numbers(*p.shape, seed=i) / math.sqrt(p.shape[-1])))
    return module.eval()


def blocked(*shape, seed=0):
    mask = np.random.default_rng(seed).random(shape) < 0.4
    mask[..., 0] = False
    return mask


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_attention(batch_first, bias):
    module = stir(nn.MultiheadAttention(E, HEADS, bias=bias, batch_first=batch_first, dtype=norch.float64))
    own, x, y = state(module), numbers(N, L, E), numbers(N, S, E, seed=1)
    mask, padding = blocked(N * HEADS, L, S), blocked(N, S, seed=1)
    a, b = (norch.tensor(v if batch_first else v.swapaxes(0, 1)) for v in (x, y))
    given = {"attn_mask": norch.tensor(mask), "key_padding_mask": norch.tensor(padding)}
    out, weights = module(a, b, b, **given, average_attn_weights=False)
    fast, none = module(a, b, b, **given, need_weights=False)
    mean = module(a, b, b, **given)[1]
    assert none is None
    for n in range(N):
        expected, each = attention(own, x[n], y[n], ~(mask[n * HEADS : (n + 1) * HEADS] | padding[n]))
        close(out[n] if batch_first else out[:, n], expected)
        close(fast[n] if batch_first else fast[:, n], expected)
        close(weights[n], each)
        close(mean[n], each.mean(0))


def test_masks_that_are_added_are_those_that_block():
    module = stir(nn.MultiheadAttention(E, HEADS, batch_first=True, dtype=norch.float64))
    x = norch.tensor(numbers(N, L, E))
    mask, padding = norch.tensor(blocked(L, L)), norch.tensor(blocked(N, L, seed=1))
    added = [norch.zeros(m.shape, dtype=x.dtype).masked_fill(m, -math.inf) for m in (mask, padding)]
    expected = module(x, x, x, attn_mask=mask, key_padding_mask=padding)
    for a, p in ((added[0], added[1]), (mask, added[1]), (added[0], padding)):
        for found, right in zip(module(x, x, x, attn_mask=a, key_padding_mask=p), expected):
            close(found, right.detach().cpu().numpy())
    causal = nn.Transformer.generate_square_subsequent_mask(L, dtype=x.dtype)
    assert causal.tolist()[1] == [0.0, 0.0, -math.inf, -math.inf]
    expected = module(x, x, x, attn_mask=causal)[0].detach().cpu().numpy()
    close(module(x, x, x, attn_mask=causal, is_causal=True, need_weights=False)[0], expected)
    close(module(x, x, x, attn_mask=causal, is_causal=True, key_padding_mask=padding & False)[0], expected)


def test_one_key_of_a_bias_and_one_of_zeros():
    module = stir(nn.MultiheadAttention(E, 1, bias=False, add_bias_kv=True, add_zero_attn=True, dtype=norch.float64))
    own, x = state(module), numbers(L, E)
    q, k, v = (x @ w.T for w in np.split(own["in_proj_weight"], 3))
    k = np.concatenate([k, own["bias_k"][0], np.zeros((1, E))])
    v = np.concatenate([v, own["bias_v"][0], np.zeros((1, E))])
    y = norch.tensor(x)
    out, weights = module(y, y, y)
    expected = softmax(q @ k.T / math.sqrt(E))
    close(weights, expected)
    close(out, expected @ v @ own["out_proj.weight"].T)
    close(module(y, y, y, need_weights=False)[0], expected @ v @ own["out_proj.weight"].T)


def test_other_widths_of_keys_and_values():
    module = stir(nn.MultiheadAttention(E, HEADS, kdim=3, vdim=5, dtype=norch.float64))
    assert list(module.state_dict()) == [
        "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias",
    ]  # fmt: skip
    same = nn.MultiheadAttention(E, HEADS, dtype=norch.float64)
    key, value = norch.tensor(numbers(S, N, 3)), norch.tensor(numbers(S, N, 5))
    wide = [norch.zeros(E, n, dtype=norch.float64) for n in (3, 5)]
    with norch.no_grad():
        for w, n in zip(wide, (3, 5)):
            w[:n] = norch.eye(n, dtype=norch.float64)
        same.in_proj_weight.copy_(
            norch.cat([module.q_proj_weight, module.k_proj_weight @ wide[0].mT, module.v_proj_weight @ wide[1].mT])
        )
        same.in_proj_bias.copy_(module.in_proj_bias)
        same.out_proj.load_state_dict(module.out_proj.state_dict())
    query = norch.tensor(numbers(L, N, E))
    expected = same(query, key @ wide[0].mT, value @ wide[1].mT)[0]
    close(module(query, key, value)[0], expected.detach().cpu().numpy())


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("shared", ["all", "keys", "none"])
def test_gradients(shared, need_weights):
    module = stir(nn.MultiheadAttention(4, 2, dtype=norch.float64))
    q, k, v = (norch.tensor(numbers(3, 2, 4, seed=i), requires_grad=True) for i in range(3))
    padding = norch.tensor([[False, True, False], [False, False, False]])

    def call(q, k, v, *_):
        key = q if shared == "all" else k
        value = key if shared != "none" else v
        return module(q, key, value, key_padding_mask=padding, need_weights=need_weights)[0]

    used = {"all": (q,), "keys": (q, k), "none": (q, k, v)}[shared]
    rest = (q, k, v)[len(used) :]
    function = lambda *x: call(*x[: len(used)], *rest)  # noqa: E731
    assert norch.autograd.gradcheck(function, (*used, *module.parameters()), fast_mode=True)
    assert norch.autograd.gradgradcheck(function, used, fast_mode=True)


def test_dropout_of_attention_is_in_training_only():
    module = nn.MultiheadAttention(E, HEADS, dropout=0.5)
    x = norch.randn(L, N, E)
    for need_weights in (False, True):
        module.train()
        assert not norch.equal(*(module(x, x, x, need_weights=need_weights)[0] for _ in range(2)))
        module.eval()
        assert norch.equal(*(module(x, x, x, need_weights=need_weights)[0] for _ in range(2)))
    module.train().dropout = 1.0
    assert norch.equal(module(x, x, x)[0], module.out_proj(norch.zeros(L, N, E)))


def test_start_of_attention():
    norch.manual_seed(0)
    module = nn.MultiheadAttention(48, 4, add_bias_kv=True)
    bound = math.sqrt(6 / (4 * 48))
    assert 0.98 * bound < float(module.in_proj_weight.abs().max()) <= bound
    assert float(module.in_proj_bias.abs().max()) == float(module.out_proj.bias.abs().max()) == 0
    assert 0.98 / math.sqrt(48) < float(module.out_proj.weight.abs().max()) <= 1 / math.sqrt(48)
    assert float(module.bias_k.std()) == pytest.approx(math.sqrt(2 / (48 + 48)), rel=0.4)


def test_wrong_arguments_of_attention_are_named():
    with pytest.raises(ValueError, match="divisible"):
        nn.MultiheadAttention(8, 3)
    with pytest.raises(ValueError, match="greater than 0"):
        nn.MultiheadAttention(8, 0)
    module = nn.MultiheadAttention(E, HEADS)
    x = norch.zeros(L, N, E)
    with pytest.raises(ValueError, match="is_causal"):
        module(x, x, x, is_causal=True)
    with pytest.raises(norch.DTypeError, match="attn_mask"):
        module(x, x, x, attn_mask=norch.zeros(L, L, dtype=norch.int64))
    for mask in ((L, L + 1), (N, L, L)):
        with pytest.raises(norch.ShapeError, match="attn_mask"):
            module(x, x, x, attn_mask=norch.zeros(*mask))
    with pytest.raises(norch.ShapeError, match="key_padding_mask"):
        module(x, x, x, key_padding_mask=norch.zeros(L, N))
    for arguments in ((x[..., :2], x, x), (x[0], x, x), (x, x[:2], x), (x.flatten(), x, x)):
        with pytest.raises(norch.ShapeError, match="multi_head_attention_forward"):
            module(*arguments)


# --- Layers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(("activation", "activate"), [("relu", relu), ("gelu", gelu), (norch.tanh, np.tanh)])
def test_encoder_layer(norm_first, activation, activate):
    module = stir(
        nn.TransformerEncoderLayer(
            E, HEADS, 16, activation=activation, norm_first=norm_first, batch_first=True, layer_norm_eps=0.1,
            dtype=norch.float64,
        )
    )  # fmt: skip
    own, x = state(module), numbers(N, L, E)
    mask, padding = blocked(L, L), blocked(N, L, seed=1)
    out = module(norch.tensor(x), norch.tensor(mask), norch.tensor(padding))
    for n in range(N):
        looks = [~(mask | padding[n])] * HEADS
        y = norm(own, "norm1", x[n], 0.1) if norm_first else x[n]
        y = x[n] + attention(own, y, y, looks, lead="self_attn.")[0]
        if norm_first:
            y = y + feed_forward(own, norm(own, "norm2", y, 0.1), activate)
        else:
            y = norm(own, "norm1", y, 0.1)
            y = norm(own, "norm2", y + feed_forward(own, y, activate), 0.1)
        close(out[n], y)


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_layer(norm_first):
    module = stir(nn.TransformerDecoderLayer(E, HEADS, 16, norm_first=norm_first, dtype=norch.float64))
    own, x, memory = state(module), numbers(L, N, E), numbers(S, N, E, seed=1)
    masks = blocked(L, L), blocked(L, S, seed=1)
    paddings = blocked(N, L, seed=2), blocked(N, S, seed=3)
    out = module(norch.tensor(x), norch.tensor(memory), *(norch.tensor(m) for m in (*masks, *paddings)))
    for n in range(N):
        looks = [[~(m | p[n])] * HEADS for m, p in zip(masks, paddings)]
        y = x[:, n]
        for i, (name, other) in enumerate((("self_attn.", None), ("multihead_attn.", memory[:, n]))):
            z = norm(own, f"norm{i + 1}", y) if norm_first else y
            y = y + attention(own, z, z if other is None else other, looks[i], lead=name)[0]
            y = y if norm_first else norm(own, f"norm{i + 1}", y)
        z = norm(own, "norm3", y) if norm_first else y
        y = y + feed_forward(own, z, relu)
        close(out[:, n], y if norm_first else norm(own, "norm3", y))


def test_transformer_is_its_layers_one_after_another():
    model = stir(nn.Transformer(E, HEADS, 2, 2, 16, batch_first=True, dtype=norch.float64))
    src, tgt = norch.tensor(numbers(N, S, E)), norch.tensor(numbers(N, L, E, seed=1))
    causal = model.generate_square_subsequent_mask(L, dtype=norch.float64)
    memory = model.encoder.norm(model.encoder.layers[1](model.encoder.layers[0](src)))
    out = tgt
    for layer in model.decoder.layers:
        out = layer(out, memory, tgt_mask=causal)
    expected = model.decoder.norm(out).detach().cpu().numpy()
    close(model(src, tgt, tgt_mask=causal), expected)
    close(model(src, tgt, tgt_mask=causal, tgt_is_causal=True), expected)
    close(model(src[0], tgt[0], tgt_mask=causal), expected[0])


def test_layers_are_copies():
    layer = nn.TransformerEncoderLayer(E, HEADS, 16)
    encoder = nn.TransformerEncoder(layer, 2)
    first, second = encoder.layers
    assert first.linear1.weight is not second.linear1.weight
    assert norch.equal(first.linear1.weight, second.linear1.weight)
    assert norch.equal(first.linear1.weight, layer.linear1.weight)
    assert len(list(copy.deepcopy(encoder).parameters())) == 2 * 12


def test_start_of_the_transformer():
    norch.manual_seed(0)
    model = nn.Transformer(32, 4, 1, 1, 64)
    for p in model.parameters():
        if p.ndim > 1:
            bound = math.sqrt(6 / sum(p.shape))
            assert 0.97 * bound < float(p.abs().max()) <= bound


ENCODER = """\
TransformerEncoderLayer(
  (self_attn): MultiheadAttention(
    (out_proj): NonDynamicallyQuantizableLinear(in_features=8, out_features=8, bias=True)
  )
  (linear1): Linear(in_features=8, out_features=16, bias=True)
  (dropout): Dropout(p=0.1, inplace=False)
  (linear2): Linear(in_features=16, out_features=8, bias=True)
  (norm1): LayerNorm((8,), eps=1e-05, elementwise_affine=True, bias=True)
  (norm2): LayerNorm((8,), eps=1e-05, elementwise_affine=True, bias=True)
  (dropout1): Dropout(p=0.1, inplace=False)
  (dropout2): Dropout(p=0.1, inplace=False)
)"""


def test_repr_and_names():
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    assert repr(layer) == ENCODER
    assert list(layer.state_dict()) == [
        "self_attn.in_proj_weight", "self_attn.in_proj_bias", "self_attn.out_proj.weight", "self_attn.out_proj.bias",
        "linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias", "norm1.weight", "norm1.bias",
        "norm2.weight", "norm2.bias",
    ]  # fmt: skip
    names = list(nn.TransformerDecoderLayer(8, 2, 16, bias=False).state_dict())
    assert names == [
        "self_attn.in_proj_weight", "self_attn.out_proj.weight", "multihead_attn.in_proj_weight",
        "multihead_attn.out_proj.weight", "linear1.weight", "linear2.weight", "norm1.weight", "norm2.weight",
        "norm3.weight",
    ]  # fmt: skip


def test_wrong_arguments_of_the_transformer_are_named():
    with pytest.raises(ValueError, match="activation"):
        nn.TransformerEncoderLayer(8, 2, activation="selu")
    model = nn.Transformer(8, 2, 1, 1, 16)
    with pytest.raises(norch.ShapeError, match="batches"):
        model(norch.zeros(3, 2, 8), norch.zeros(3, 3, 8))
    with pytest.raises(norch.ShapeError, match="d_model"):
        model(norch.zeros(3, 2, 7), norch.zeros(3, 2, 7))


def test_dropout_of_layers_is_in_training_only():
    model = nn.Transformer(E, HEADS, 1, 1, 16, dropout=0.5)
    x = norch.randn(L, N, E)
    assert not norch.equal(model(x, x), model(x, x))
    model.eval()
    assert norch.equal(model(x, x), model(x, x))


def test_scaled_dot_product_attention():
    q, k, v = numbers(N, HEADS, L, E), numbers(N, 1, S, E, seed=1), numbers(N, 1, S, 3, seed=2)
    looks = ~blocked(L, S)
    x = [norch.tensor(a) for a in (q, k, v)]
    scores = q @ k.swapaxes(-1, -2) * 0.3
    close(F.scaled_dot_product_attention(*x, scale=0.3, enable_gqa=True), softmax(scores) @ v)
    expected = softmax(np.where(looks, scores, -np.inf)) @ v
    close(F.scaled_dot_product_attention(*x, norch.tensor(looks), scale=0.3, enable_gqa=True), expected)
    added = norch.tensor(np.where(looks, 0.0, -np.inf))
    close(F.scaled_dot_product_attention(*x, added, scale=0.3, enable_gqa=True), expected)
    below = np.tril(np.ones((L, S), bool))
    expected = softmax(np.where(below, q @ k.swapaxes(-1, -2) / math.sqrt(E), -np.inf)) @ v
    close(F.scaled_dot_product_attention(*x, is_causal=True), expected)
    assert F.scaled_dot_product_attention(*x, dropout_p=1.0).abs().sum().item() == 0


@pytest.mark.parametrize("stack", [nn.TransformerEncoder, nn.TransformerDecoder])
def test_stacks_of_what_cannot_be_stacked(stack: type[nn.Module]) -> None:
    with pytest.raises(norch.DTypeError, match=f"{stack.__name__}: tuple is not a Module"):
        stack((), 2)
    with pytest.raises(ValueError, match="num_layers must be at most 65536"):
        stack(nn.ReLU(), 2**31)


@pytest.mark.parametrize("norm_first", [False, True])
def test_subclasses_replace_the_blocks_of_a_layer(norm_first):
    """By PyTorch's names, with what PyTorch gives them."""

    class Encoder(nn.TransformerEncoderLayer):
        def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
            return super()._sa_block(x, attn_mask, key_padding_mask) * 0

        def _ff_block(self, x):
            return x * 2

    class Decoder(nn.TransformerDecoderLayer):
        def _mha_block(self, x, mem, attn_mask, key_padding_mask, is_causal=False):
            return mem * 3

        def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
            return x * 0

        def _ff_block(self, x):
            return super()._ff_block(x) * 0

    options = {"dim_feedforward": 8, "dropout": 0.0, "batch_first": True, "norm_first": norm_first}
    encoder, decoder = Encoder(4, 2, **options), Decoder(4, 2, **options)
    x, memory = norch.randn(2, 3, 4), norch.randn(2, 3, 4)
    norms = [encoder.norm1, encoder.norm2]
    wanted = x + 2 * norms[1](x) if norm_first else norms[1](3 * norms[0](x))
    assert norch.allclose(encoder(x), wanted)
    norms = [decoder.norm1, decoder.norm2, decoder.norm3]
    wanted = x + 3 * memory if norm_first else norms[2](norms[1](norms[0](x) + 3 * memory))
    assert norch.allclose(decoder(x, memory), wanted)


def test_masks_are_merged_as_in_pytorch():
    attention, query = nn.MultiheadAttention(4, 2), norch.zeros(3, 5, 4)
    mask, padding = norch.arange(25.0).reshape(5, 5), norch.arange(15.0).reshape(3, 5)
    assert attention.merge_masks(None, None, query) == (None, None)
    merged, kind = attention.merge_masks(None, padding, query)
    assert merged is padding
    assert kind == 1
    expected = mask.numpy() + padding.numpy()[:, None, None] + np.zeros((3, 2, 5, 5))
    for given in (mask, mask.expand(6, 5, 5)):
        merged, kind = attention.merge_masks(given, padding, query)
        assert kind == 2
        np.testing.assert_array_equal(merged.numpy(), expected)
