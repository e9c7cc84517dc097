"""norch.nn.utils: clipping, and parameters as a vector."""

import math

import numpy as np
import pytest

import norch
from norch import nn
from norch.nn.utils import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
    parameters_to_vector,
    vector_to_parameters,
)

SHAPES = [(3, 4), (5,), ()]


def parameters(dtype=norch.float64):
    draw = np.random.default_rng(0)
    made = [nn.Parameter(norch.zeros(shape, dtype=dtype)) for shape in [*SHAPES, (2,)]]
    for p in made[:-1]:
        p.grad = norch.tensor(np.asarray(draw.standard_normal(tuple(p.shape))), dtype=dtype)
    return made


def gradients(made):
    return np.concatenate([p.grad.cpu().numpy().reshape(-1) for p in made if p.grad is not None])


@pytest.mark.parametrize("p", [2, 1, 3.5, math.inf, 0.5])
@pytest.mark.parametrize("limit", [0.1, 1e3])
def test_norms_are_clipped(p, limit):
    made = parameters()
    before = gradients(made)
    norm = np.abs(before).max() if p == math.inf else (np.abs(before) ** p).sum() ** (1 / p)
    found = clip_grad_norm_(made, limit, norm_type=p, foreach=True)
    assert found.shape == ()
    assert found.item() == pytest.approx(norm)
    np.testing.assert_allclose(gradients(made), before * min(1, limit / (norm + 1e-6)), rtol=1e-12)
    assert made[-1].grad is None


def test_norms_as_pytorchs():
    torch = pytest.importorskip("torch")
    for p in (2.0, 1.0, math.inf):
        made = parameters()
        others = [torch.nn.Parameter(torch.zeros(tuple(x.shape), dtype=torch.float64)) for x in made]
        for x, y in zip(made, others):
            y.grad = None if x.grad is None else torch.tensor(x.grad.cpu().numpy().copy())
        assert clip_grad_norm_(made, 0.5, p).item() == pytest.approx(
            torch.nn.utils.clip_grad_norm_(others, 0.5, p).item()
        )
        for x, y in zip(made[:-1], others):
            np.testing.assert_allclose(x.grad.cpu().numpy(), y.grad.numpy(), rtol=1e-12)


def test_half_gradients_do_not_overflow_in_the_norm():
    p = nn.Parameter(norch.zeros(4, dtype=norch.float16))
    p.grad = norch.full((4,), 300.0, dtype=norch.float16)
    assert clip_grad_norm_(p, 1.0).item() == 600.0
    assert p.grad.dtype is norch.float16
    assert p.grad.tolist() == pytest.approx([0.5] * 4, rel=1e-3)


def test_norms_that_are_not_finite():
    made = parameters()
    made[0].grad[0, 0] = math.nan
    before = made[1].grad.tolist()
    with pytest.raises(RuntimeError, match="total norm"):
        clip_grad_norm_(made, 1.0, error_if_nonfinite=True)
    assert made[1].grad.tolist() == before
    assert math.isnan(clip_grad_norm_(made, 1.0).item())
    assert math.isnan(made[1].grad[0].item())


def test_no_gradients_have_norm_0():
    assert clip_grad_norm_([nn.Parameter(norch.zeros(2))], 1.0).item() == 0
    assert get_total_norm([]).item() == 0


def test_a_generator_of_parameters_and_a_given_norm():
    net = nn.Linear(3, 2)
    net(norch.ones(1, 3)).sum().backward()
    assert clip_grad_norm_(net.parameters(), 1.0).item() == pytest.approx(math.sqrt(8))
    clip_grads_with_norm_(net.parameters(), 1.0, norch.tensor(4.0))
    assert get_total_norm([p.grad for p in net.parameters()]).item() == pytest.approx(0.25, rel=1e-5)


def test_values_are_clipped():
    made = parameters()
    before = gradients(made)
    assert clip_grad_value_(made, 0.3) is None
    np.testing.assert_allclose(gradients(made), np.clip(before, -0.3, 0.3))


def test_parameters_are_a_vector_and_back():
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    flat = parameters_to_vector(net.parameters())
    assert flat.shape == (13,)
    flat.sum().backward()
    assert net[0].weight.grad.tolist() == [[1.0, 1.0]] * 3
    vector_to_parameters(norch.arange(13).to(norch.float32), net.parameters())
    assert net[0].bias.tolist() == [6.0, 7.0, 8.0]
    assert parameters_to_vector(net.parameters()).tolist() == list(range(13))
    with pytest.raises(norch.ShapeError, match="13"):
        vector_to_parameters(norch.ones(12), net.parameters())
    with pytest.raises(norch.DTypeError, match="vec"):
        vector_to_parameters([1.0], net.parameters())


def test_packed_integers_stay_integers():
    x = norch.tensor([[1, 2, 0], [3, 0, 0], [4, 5, 6]])
    packed = nn.utils.rnn.pack_padded_sequence(x, [2, 1, 3], batch_first=True, enforce_sorted=False)
    padded, lengths = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True, padding_value=9)
    assert padded.dtype is packed.data.dtype is norch.int64
    assert padded.tolist() == [[1, 2, 9], [3, 9, 9], [4, 5, 6]]
    assert lengths.tolist() == [2, 1, 3]
    mask = nn.utils.rnn.pack_padded_sequence(x > 1, [3, 2, 1])
    assert nn.utils.rnn.pad_packed_sequence(mask)[0].dtype is norch.bool


@pytest.mark.parametrize("dims", [2, 3])
def test_memory_format_of_convolutions(dims):
    laid_out = norch.channels_last if dims == 2 else norch.channels_last_3d
    kinds = {2: (nn.Conv2d, nn.ConvTranspose2d), 3: (nn.Conv3d, nn.ConvTranspose3d)}
    layers = [kind(4, 6, 3) for kind in kinds[dims] + kinds[5 - dims]]
    model = nn.Sequential(*layers, nn.Sequential(kinds[dims][0](4, 4, 3)))
    before = [p.detach().tolist() for p in model.parameters()]
    convert = getattr(nn.utils, f"convert_conv{dims}d_weight_memory_format")
    assert convert(model, laid_out) is model
    assert [p.tolist() for p in model.parameters()] == before
    assert all(model[i].weight.is_contiguous(memory_format=laid_out) for i in (0, 1))
    assert all(model[i].weight.is_contiguous() for i in (2, 3))
    assert model[4][0].weight.is_contiguous(memory_format=laid_out)
    assert isinstance(model[0].weight, nn.Parameter)
