"""Recurrent layers beside PyTorch's, where it is installed: outputs, last states and every gradient, in float64."""

import itertools

import numpy as np
import pytest

import norch
from norch.nn.utils import rnn

torch = pytest.importorskip("torch")

from beside_torch import compare, flat, leaves, numbers, pair, value  # noqa: E402

T, N, INPUT, HIDDEN = 6, 4, 3, 5
LENGTHS = [3, 6, 1, 5]
KINDS = [("RNN", {}), ("RNN", {"nonlinearity": "relu"}), ("GRU", {}), ("LSTM", {}), ("LSTM", {"proj_size": 2})]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("layers", "bias", "batch_first"), [(1, True, False), (2, False, True), (2, True, False)])
@pytest.mark.parametrize(("name", "options"), KINDS)
def test_layers(name, options, layers, bias, batch_first, bidirectional):
    theirs, ours = pair(
        name, INPUT, HIDDEN, layers, bias=bias, batch_first=batch_first, bidirectional=bidirectional, **options
    )
    shape = (N, T, INPUT) if batch_first else (T, N, INPUT)
    inputs = leaves([numbers(*shape)])
    compare(theirs, ours, inputs, [m(x[0]) for m, x in zip((theirs, ours), inputs)])


def first_states(name, options, count, *batch):
    states = [numbers(count, *batch, options.get("proj_size", HIDDEN), seed=1)]
    return [*states, numbers(count, *batch, HIDDEN, seed=2)] if name == "LSTM" else states


def called(module, x, states):
    return module(x, tuple(states) if len(states) == 2 else states[0])


@pytest.mark.parametrize(("name", "options"), KINDS)
def test_first_states(name, options):
    theirs, ours = pair(name, INPUT, HIDDEN, 2, bidirectional=True, **options)
    inputs = leaves([numbers(T, N, INPUT), *first_states(name, options, 4, N)])
    compare(theirs, ours, inputs, [called(m, x, s) for m, (x, *s) in zip((theirs, ours), inputs)])


@pytest.mark.parametrize(("name", "options"), KINDS)
def test_without_a_batch(name, options):
    theirs, ours = pair(name, INPUT, HIDDEN, 2, batch_first=True, **options)
    inputs = leaves([numbers(T, INPUT), *first_states(name, options, 2)])
    compare(theirs, ours, inputs, [called(m, x, s) for m, (x, *s) in zip((theirs, ours), inputs)])


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(("name", "options"), KINDS)
def test_packed(name, options, ordered, bidirectional):
    theirs, ours = pair(name, INPUT, HIDDEN, 2, bidirectional=bidirectional, **options)
    lengths = sorted(LENGTHS, reverse=True) if ordered else LENGTHS
    inputs = leaves([numbers(T, N, INPUT), *first_states(name, options, 4 if bidirectional else 2, N)])
    results = []
    for module, pack, (x, *states) in zip((theirs, ours), (torch.nn.utils.rnn, rnn), inputs):
        packed = pack.pack_padded_sequence(x, lengths, enforce_sorted=ordered)
        out, last = called(module, packed, states)
        padded, found = pack.pad_packed_sequence(out, total_length=T + 1)
        assert found.tolist() == lengths
        results.append((out, last, padded))
    compare(theirs, ours, inputs, results)


@pytest.mark.parametrize(("name", "options"), KINDS)
def test_packed_without_states(name, options):
    theirs, ours = pair(name, INPUT, HIDDEN, bidirectional=True, **options)
    inputs = leaves([numbers(n, INPUT, seed=n) for n in LENGTHS])
    results = []
    for module, pack, x in zip((theirs, ours), (torch.nn.utils.rnn, rnn), inputs):
        results.append(module(pack.pack_sequence(x, enforce_sorted=False)))
    compare(theirs, ours, inputs, results)


