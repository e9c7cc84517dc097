"""Recurrent layers as functions of their weights, `torch._VF`'s, beside the modules."""

from __future__ import annotations

import pytest

import norch
from norch import _VF, nn
from norch.nn.utils.rnn import PackedSequence, pack_padded_sequence

KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn_tanh": nn.RNN}


def made(kind, **options):
    model = KINDS[kind](3, 4, 2, bidirectional=True, **options)
    with norch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_((norch.arange(p.numel()).reshape(p.shape) * 0.7 + i).sin() * 0.5)
    h = norch.ones(4, 2, options.get("proj_size", 4)) * 0.1
    return model, (h, norch.ones(4, 2, 4) * 0.2) if kind == "lstm" else h


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("kind", "options"), [(k, {}) for k in KINDS] + [("lstm", {"proj_size": 2})])
def test_functions_compute_what_modules_do(kind, options, bias):
    model, hx = made(kind, bias=bias, **options)
    x = norch.arange(30.0).reshape(5, 2, 3).cos()
    settings = (bias, 2, 0.0, True, True)
    for batch_first in (False, True):
        model.batch_first = batch_first
        given = x.transpose(0, 1) if batch_first else x
        out, *states = getattr(_VF, kind)(given, hx, model._flat_weights, *settings, batch_first)
        expected, last = model(given, hx)
        norch.testing.assert_close(out, expected)
        norch.testing.assert_close(states, list(last) if kind == "lstm" else [last])
    packed = pack_padded_sequence(x, [5, 3])
    model.batch_first = False
    data, *states = getattr(_VF, kind)(packed.data, packed.batch_sizes, hx, model._flat_weights, *settings)
    expected, last = model(PackedSequence(packed.data, packed.batch_sizes), hx)
    norch.testing.assert_close(data, expected.data)
    norch.testing.assert_close(states, list(last) if kind == "lstm" else [last])


def test_layers_drop_out_in_training():
    model, hx = made("gru")
    x = norch.ones(5, 2, 3)
    given = (x, hx, model._flat_weights, True, 2, 1.0)
    trained, still = (_VF.gru(*given, train, True, False)[0] for train in (True, False))
    norch.testing.assert_close(still, model(x, hx)[0])
    assert not norch.allclose(trained, still)
    cell = nn.GRUCell(3, 4)
    step = _VF.gru_cell(x[0], hx[0], cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
    norch.testing.assert_close(step, cell(x[0], hx[0]))


def test_recurrent_functions_at_the_root():
    layer = nn.LSTM(2, 3)
    x, states = norch.rand(4, 1, 2), (norch.zeros(1, 1, 3), norch.zeros(1, 1, 3))
    out, *_ = norch.lstm(x, states, layer._flat_weights, True, 1, 0.0, False, False, False)
    assert out.tolist() == layer(x)[0].tolist()
    cell = nn.GRUCell(2, 3)
    weights = cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh
    assert norch.gru_cell(x[0], states[0][0], *weights).tolist() == cell(x[0]).tolist()
