"""Weights made of other parameters, and layers made one."""

import copy

import numpy as np
import pytest

import norch
from norch import nn
from norch.nn import utils


def array(tensor):
    return tensor.detach().cpu().numpy()


@pytest.mark.parametrize("dim", [0, 1, -1, None])
def test_weight_norm(dim):
    layer = nn.Linear(4, 3, dtype=norch.float64)
    old = array(layer.weight).copy()
    x = norch.randn(5, 4, dtype=norch.float64)
    before = array(layer(x))
    assert utils.weight_norm(layer, dim=dim) is layer
    assert sorted(layer.state_dict()) == ["bias", "weight_g", "weight_v"]
    np.testing.assert_allclose(array(layer(x)), before, rtol=1e-12)
    axes = None if dim is None else 1 - dim % 2
    np.testing.assert_allclose(array(layer.weight_g), np.linalg.norm(old, axis=axes, keepdims=dim is not None))
    layer(x).sum().backward()
    assert layer.weight_v.grad is not None
    with norch.no_grad():
        layer.weight_g.mul_(2.0)
    np.testing.assert_allclose(array(layer(x) - layer.bias), 2 * (before - array(layer.bias)), rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="already"):
        utils.weight_norm(layer)
    utils.remove_weight_norm(layer)
    assert sorted(layer.state_dict()) == ["bias", "weight"]
    np.testing.assert_allclose(array(layer.weight), 2 * old, rtol=1e-12)
    with pytest.raises(ValueError, match="not normalised"):
        utils.remove_weight_norm(layer)


@pytest.mark.parametrize("layer", [nn.Linear(4, 3), nn.Conv2d(2, 3, 2), nn.ConvTranspose2d(3, 2, 2)], ids=repr)
def test_spectral_norm(layer):
    layer = copy.deepcopy(layer).double()
    old = array(layer.weight).copy()
    dim = 1 if isinstance(layer, nn.ConvTranspose2d) else 0
    utils.spectral_norm(layer, n_power_iterations=200)
    x = norch.randn(2, 4, dtype=norch.float64) if old.ndim == 2 else norch.randn(1, old.shape[1 - dim], 4, 4).double()
    layer(x).sum().backward()
    largest = np.linalg.svd(np.moveaxis(old, dim, 0).reshape(old.shape[dim], -1), compute_uv=False)[0]
    np.testing.assert_allclose(array(layer.weight), old / largest, rtol=1e-6)
    assert sorted(layer.state_dict()) == ["bias", "weight_orig", "weight_u", "weight_v"]
    assert layer.weight_orig.grad is not None
    u = array(layer.weight_u).copy()
    layer.eval()(x)
    np.testing.assert_array_equal(array(layer.weight_u), u)
    with pytest.raises(ValueError, match="already"):
        utils.spectral_norm(layer)
    utils.remove_spectral_norm(layer)
    assert sorted(layer.state_dict()) == ["bias", "weight"]
    np.testing.assert_allclose(array(layer.weight), old / largest, rtol=1e-6)
    with pytest.raises(ValueError, match="not normalised"):
        utils.remove_spectral_norm(layer)


def trained(features, affine=True):
    bn = nn.BatchNorm2d(features, affine=affine)
    with norch.no_grad():
        bn.running_mean.uniform_(-1, 1)
        bn.running_var.uniform_(0.5, 2)
        if affine:
            bn.weight.uniform_(0.5, 2)
            bn.bias.uniform_(-1, 1)
    return bn.eval()


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
def test_batch_norm_becomes_part_of_a_convolution(transpose, bias, affine):
    conv = (nn.ConvTranspose2d if transpose else nn.Conv2d)(2, 3, 3, bias=bias).eval()
    bn, x = trained(3, affine), norch.randn(2, 2, 5, 5)
    fused = utils.fuse_conv_bn_eval(conv, bn, transpose)
    np.testing.assert_allclose(array(fused(x)), array(bn(conv(x))), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="evaluation"):
        utils.fuse_conv_bn_eval(conv.train(), bn)


def test_batch_norm_becomes_part_of_a_linear_layer():
    linear, x = nn.Linear(4, 3).eval(), norch.randn(5, 4)
    bn = nn.BatchNorm1d(3)
    bn.load_state_dict(trained(3).state_dict())
    fused = utils.fuse_linear_bn_eval(linear, bn.eval())
    np.testing.assert_allclose(array(fused(x)), array(bn(linear(x))), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="differ"):
        utils.fuse_linear_bn_eval(linear, trained(2))
