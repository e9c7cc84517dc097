"""Parameters and buffers of complex numbers: pairs in `forward`, real tensors for everything else."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest

import norch
from norch import nn


class SpectralConv(nn.Module):
    """A Fourier layer as neural operators have it, written with complex weights."""

    def __init__(self, channels, modes, dtype=norch.cdouble):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(norch.randn(channels, channels, modes, dtype=dtype))

    def forward(self, x):
        spectrum = norch.fft.rfft(x)
        out = norch.zeros(*spectrum.shape, dtype=spectrum.dtype, device=x.device)
        out[..., : self.modes] = norch.einsum("bix,iox->box", spectrum[..., : self.modes], self.weight)
        return norch.fft.irfft(out, n=x.shape[-1])


class Turns(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("freqs", norch.polar(norch.ones(3), norch.arange(3.0)))
        self.register_buffer("passing", norch.ones(2, dtype=norch.cfloat), persistent=False)

    def forward(self, x):
        return norch.view_as_real(norch.view_as_complex(x) * self.freqs)


@pytest.fixture
def layer():
    norch.manual_seed(0)
    return SpectralConv(3, 4)


def test_a_fourier_layer(layer):
    x = norch.randn(2, 3, 16, dtype=norch.float64)
    spectrum = np.fft.rfft(x.cpu().numpy())
    expected = np.zeros_like(spectrum)
    expected[..., :4] = np.einsum("bix,iox->box", spectrum[..., :4], layer.weight.cpu().detach().numpy())
    np.testing.assert_allclose(layer(x).detach().cpu().numpy(), np.fft.irfft(expected, n=16), 1e-10, 1e-12)
    assert layer.weight.shape == (3, 3, 4)
    assert layer.weight.dtype == norch.complex128
    assert [(name, tuple(p.shape)) for name, p in layer.named_parameters()] == [("weight", (3, 3, 4, 2))]
    assert isinstance(next(layer.parameters()), nn.Parameter)
    assert nn.Sequential(layer).get_parameter("0.weight").is_complex()


def test_it_learns_as_its_parts_do(layer):
    """Plain descent on z by d/dx + i d/dy, worked by hand: the loss is the mean of |w - goal|**2."""
    goal = norch.randn(3, 3, 4, dtype=norch.cdouble)
    optimizer = norch.optim.SGD(layer.parameters(), lr=0.5)
    expected = layer.weight.detach().cpu().numpy().copy()
    for _ in range(3):
        optimizer.zero_grad()
        ((layer.weight - goal).abs() ** 2).sum().backward()
        np.testing.assert_allclose(layer.weight.grad.cpu().numpy(), 2 * (expected - goal.cpu().numpy()), 1e-10, 1e-12)
        expected -= 0.5 * layer.weight.grad.cpu().numpy()
        optimizer.step()
        np.testing.assert_allclose(layer.weight.detach().cpu().numpy(), expected, 1e-10, 1e-12)


def test_copies_and_files_keep_the_pair(layer):
    x = norch.randn(2, 3, 16, dtype=norch.float64)
    file = io.BytesIO()
    norch.save(layer.state_dict(), file)
    file.seek(0)
    loaded = SpectralConv(3, 4)
    loaded.load_state_dict(norch.load(file))
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), loaded):
        assert twin.weight.is_complex()
        np.testing.assert_array_equal(twin(x).detach().cpu().numpy(), layer(x).detach().cpu().numpy())
    loaded.load_state_dict({"weight": norch.zeros(3, 3, 4, dtype=norch.cdouble)})  # as a file of PyTorch's holds it
    assert not loaded.weight.any()
    assert layer.weight.any()


def test_a_pickle_is_read_where_the_class_has_registered_none_yet(layer):
    kept = pickle.dumps(layer)
    del SpectralConv.weight
    assert pickle.loads(kept).weight.is_complex()


def test_buffers():
    turns = Turns()
    x = norch.randn(2, 3, 2)
    expected = (x[..., 0].cpu().numpy() + 1j * x[..., 1].cpu().numpy()) * np.exp(1j * np.arange(3))
    np.testing.assert_allclose(norch.view_as_complex(turns(x)).cpu().numpy(), expected, 1e-5)
    assert list(turns.state_dict()) == ["freqs"]
    assert [name for name, _ in turns.named_buffers()] == ["freqs", "passing"]
    turns.freqs = turns.freqs * 2
    assert turns.freqs.abs().sum().item() == pytest.approx(6)
    turns.load_state_dict(Turns().state_dict())
    assert turns.freqs.abs().sum().item() == pytest.approx(3)
    assert turns.to(norch.float64).freqs.dtype == norch.complex128
    turns.freqs = norch.ones(3)  # a real one takes its place
    assert isinstance(turns.freqs, norch.Tensor)
    assert isinstance(Turns().freqs.real, norch.Tensor)
    del turns.freqs
    assert not hasattr(turns, "freqs")
    assert not list(turns.state_dict())


def test_lists_and_dicts():
    made = nn.Parameter(norch.ones(2, dtype=norch.cfloat))
    held = nn.ParameterList([made, nn.Parameter(norch.ones(1))])
    assert held[0].is_complex()
    assert [p.is_complex() for p in held] == [True, False]
    assert len(list(held.parameters())) == 2
    named = nn.ParameterDict({"z": made})
    assert named["z"].is_complex()
    assert not nn.Parameter(norch.ones(2, dtype=norch.cfloat), requires_grad=False).requires_grad


def test_initialisation():
    """As PyTorch's: of a normal complex number each part has half of the variance."""
    norch.manual_seed(1)
    weight = nn.Parameter(norch.empty(200, 300, dtype=norch.cfloat))
    for fill, std in (
        (lambda w: nn.init.normal_(w, std=3.0), 3.0),
        (nn.init.xavier_normal_, (2 / 500) ** 0.5),
        (lambda w: nn.init.kaiming_normal_(w, nonlinearity="linear"), (1 / 300) ** 0.5),
    ):
        assert fill(weight) is weight
        assert weight.real.var().item() == pytest.approx(std**2 / 2, rel=0.02)
        assert weight.imag.var().item() == pytest.approx(std**2 / 2, rel=0.02)
    assert (nn.init.ones_(weight) == 1).all()
    assert not nn.init.zeros_(weight).any()
    assert weight.requires_grad


