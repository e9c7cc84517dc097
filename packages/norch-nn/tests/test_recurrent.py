"""RNN, LSTM, GRU, their cells and packed sequences, against a loop in NumPy that knows no batches."""

import math

import numpy as np
import pytest

import norch
from norch import nn
from norch.nn.utils import rnn

T, N, INPUT, HIDDEN = 5, 3, 4, 6
LENGTHS = [2, 5, 3]
KINDS = [("RNN", {}), ("RNN", {"nonlinearity": "relu"}), ("GRU", {}), ("LSTM", {}), ("LSTM", {"proj_size": 2})]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def step(module, x, h, c, weights):
    """One step of one sequence, as the papers write it. `weights`: w_ih, w_hh, b_ih, b_hh, w_hr, or None."""
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    a = w_ih @ x + (0 if b_ih is None else b_ih)
    b = w_hh @ h + (0 if b_hh is None else b_hh)
    if module.mode == "RNN_TANH":
        return np.tanh(a + b), c
    if module.mode == "RNN_RELU":
        return np.maximum(a + b, 0), c
    if module.mode == "GRU":
        (ar, az, an), (br, bz, bn) = np.split(a, 3), np.split(b, 3)
        r, z = sigmoid(ar + br), sigmoid(az + bz)
        return (1 - z) * np.tanh(an + r * bn) + z * h, c
    i, f, g, o = np.split(a + b, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    return (h if w_hr is None else w_hr @ h), c


def loop(module, x, h, c):
    """One sequence (T, input) through all layers. h, c: (layers * directions, width). The same three again."""
    own = {k: v.cpu().numpy() for k, v in module.state_dict().items()}
    ends_h, ends_c = [], []
    for layer in range(module.num_layers):
        outputs = []
        for d in range(1 + module.bidirectional):
            suffix = f"_l{layer}" + ("_reverse" if d else "")
            weights = [own.get(n + suffix) for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")]
            at = len(ends_h)
            now, cell, found = h[at], c[at], []
            for row in x[::-1] if d else x:
                now, cell = step(module, row, now, cell, weights)
                found.append(now)
            outputs.append(np.array(found[::-1] if d else found))
            ends_h.append(now)
            ends_c.append(cell)
        x = np.concatenate(outputs, -1)
    return x, np.array(ends_h), np.array(ends_c)


def build(name, options, **more):
    norch.manual_seed(0)
    return getattr(nn, name)(INPUT, HIDDEN, 2, dtype=norch.float64, **options, **more)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def states(module, count):
    width = module.proj_size or HIDDEN
    return numbers(count, N, width, seed=1), numbers(count, N, HIDDEN, seed=2)


def call(module, x, h, c):
    out, last = module(x, (norch.tensor(h), norch.tensor(c)) if module.mode == "LSTM" else norch.tensor(h))
    return out, (last if isinstance(last, tuple) else (last,))


def close(found, expected):
    np.testing.assert_allclose(found.detach().cpu().numpy(), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"bias": False, "batch_first": True}])
@pytest.mark.parametrize(("name", "more"), KINDS)
def test_layers(name, more, options):
    module = build(name, more, **options)
    x = numbers(T, N, INPUT)
    h, c = states(module, 2 * (1 + module.bidirectional))
    out, last = call(module, norch.tensor(x.swapaxes(0, 1) if module.batch_first else x), h, c)
    for n in range(N):
        y, *ends = loop(module, x[:, n], h[:, n], c[:, n])
        close(out[n] if module.batch_first else out[:, n], y)
        for a, b in zip(last, ends):
            close(a[:, n], b)
    alone, _ = module(norch.tensor(x[:, 0]))
    close(alone, loop(module, x[:, 0], 0 * h[:, 0], 0 * c[:, 0])[0])


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("name", "more"), KINDS)
def test_packed_sequences_are_as_if_alone(name, more, bidirectional):
    module = build(name, more, bidirectional=bidirectional)
    x = numbers(T, N, INPUT)
    h, c = states(module, 2 * (1 + bidirectional))
    out, last = call(module, rnn.pack_padded_sequence(norch.tensor(x), LENGTHS, enforce_sorted=False), h, c)
    assert isinstance(out, rnn.PackedSequence)
    padded, lengths = rnn.pad_packed_sequence(out, padding_value=-7.0)
    assert lengths.tolist() == LENGTHS
    for n, length in enumerate(LENGTHS):
        y, *ends = loop(module, x[:length, n], h[:, n], c[:, n])
        close(padded[:length, n], y)
        assert bool((padded[length:, n] == -7).all())
        for a, b in zip(last, ends):
            close(a[:, n], b)


