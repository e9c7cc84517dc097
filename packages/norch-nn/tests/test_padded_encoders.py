"""What TransformerEncoder gives at padded places, in inference and otherwise."""

import math

import pytest

import norch
from norch import nn

pytestmark = pytest.mark.usefixtures("on_host")


def padded_batch():
    norch.manual_seed(0)
    x = norch.randn(2, 4, 8)
    return x, norch.tensor([[False, False, False, True], [False, True, True, True]])


def encoder(**options):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 2, nn.LayerNorm(8)).eval()


def test_inference_leaves_out_the_padded_ends():
    """What PyTorch's nested tensors give: each sequence by itself, then zeros, then the norm."""
    x, padding = padded_batch()
    model = encoder()
    norch.nn.init.ones_(model.norm.bias)
    with norch.no_grad():
        found = model(x, src_key_padding_mask=padding)
        for row, length in enumerate((3, 1)):
            alone = model(x[row : row + 1, :length])[0]
            assert norch.allclose(found[row, :length], alone, atol=1e-5)
            assert (found[row, length:] == 1).all()
        assert norch.equal(found, model(x, src_key_padding_mask=norch.where(padding, -math.inf, 0.0)))


def test_when_padded_places_have_results():
    x, padding = padded_batch()

    def has_zeros(model, *args, **kwargs):
        model.norm = None
        return bool((model(x, *args, src_key_padding_mask=padding, **kwargs)[1, 3] == 0).all())

    assert not has_zeros(encoder())  # gradients are asked for
    with norch.no_grad():
        assert has_zeros(encoder())
        assert has_zeros(encoder(activation=nn.GELU()))
        assert not has_zeros(encoder().train())
        assert not has_zeros(encoder(), norch.zeros(4, 4))
        assert not has_zeros(encoder(norm_first=True))
        assert not has_zeros(encoder(activation=norch.tanh))
        assert not has_zeros(nn.TransformerEncoder(encoder().layers[0], 1, enable_nested_tensor=False).eval())
        padding = norch.tensor([[False, True, False, True], [False, True, True, True]])
        assert not has_zeros(encoder())  # not ends alone
        padding = padding.sort(1).values
        norch.backends.mha.set_fastpath_enabled(False)
        try:
            assert not norch.backends.mha.get_fastpath_enabled()
            assert not has_zeros(encoder())
        finally:
            norch.backends.mha.set_fastpath_enabled(True)
        assert has_zeros(encoder())
    frozen = encoder().requires_grad_(False)
    assert has_zeros(frozen)
