"""How many kernels a layer's call takes, forward, where a backend has a kernel for every composite."""

import pytest

import norch
import norch.nn.functional as F
from norch import nn
from norch.backend.contract import Backend
from norch.testing.null import NullBackend, ensure_registered

pytestmark = pytest.mark.usefixtures("on_host")

calls = []


class CountingBackend(NullBackend):
    """Takes every op and does nothing but note its name."""

    device_type = "counting"

    allocating = Backend.allocating  # which runs the kernel

    def compile(self, op, operands, attrs):
        return lambda *args: calls.append(op)

    def copy_out(self, buffer, offset, data):
        calls.append("copy_out")
        super().copy_out(buffer, offset, data)


def ops_of(call):
    """The kernels of the second call: the first may make what later ones keep."""
    call()
    calls.clear()
    call()
    return list(calls)


IMAGE, SERIES, FLAT = (2, 4, 6, 6), (2, 4, 6), (2, 4)
COUNTS = [
    (nn.Linear(4, 3), FLAT, 1),
    (nn.Conv1d(4, 3, 3), SERIES, 1),
    (nn.Conv2d(4, 3, 3, padding=1), IMAGE, 1),
    (nn.Conv2d(4, 3, 3, padding="same"), IMAGE, 1),
    (nn.Conv2d(4, 3, 3, padding=1, padding_mode="reflect"), IMAGE, 13),
    (nn.ConvTranspose2d(4, 3, 3), IMAGE, 2),
    (nn.MaxPool2d(2), IMAGE, 1),
    (nn.AvgPool2d(2), IMAGE, 2),
    (nn.AdaptiveAvgPool2d(1), IMAGE, 2),
    (nn.LayerNorm(4), FLAT, 1),
    (nn.RMSNorm(4), FLAT, 1),
    (nn.GroupNorm(2, 4), IMAGE, 1),
    (nn.InstanceNorm2d(4), IMAGE, 1),
    (nn.BatchNorm2d(4), IMAGE, 3),
    (nn.BatchNorm2d(4, track_running_stats=False), IMAGE, 1),
    (nn.Dropout(), FLAT, 1),
    (nn.Dropout2d(), IMAGE, 3),
    (nn.GELU(), FLAT, 1),
    (nn.PReLU(), FLAT, 3),
    (nn.Softmax(1), FLAT, 1),
    (nn.Softshrink(), FLAT, 3),
    (nn.Flatten(), IMAGE, 0),
    (nn.PixelShuffle(2), IMAGE, 1),
    (nn.Upsample(scale_factor=2), IMAGE, 1),
    (nn.Upsample(scale_factor=2, mode="bilinear"), IMAGE, 6),
    (nn.Upsample(scale_factor=2, mode="bicubic"), IMAGE, 6),
    (nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), FLAT, 3),
]


@pytest.mark.parametrize(
    ("layer", "shape", "most"), COUNTS, ids=lambda v: repr(v) if isinstance(v, nn.Module) else None
)
def test_layers_take_few_kernels(layer, shape, most):
    device = ensure_registered(CountingBackend)
    layer = layer.to(device)
    x = norch.empty(shape, device=device)
    found = ops_of(lambda: layer(x))
    assert len(found) <= most, found


WAITING = [
    *[(layer, shape) for layer, shape, _ in COUNTS],
    (nn.BatchNorm2d(4, momentum=None), IMAGE),
    (nn.AdaptiveMaxPool2d(4), IMAGE),
    (nn.AlphaDropout(), FLAT),
    (nn.RReLU(), FLAT),
    (nn.Upsample((7, 9), mode="bicubic", align_corners=True), IMAGE),
    (nn.LocalResponseNorm(3), IMAGE),
    (nn.Unfold(3), IMAGE),
    (nn.utils.spectral_norm(nn.Linear(4, 3)), FLAT),
    (nn.utils.weight_norm(nn.Linear(4, 3)), FLAT),
]


@pytest.mark.parametrize(("layer", "shape"), WAITING, ids=lambda v: repr(v) if isinstance(v, nn.Module) else None)
def test_a_training_step_waits_for_nothing(layer, shape):
    device = ensure_registered(CountingBackend)
    layer = layer.to(device)
    x = norch.empty(shape, device=device, requires_grad=True)

    def step():
        layer.zero_grad()
        layer(x).sum().backward()
        nn.utils.clip_grad_norm_([x, *layer.parameters()], 1.0)
        nn.utils.clip_grad_value_([x], 1.0)

    assert "copy_out" not in ops_of(step)


def test_lookups_wait_for_nothing():
    device = ensure_registered(CountingBackend)
    index, offsets = (norch.empty(n, dtype=norch.int64, device=device) for n in (6, 2))
    table = nn.Embedding(5, 3, padding_idx=1, max_norm=1.0, scale_grad_by_freq=True, device=device)
    bags = [nn.EmbeddingBag(5, 3, mode=mode, padding_idx=1, device=device) for mode in ("sum", "mean")]

    def step():
        (table(index).sum() + sum(bag(index, offsets).sum() for bag in bags)).backward()

    assert "copy_out" not in ops_of(step)


def test_embeddings_take_few_kernels():
    device = ensure_registered(CountingBackend)
    index, bag = norch.empty(5, dtype=norch.int64, device=device), nn.EmbeddingBag(4, 3, device=device)
    assert ops_of(lambda: nn.Embedding(4, 3, device=device)(index))[-1] == "embedding"
    assert len(ops_of(lambda: bag(index.reshape(1, 5)))) <= 4


def test_clipping_takes_three_kernels_a_parameter():
    device = ensure_registered(CountingBackend)
    made = [nn.Parameter(norch.empty(3, 3, device=device)) for _ in range(50)]
    for p in made:
        p.grad = norch.empty(3, 3, device=device)
    # A product, a sum with another's, and the scaling.
    assert len(ops_of(lambda: nn.utils.clip_grad_norm_(made, 1.0))) <= 3 * 50 + 10


def test_functions_do_nothing_where_there_is_nothing_to_do():
    x = norch.ones(1, 1, 4, 4)
    assert F.dropout2d(x, 0.5, training=False) is x
    assert F.alpha_dropout(x, 0.5) is x
    assert nn.Dropout().eval()(x) is x
    assert nn.Identity()(x) is x