@pytest.mark.parametrize("packed", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "more"), KINDS)
def test_gradients_of_both_orders(name, more, packed):
    norch.manual_seed(1)
    module = getattr(nn, name)(2, 3, bidirectional=True, dtype=norch.float64, **more)
    parameters = list(module.parameters())
    h = norch.randn(2, 2, module.proj_size or 3, dtype=norch.float64, requires_grad=True)
    c = norch.randn(2, 2, 3, dtype=norch.float64, requires_grad=True)
    x = norch.randn(3, 2, 2, dtype=norch.float64, requires_grad=True)
    given = (h, c) if name == "LSTM" else (h,)

    def results(x, *rest):
        first = rest[: len(given)]
        x = rnn.pack_padded_sequence(x, [3, 2]) if packed else x
        out, last = module(x, first if name == "LSTM" else first[0])
        return (out.data if packed else out, *(last if name == "LSTM" else (last,)))

    assert norch.autograd.gradcheck(results, (x, *given, *parameters), fast_mode=True)
    if packed:
        assert norch.autograd.gradgradcheck(results, (x, *given, parameters[1]), fast_mode=True)


@pytest.mark.parametrize(("name", "more"), KINDS)
def test_one_product_makes_the_gradient_of_a_loss_on_the_last_state_only(name, more):
    module = build(name, more)
    x = norch.tensor(numbers(T, N, INPUT), requires_grad=True)
    _, last = module(x)
    (last[1] if name == "LSTM" else last).sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in module.parameters() if p.ndim)
    assert x.grad.shape == x.shape


