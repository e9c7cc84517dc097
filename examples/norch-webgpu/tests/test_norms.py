"""softmax, norms and cross_entropy with their gradients, of rows that are kept and rows that are read again, beside
NumPy's float64 on the CPU."""

import pytest

import norch

LENGTHS = [4, 100, 3001, 9000]
BOUNDS = {norch.float32: 2e-6, norch.bfloat16: 2e-2}
OPS = {
    "softmax": lambda x, w, b: x.softmax(2),
    "log_softmax": lambda x, w, b: x.log_softmax(-1),
    "softmax of columns": lambda x, w, b: x.softmax(0),
    "layer_norm": lambda x, w, b: norch.layer_norm(x, (x.shape[-1],), w, b),
    "layer_norm of two dims": lambda x, w, b: norch.layer_norm(x, tuple(x.shape[1:])),
    "rms_norm": lambda x, w, b: norch.rms_norm(x, (x.shape[-1],), w),
}


def like(found, expected, bound):
    found, expected = found.detach().cpu().double(), expected.detach()
    assert found.shape == expected.shape
    if expected.numel():
        assert (found - expected).abs().max().item() <= bound * max(expected.abs().max().item(), 1e-6)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("op", OPS)
def test_rows(op, n, dtype):
    norch.manual_seed(n)
    x, g, w, b = [(norch.randn(*shape) * 2).to(dtype) for shape in ((3, 2, n), (3, 2, n), (n,), (n,))]
    here, there = ([v.to(to).requires_grad_() for v in (x, w, b)] for to in (norch.float64, "webgpu"))
    results = []
    for inputs, grad in ((here, g.double()), (there, g.to("webgpu"))):
        y = OPS[op](*inputs)
        y.backward(grad)
        results.append([y, *[v.grad for v in inputs if v.grad is not None]])
    for expected, found in zip(*results, strict=True):
        like(found, expected, BOUNDS[dtype])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(5,), (64, 1000), (4, 50257), (2, 6, 5, 3), (2000, 10), (0, 4)])
def test_cross_entropy(shape, reduction):
    norch.manual_seed(0)
    dim = min(len(shape) - 1, 1)
    targets = norch.randint(0, shape[dim], shape[:dim] + shape[dim + 1 :])
    if targets.ndim and targets.numel():
        targets.view(-1)[0] = -100
    for dtype, bound in BOUNDS.items():
        x = (norch.randn(*shape) * 3).to(dtype)
        here, there = x.double().requires_grad_(), x.to("webgpu").requires_grad_()
        expected = norch.cross_entropy(here, targets, reduction=reduction)
        found = norch.cross_entropy(there, targets.to("webgpu"), reduction=reduction)
        if shape[0] or reduction != "mean":
            like(found, expected, bound)
        for loss in (expected, found):
            loss.backward(norch.ones_like(loss))
        like(there.grad, here.grad, bound)


def test_a_wrong_class_is_reported_late():
    x = norch.zeros(2, 3, device="webgpu")
    norch.cross_entropy(x, norch.tensor([1, 3], device="webgpu"))
    with pytest.raises(IndexError, match=r"cross_entropy\(\): index 3 .* size 3"):
        norch.webgpu.synchronize()
    assert norch.cross_entropy(x, norch.tensor([1, 2], device="webgpu")).item() == pytest.approx(1.0986, abs=1e-4)


def test_a_row_of_minus_infinity_and_one_with_a_nan():
    inf, nan = float("inf"), float("nan")
    x = norch.tensor([[0.0, -inf, 1.0], [-inf, -inf, -inf], [1.0, nan, 2.0]], device="webgpu")
    y = x.softmax(1).cpu()
    assert y[0].tolist() == pytest.approx([0.2689414, 0, 0.7310586])
    assert y[1:].isnan().all()


def test_rows_that_do_not_begin_at_a_word():
    x = norch.randn(4, 7).half()
    y = x.to("webgpu")[1:, :].softmax(1).cpu()
    like(y, x[1:].double().softmax(1), 2e-3)