def test_what_is_no_parameter_is_refused(layer):
    with pytest.raises(norch.DTypeError, match="nn.Parameter or None"):
        layer.register_parameter("other", norch.ones(2, dtype=norch.cfloat))
    with pytest.raises(norch.DTypeError, match="as parameter 'weight'"):
        layer.weight = norch.ones(2, dtype=norch.cfloat)
    layer.plain = norch.ones(2, dtype=norch.cfloat)  # an attribute as any other
    assert layer.plain.is_complex()
    assert len(list(layer.parameters())) == 1


def test_a_name_that_was_complex_in_another_instance_is_free():
    class Holder(nn.Module):
        pass

    first, second = Holder(), Holder()
    first.register_parameter("w", nn.Parameter(norch.tensor([1j])))
    second.register_parameter("w", nn.Parameter(norch.ones(1)))
    assert (first.w.is_complex(), second.w.is_complex()) == (True, False)


def test_a_module_is_made_complex():
    linear = nn.Linear(2, 3)
    weight, bias = (p.detach().cpu().numpy().copy() for p in (linear.weight, linear.bias))
    tied = nn.Sequential(linear, nn.BatchNorm1d(3), linear)
    parameter = next(tied.parameters())
    (linear.weight * 2).sum().backward()
    assert tied.to(norch.complex128) is tied
    assert linear.weight.dtype == tied[1].running_mean.dtype == norch.complex128
    assert tied[1].num_batches_tracked.dtype is norch.int64
    assert next(tied.parameters()) is parameter
    np.testing.assert_array_equal(parameter.grad.cpu().numpy(), np.stack([np.full((3, 2), 2.0), np.zeros((3, 2))], -1))
    x = np.array([[1 + 2j, 3 - 1j]])
    found = linear(norch.tensor(x)).detach().cpu().numpy()
    np.testing.assert_allclose(found, x @ weight.T + bias, rtol=1e-6)
    assert tied.to(norch.complex64)[0].weight.dtype == norch.complex64


def test_layers_of_complex_numbers():
    """PyTorch draws both parts of a layer's weights within the bounds of real ones."""
    norch.manual_seed(0)
    layer = nn.Linear(4, 3, dtype=norch.complex64)
    for part in (layer.weight.real, layer.weight.imag, layer.bias.real, layer.bias.imag):
        assert 0 < part.abs().max() <= 0.5
    x = norch.randn(5, 4, dtype=norch.complex64)
    found = layer(x)
    weight, bias, given = [z.detach().cpu().numpy() for z in (layer.weight, layer.bias, x)]
    np.testing.assert_allclose(found.detach().cpu().numpy(), given @ weight.T + bias, rtol=1e-5, atol=1e-6)
    assert nn.Conv1d(2, 3, 3, dtype=norch.complex64)(norch.randn(1, 2, 8, dtype=norch.complex64)).shape == (1, 3, 6)