def test_names_and_start():
    norch.manual_seed(0)
    module = nn.LSTM(3, 100, 2, proj_size=5, bidirectional=True)
    names = [f"{n}_l{k}{r}" for k in (0, 1) for r in ("", "_reverse")
             for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")]  # fmt: skip
    assert list(module.state_dict()) == names
    assert module._flat_weights_names == [name for name, _ in module.named_parameters()]
    assert [id(w) for w in module._flat_weights] == [id(p) for p in module.parameters()]
    assert [[tuple(p.shape) for p in ps] for ps in module.all_weights] == [
        [(400, width), (400, 5), (400,), (400,), (5, 100)] for width in (3, 3, 10, 10)
    ]
    for p in module.parameters():
        assert 0.09 < float(p.abs().max()) <= 0.1
        assert float(p.std()) == pytest.approx(0.1 / math.sqrt(3), rel=0.15)
    module.flatten_parameters()
    module._flat_weights = [norch.zeros_like(w) for w in module._flat_weights]
    assert not module(norch.ones(2, 1, 3))[0].any()
    assert list(nn.GRU(2, 3, bias=False).state_dict()) == ["weight_ih_l0", "weight_hh_l0"]


def test_repr():
    assert repr(nn.LSTM(10, 20, 2, False, True, 0.5, True, 5)) == (
        "LSTM(10, 20, proj_size=5, num_layers=2, bias=False, batch_first=True, dropout=0.5, bidirectional=True)"
    )
    assert repr(nn.RNN(1, 2, 1, "relu")) == "RNN(1, 2)"
    assert repr(nn.GRU(1, 2)) == "GRU(1, 2)"
    assert repr(nn.RNNCell(1, 2, False, "relu")) == "RNNCell(1, 2, bias=False, nonlinearity=relu)"
    assert repr(nn.LSTMCell(1, 2)) == "LSTMCell(1, 2)"


def test_dropout_is_between_layers_and_only_in_training():
    module = nn.GRU(INPUT, HIDDEN, 2, dropout=0.5)
    x = norch.randn(T, N, INPUT)
    assert not norch.equal(module(x)[0], module(x)[0])
    module.eval()
    assert norch.equal(module(x)[0], module(x)[0])
    module.train().dropout = 1.0
    below, above = nn.GRU(INPUT, HIDDEN), nn.GRU(HIDDEN, HIDDEN)
    below.load_state_dict({k: v for k, v in module.state_dict().items() if "_l0" in k})
    above.load_state_dict({k.replace("_l1", "_l0"): v for k, v in module.state_dict().items() if "_l1" in k})
    np.testing.assert_allclose(
        module(x)[0].detach().cpu().numpy(), above(0 * below(x)[0])[0].detach().cpu().numpy(), rtol=1e-6, atol=1e-7
    )
    with pytest.warns(UserWarning, match="num_layers greater than 1"):
        nn.LSTM(1, 2, dropout=0.5)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_wrong_shapes_are_named(name):
    module = getattr(nn, name)(INPUT, HIDDEN)
    state = norch.zeros(2, N, HIDDEN)
    for x, hx in (
        (norch.zeros(T, N, INPUT + 1), None),
        (norch.zeros(T), None),
        (norch.zeros(0, N, INPUT), None),
        (norch.zeros(T, N, INPUT), (state, state) if name == "LSTM" else state),
        (norch.zeros(T, INPUT), (state, state) if name == "LSTM" else state),
    ):
        with pytest.raises(norch.ShapeError, match=name):
            module(x, hx)
    with pytest.raises(norch.ShapeError, match="RNNCell"):
        nn.RNNCell(2, 3)(norch.zeros(4, 3))
    with pytest.raises(norch.ShapeError, match="GRUCell"):
        nn.GRUCell(2, 3)(norch.zeros(4, 2), norch.zeros(3, 3))


def test_wrong_options_are_named():
    for make in (
        lambda: nn.RNN(2, 3, nonlinearity="sin"),
        lambda: nn.LSTM(2, 3, proj_size=3),
        lambda: nn.RNNBase("GRU", 2, 3, proj_size=1),
        lambda: nn.RNNBase("TANH", 2, 3),
        lambda: nn.GRU(2, 0),
        lambda: nn.GRU(2, 3, 0),
        lambda: nn.GRU(2, 3, 2, dropout=1.5),
        lambda: nn.RNNCell(2, 3, nonlinearity="sin"),
    ):
        with pytest.raises(ValueError):
            make()
    with pytest.raises(TypeError, match="input_size"):
        nn.GRU("2", 3)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("cell", "layer"), [("RNNCell", "RNN"), ("LSTMCell", "LSTM"), ("GRUCell", "GRU"), ("RNNCell", "relu")]
)
def test_a_cell_is_a_layer_of_one_step(cell, layer, bias):
    more = {"nonlinearity": "relu"} if layer == "relu" else {}
    small = getattr(nn, cell)(INPUT, HIDDEN, bias=bias, dtype=norch.float64, **more)
    large = getattr(nn, "RNN" if more else layer)(INPUT, HIDDEN, bias=bias, dtype=norch.float64, **more)
    large.load_state_dict({f"{k}_l0": v for k, v in small.state_dict().items()})
    x = norch.tensor(numbers(N, INPUT))
    state = [norch.tensor(numbers(N, HIDDEN, seed=i)) for i in (1, 2)]
    lstm = cell == "LSTMCell"
    found, none = (small(x, tuple(state)), small(x)) if lstm else ((small(x, state[0]),), (small(x),))
    one = [s.unsqueeze(0) for s in state]
    out, last = large(x.unsqueeze(0), tuple(one) if lstm else one[0])
    for a, b in zip(found, last if lstm else (out,)):
        close(a, b[0].detach().cpu().numpy())
    close(none[0], large(x.unsqueeze(0))[0][0].detach().cpu().numpy())
    assert (small(x[0])[0] if lstm else small(x[0])).shape == (HIDDEN,)


def test_in_half_precision():
    module = nn.LSTM(INPUT, HIDDEN).to(norch.bfloat16)
    x = norch.randn(T, N, INPUT, dtype=norch.bfloat16)
    out, (h, c) = module(x)
    assert {t.dtype for t in (out, h, c)} == {norch.bfloat16}
    out.sum().backward()
    assert module.weight_hh_l0.grad.dtype is norch.bfloat16


