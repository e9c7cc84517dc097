"""Chains around reductions of rows, such as a softmax written by hand: captured, they give the bits of eager ones."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import norch


def rms_norm(x, w):
    return x * norch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w


def softmax(x, w):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def log_softmax(x, w):
    s = x - x.max(-1, keepdim=True).values
    return s - s.exp().sum(-1, keepdim=True).log()


def layer_norm(x, w):
    d = x - x.mean(-1, keepdim=True)
    return d / ((d * d).mean(-1, keepdim=True) + 1e-5).sqrt() * w


def normalized(x, w):
    return x / x.norm(dim=-1, keepdim=True)


def in_place(x, w):
    y = x * w
    y.sub_(y.amin(-1, keepdim=True))
    return y.div_(y.sum(-1, keepdim=True) + 1)


def in_bfloat16(x, w):
    y = x.to(norch.bfloat16).to(norch.float32)
    return (y * norch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-6)).to(norch.bfloat16) * w.to(norch.bfloat16)


def scaled_twice(x, w):
    largest = x.abs().amax(-1, keepdim=True)
    y = x / largest
    return y, largest * 2, (y * y).sum(-1)


CHAINS = [rms_norm, softmax, log_softmax, layer_norm, normalized, in_place, in_bfloat16, scaled_twice]
LAYOUTS = {
    "dense": lambda x: x,
    "transposed": lambda x: x.mT.contiguous().mT,
    "part of a row": lambda x: norch.cat([x, x], -1)[..., x.shape[-1] // 2 :][..., : x.shape[-1]],
    "repeated": lambda x: x[:1].expand(x.shape),
    "every second row": lambda x: x[::2],
}


def bits(results):
    results = results if isinstance(results, tuple) else (results,)
    return [(r.shape, r.dtype, r.detach().float().numpy().tobytes()) for r in results]


def check(step, x, w):
    captured = norch.capture(step)
    want = bits(step(x, w))
    for _ in range(4):
        assert bits(captured(x, w)) == want
    other = x * 2
    assert bits(captured(other, w)) == bits(step(other, w))
    return captured


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("chain", CHAINS)
def test_chains(chain, layout):
    for shape in ((6, 600), (2, 3, 1030), (1, 512), (5, 7)):
        x = LAYOUTS[layout](norch.randn(*shape))
        check(chain, x, norch.randn(shape[-1]))


@pytest.mark.parametrize("chain", [rms_norm, softmax, log_softmax, layer_norm])
def test_with_gradients(chain):
    x, w = norch.randn(4, 600, requires_grad=True), norch.randn(600, requires_grad=True)

    def step():
        x.grad = w.grad = None
        loss = (chain(x, w) * chain(x, w)).sum() + (w * 0).sum()
        loss.backward()
        return loss, x.grad, w.grad

    want, captured = bits(step()), norch.capture(step)
    for _ in range(5):
        assert bits(captured()) == want


STEPS = [
    lambda y, r, w: (y * w, r),
    lambda y, r, w: (y - r, r),
    lambda y, r, w: (y / (r * r + 1), r),
    lambda y, r, w: (y, y.sum(-1, keepdim=True)),
    lambda y, r, w: (y, r + y.amax(-1, keepdim=True)),
    lambda y, r, w: (y, (y * y).mean(-1, keepdim=True)),
    lambda y, r, w: (norch.tanh(y), norch.sqrt(norch.abs(r))),
    lambda y, r, w: (norch.where(y > r, y, r), r),
    lambda y, r, w: (y.clone().add_(r), y.amin(-1, keepdim=True)),
    lambda y, r, w: (y + w.expand(y.shape), -r),
]


@settings(max_examples=40, deadline=None)
@given(
    chosen=st.lists(st.sampled_from(STEPS), min_size=2, max_size=12),
    shape=st.sampled_from([(3, 512), (2, 2, 700), (4, 33), (1, 1025), (600,)]),
    layout=st.sampled_from(["dense", "part of a row"]),
)
def test_random_chains_of_rows(chosen, shape, layout):
    def step(x, w):
        y, r = x, x.amax(-1, keepdim=True)
        for op in chosen:
            y, r = op(y, r, w)
        return y, r

    with norch.no_grad():
        check(step, LAYOUTS[layout](norch.randn(*shape)), norch.randn(shape[-1]))