@pytest.mark.parametrize(("name", "options"), KINDS)
@pytest.mark.parametrize("which", ["out", "last"])
def test_a_loss_on_part_of_the_results(name, options, which):
    theirs, ours = pair(name, INPUT, HIDDEN, 2, **options)
    inputs = leaves([numbers(T, N, INPUT)])
    results = []
    for module, (x,) in zip((theirs, ours), inputs):
        out, last = module(x)
        results.append(out[-1] if which == "out" else flat(last)[-1])
    compare(theirs, ours, inputs, results)


@pytest.mark.parametrize(("name", "options"), [("RNNCell", {}), ("RNNCell", {"nonlinearity": "relu"}), ("LSTMCell", {}),
                                           ("GRUCell", {})])  # fmt: skip
@pytest.mark.parametrize(("bias", "batch"), [*itertools.product([False, True], [(), (N,)])])
def test_cells(name, options, bias, batch):
    theirs, ours = pair(name, INPUT, HIDDEN, bias=bias, **options)
    count = 2 if name == "LSTMCell" else 1
    inputs = leaves([numbers(*batch, INPUT), *(numbers(*batch, HIDDEN, seed=i) for i in range(1, 1 + count))])
    compare(theirs, ours, inputs, [called(m, x, s) for m, (x, *s) in zip((theirs, ours), inputs)])
    for a, b in zip(*(flat(m(x[0])) for m, x in zip((theirs, ours), inputs))):
        np.testing.assert_allclose(value(b), value(a), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("name", "options"), KINDS)
def test_second_gradients(name, options):
    theirs, ours = pair(name, INPUT, HIDDEN, **options)
    inputs = leaves([numbers(T, N, INPUT), *first_states(name, options, 1, N)])
    found = []
    for lib, module, pack, (x, *states) in zip((torch, norch), (theirs, ours), (torch.nn.utils.rnn, rnn), inputs):
        packed = pack.pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
        out, last = called(module, packed, states)
        total = sum((y**3).sum() for y in (out.data, *flat(last)))
        wanted = [x, *states, *module.parameters()]
        first = lib.autograd.grad(total, wanted, create_graph=True)
        second = lib.autograd.grad(sum((g**2).sum() for g in first), wanted)
        found.append([*first, *second])
    for a, b in zip(*found):
        np.testing.assert_allclose(value(b), value(a), rtol=1e-9, atol=1e-11)


def test_packing_as_pytorchs():
    x, y = (leaf[0] for leaf in leaves([numbers(N, T, 2)]))
    for ordered in (True, False):
        lengths = sorted(LENGTHS, reverse=True) if ordered else LENGTHS
        a = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=ordered)
        b = rnn.pack_padded_sequence(y, lengths, batch_first=True, enforce_sorted=ordered)
        for p, q in zip(a, b):
            assert (p is None) == (q is None)
            if p is not None:
                np.testing.assert_array_equal(value(q), value(p))
        left = torch.nn.utils.rnn.pad_packed_sequence(a, batch_first=True, padding_value=-1.0, total_length=8)
        right = rnn.pad_packed_sequence(b, batch_first=True, padding_value=-1.0, total_length=8)
        for p, q in zip(left, right):
            np.testing.assert_array_equal(value(q), value(p))
        for p, q in zip(torch.nn.utils.rnn.unpack_sequence(a), rnn.unpack_sequence(b)):
            np.testing.assert_array_equal(value(q), value(p))
    parts = leaves([numbers(n, 2, seed=n) for n in LENGTHS])
    for side, first in itertools.product(("left", "right"), (False, True)):
        left = torch.nn.utils.rnn.pad_sequence(parts[0], first, 7.0, side)
        right = rnn.pad_sequence(parts[1], first, 7.0, side)
        np.testing.assert_array_equal(value(right), value(left))
        for p, q in zip(
            torch.nn.utils.rnn.unpad_sequence(left, torch.tensor(LENGTHS), first),
            rnn.unpad_sequence(right, norch.tensor(LENGTHS), first),
        ):
            np.testing.assert_array_equal(value(q), value(p))