def test_a_recurrent_layer_learns():
    """Whether a sequence of signs has more pluses than minuses."""
    norch.manual_seed(0)
    x = norch.randint(0, 2, (7, 64, 1)).float() * 2 - 1
    y = (x.sum(0) > 0).float()
    lstm, head = nn.LSTM(1, 8), nn.Linear(8, 1)
    parameters = [*lstm.parameters(), *head.parameters()]
    optimizer = norch.optim.Adam(parameters, lr=0.05)
    for _ in range(60):
        loss = norch.binary_cross_entropy_with_logits(head(lstm(x)[1][0][0]), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1


# --- Packed and padded sequences ------------------------------------------------------------------------------------


def test_packing_lays_steps_side_by_side():
    a, b, c = norch.tensor([1, 2, 3]), norch.tensor([4]), norch.tensor([5, 6])
    packed = rnn.pack_sequence([a, b, c], enforce_sorted=False)
    assert packed.data.tolist() == [1, 5, 4, 2, 6, 3]
    assert packed.batch_sizes.tolist() == [3, 2, 1]
    assert packed.sorted_indices.tolist() == [0, 2, 1]
    assert packed.unsorted_indices.tolist() == [0, 2, 1]
    assert [x.tolist() for x in rnn.unpack_sequence(packed)] == [[1, 2, 3], [4], [5, 6]]
    data, sizes, first, second = rnn.pack_sequence([a, c, b])
    assert data.tolist() == packed.data.tolist()
    assert sizes.device.type == "cpu"
    assert first is None
    assert second is None


def test_padding():
    parts = [norch.tensor([1, 2, 3]), norch.tensor([4])]
    assert rnn.pad_sequence(parts).tolist() == [[1, 4], [2, 0], [3, 0]]
    assert rnn.pad_sequence(parts, True, 9).tolist() == [[1, 2, 3], [4, 9, 9]]
    left = rnn.pad_sequence(parts, batch_first=True, padding_side="left")
    assert left.tolist() == [[1, 2, 3], [0, 0, 4]]
    assert left.dtype is norch.int64
    back = rnn.unpad_sequence(rnn.pad_sequence(parts), norch.tensor([3, 1]))
    assert [x.tolist() for x in back] == [[1, 2, 3], [4]]


def test_a_packed_sequence_moves_as_a_whole():
    packed = rnn.pack_sequence([norch.ones(2), norch.ones(3)], enforce_sorted=False)
    assert packed.to(norch.float64).data.dtype is norch.float64
    assert packed.double().half().data.dtype is norch.float16
    assert packed.to(packed.data.dtype) is packed
    assert packed.cpu().data.device.type == "cpu"
    assert packed.to(norch.float64).sorted_indices.tolist() == [1, 0]


def test_wrong_lengths_are_named():
    x = norch.zeros(3, 2, 1)
    with pytest.raises(ValueError, match="enforce_sorted=False"):
        rnn.pack_padded_sequence(x, [1, 3])
    with pytest.raises(ValueError, match="greater than 0"):
        rnn.pack_padded_sequence(x, [3, 0])
    for lengths in ([3], [4, 1]):
        with pytest.raises(norch.ShapeError, match="pack_padded_sequence"):
            rnn.pack_padded_sequence(x, lengths)
    with pytest.raises(ValueError, match="total_length=1"):
        rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, [3, 1]), total_length=1)
    with pytest.raises(ValueError, match="batch_sizes"):
        rnn.PackedSequence(x)
    with pytest.raises(norch.ShapeError, match="pad_sequence"):
        rnn.pad_sequence([norch.zeros(2, 1), norch.zeros(2, 2)])
    with pytest.raises(ValueError, match="padding_side"):
        rnn.pad_sequence([norch.zeros(2)], padding_side="top")


@pytest.mark.parametrize("layer", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers_that_no_memory_holds(layer: type[nn.Module]) -> None:
    with pytest.raises(ValueError, match="num_layers must be at most 65536"):
        layer(1, 1, 2**31)


@pytest.mark.parametrize("name", ["long", "int", "short", "char", "byte", "half", "float", "double"])
def test_packed_sequences_are_cast_by_the_names_of_dtypes(name):
    packed = rnn.pack_sequence([norch.tensor([1.0, 2.0]), norch.tensor([3.0])])
    assert getattr(packed, name)().data.dtype is getattr(norch.ones(1), name)().dtype
    assert getattr(packed, name)().data.tolist() == [1, 3, 2]
