"""Losses, against formulas in NumPy and, where it is installed, PyTorch."""

import math

import numpy as np
import pytest
from index_reports import reports_at_once
from loss_cases import CASES, ids

import norch
import norch.nn.functional as F
from norch import nn
from norch.testing.gradcheck import gradcheck, gradgradcheck

each = pytest.mark.parametrize("case", CASES, ids=ids)
REDUCTIONS = ("none", "mean", "sum")
BY_NAME = {case.name: case for case in CASES}


def arrays(case, dtype=np.float64):
    return [a.astype(dtype) if a.dtype.kind == "f" else a for a in case.arrays]


def tensors(library, case, dtype=np.float64):
    """The arguments as tensors of norch or torch, and those of them that want gradients."""
    found = [library.tensor(a) for a in arrays(case, dtype)]
    leaves = [found[i].requires_grad_() for i in case.differentiable]
    return found, leaves


def options(library, how, dtype=np.float64):
    return {k: library.tensor(v.astype(dtype)) if isinstance(v, np.ndarray) else v for k, v in how.items()}


def close(got, want, tolerance):
    got, want = (np.asarray(v.detach().cpu().numpy() if hasattr(v, "detach") else v) for v in (got, want))
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@each
def test_values_are_those_of_the_formula(case):
    for how in case.options:
        found = case.formula(*arrays(case), **how)
        losses, weights = found if isinstance(found, tuple) else (found, np.ones_like(found))
        with np.errstate(invalid="ignore"):
            expected = {"none": losses, "sum": losses.sum(), "mean": losses.sum() / weights.sum()}
        inputs, _ = tensors(norch, case)
        for reduction in REDUCTIONS:
            given = options(norch, how)
            close(getattr(F, case.name)(*inputs, reduction=reduction, **given), expected[reduction], 1e-10)
            close(getattr(nn, case.module)(reduction=reduction, **given)(*inputs), expected[reduction], 1e-10)


@each
def test_gradients_are_those_of_differences(case):
    if norch.get_default_device().type != "cpu":
        pytest.skip("differences are taken in memory that NumPy sees")
    for how in case.options[:: max(1, len(case.options) - 1)]:
        given = options(norch, how)
        if given.get("eps") == 0.7:
            continue  # the gradient passes where the variance is held, which differences do not show
        inputs, _ = tensors(norch, case)
        assert gradcheck(lambda *a, g=given: getattr(F, case.name)(*a, reduction="none", **g), inputs, fast_mode=True)
        # One of the inputs is enough: the second derivatives are of the same parts.
        assert gradgradcheck(
            lambda a, g=given, rest=inputs[1:]: getattr(F, case.name)(a, *[x.detach() for x in rest], **g),
            [inputs[0]],
            fast_mode=True,
        )


@each
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")  # PyTorch's, of kl_div
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_values_and_gradients_are_pytorchs(case, dtype):
    torch = pytest.importorskip("torch")
    tolerance = 1e-10 if dtype == "float64" else 2e-5
    for how in case.options:
        for reduction in REDUCTIONS:
            results = []
            for library, functions in ((norch, F), (torch, torch.nn.functional)):
                inputs, leaves = tensors(library, case, dtype)
                if case.name == "soft_margin_loss":
                    inputs[1] = inputs[1].detach()
                loss = getattr(functions, case.name)(*inputs, reduction=reduction, **options(library, how, dtype))
                factors = np.linspace(0.5, 1.5, loss.numel()).reshape(tuple(loss.shape)).astype(dtype)
                (loss * library.tensor(factors)).sum().backward()
                results.append((loss, [x.grad for x in leaves]))
            (loss, grads), (expected, wanted) = results
            assert str(loss.dtype).split(".")[1] == dtype
            close(loss, expected, tolerance)
            for g, w in zip(grads, wanted, strict=True):
                close(g, w, tolerance)


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("case", [case for case in CASES if case.second], ids=ids)
def test_second_derivatives_are_pytorchs(case):
    torch = pytest.importorskip("torch")
    for how in case.options[:: max(1, len(case.options) - 1)]:
        results = []
        for library, functions in ((norch, F), (torch, torch.nn.functional)):
            inputs, leaves = tensors(library, case)
            loss = getattr(functions, case.name)(*inputs, **options(library, how))
            (first,) = library.autograd.grad(loss, leaves[:1], create_graph=True)
            if not first.requires_grad:
                results.append(np.zeros(first.shape))
                continue
            (second,) = library.autograd.grad((first * first).sum(), leaves[:1], allow_unused=True)
            results.append(np.zeros(first.shape) if second is None else (second + 0.0).cpu().numpy())
        close(*results, 1e-9)


# --- Shapes, dtypes and options ---------------------------------------------------------------------------------------

ELEMENTWISE = sorted({case.name for case in CASES if case.elementwise})


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_shapes_that_would_only_broadcast_are_refused(name):
    case = BY_NAME[name]
    inputs = [x.detach() for x in tensors(norch, case)[0]]
    if name == "cosine_embedding_loss":
        inputs = [norch.rand(3, 4), norch.rand(3, 4), norch.ones(3)]
    narrow = [inputs[0], inputs[1][:1], *inputs[2:]]
    a, b = tuple(narrow[0].shape), tuple(narrow[1].shape)
    for call in (getattr(F, name), getattr(nn, case.module)()):
        with pytest.raises(norch.ShapeError) as caught:
            call(*narrow)
        assert str(a) in str(caught.value)
        assert str(b) in str(caught.value)
    wide = [inputs[0], norch.broadcast_to(narrow[1], a), *inputs[2:]]
    expected = getattr(F, name)(*wide).item()
    assert getattr(F, name)(*narrow, strict=False).item() == pytest.approx(expected)
    assert getattr(nn, case.module)(strict=False)(*narrow).item() == pytest.approx(expected)
    with pytest.raises(norch.ShapeError):
        getattr(F, name)(inputs[0], norch.ones(2, 3), *inputs[2:], strict=False)


@pytest.mark.parametrize("name", [c for c in BY_NAME if c not in ("nll_loss", "cross_entropy")])
def test_batches_of_nothing(name):
    inputs = [norch.zeros(0, *a.shape[1:], dtype=norch.tensor(a).dtype) for a in BY_NAME[name].arrays]
    inputs = [norch.zeros(0, 4), norch.zeros(0, 4), norch.zeros(0)] if name == "cosine_embedding_loss" else inputs
    if name == "gaussian_nll_loss":
        inputs[2] = inputs[0]
    assert math.isnan(getattr(F, name)(*inputs).item())
    assert getattr(F, name)(*inputs, reduction="sum").item() == 0
    assert getattr(F, name)(*inputs, reduction="none").shape[0] == 0


@pytest.mark.parametrize("name", BY_NAME)
def test_reductions_and_their_deprecated_names(name):
    case = BY_NAME[name]
    inputs, _ = tensors(norch, case)
    function, module = getattr(F, name), getattr(nn, case.module)
    for call in (lambda **how: function(*inputs, **how), module):
        with pytest.raises(ValueError, match="reduction must be .* 'average'"):
            call(reduction="average")
    if case.name in ("huber_loss", "gaussian_nll_loss", "triplet_margin_with_distance_loss"):
        return  # younger than the deprecation
    for old, reduction in (
        ({"size_average": True}, "mean"), ({"size_average": False}, "sum"), ({"reduce": True}, "mean"),
        ({"reduce": False}, "none"), ({"size_average": False, "reduce": False}, "none"),
    ):  # fmt: skip
        expected = function(*inputs, reduction=reduction)
        with pytest.warns(UserWarning, match=f"pass reduction='{reduction}'"):
            close(function(*inputs, **old), expected, 1e-12)
        with pytest.warns(UserWarning, match="deprecated"):
            assert module(**old).reduction == reduction
    with pytest.raises(norch.DTypeError, match="size_average must be a bool or None, got 'sum'"):
        function(*inputs, size_average="sum")


def test_arguments_have_pytorchs_names_order_and_defaults():
    torch = pytest.importorskip("torch")
    import inspect

    def listed(call):
        kept = [p for p in inspect.signature(call).parameters.values() if p.name not in ("strict", "self")]
        return [(p.name, p.kind, p.default) for p in kept]

    for case in CASES:
        assert listed(getattr(F, case.name)) == listed(getattr(torch.nn.functional, case.name)), case.name
        assert listed(getattr(nn, case.module)) == listed(getattr(torch.nn, case.module)), case.module
    assert listed(F.ctc_loss) == listed(torch.nn.functional.ctc_loss)
    for name in ("CTCLoss", "PairwiseDistance", "CosineSimilarity"):
        assert listed(getattr(nn, name)) == listed(getattr(torch.nn, name)), name


@pytest.mark.parametrize("name", ["binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div"])
def test_integer_targets_are_refused(name):
    with pytest.raises(norch.DTypeError, match=rf"{name}\(\).*float32.*int64"):
        getattr(F, name)(norch.rand(3), norch.tensor([0, 1, 1]))


@pytest.mark.parametrize("name", ["poisson_nll_loss", "hinge_embedding_loss", "soft_margin_loss", "margin_ranking_loss",
                                  "cosine_embedding_loss", "multilabel_soft_margin_loss"])  # fmt: skip
def test_targets_that_count_or_choose_may_be_integers(name):
    *inputs, target = [x.detach() for x in tensors(norch, BY_NAME[name])[0]]
    for dtype in (norch.int64, norch.int32):
        got = getattr(F, name)(*inputs, target.to(dtype))
        assert got.dtype is norch.float64
        assert got.item() == getattr(F, name)(*inputs, target.to(dtype).double()).item()
    whole = [x.long() for x in inputs]
    if name in ("poisson_nll_loss", "margin_ranking_loss", "cosine_embedding_loss"):
        assert getattr(F, name)(*whole, target).item() == getattr(F, name)(*[x.float() for x in whole], target).item()
    else:
        with pytest.raises(norch.DTypeError, match="floating"):
            getattr(F, name)(*whole, target)


@pytest.mark.parametrize(
    "name", ["poisson_nll_loss", "hinge_embedding_loss", "soft_margin_loss", "multilabel_soft_margin_loss"]
)
def test_what_is_not_a_tensor_is_named(name):
    x = norch.ones(2, 2)
    with pytest.raises(norch.DTypeError, match=rf"{name}\(\): input: expected a Tensor, got list"):
        getattr(F, name)([[1.0, 1.0]], x)
    with pytest.raises(norch.DTypeError, match=rf"{name}\(\): target: expected a Tensor, got int"):
        getattr(F, name)(x, 1)


def test_targets_by_class_are_checked():
    x = norch.rand(3, 4)
    for name in ("nll_loss", "cross_entropy", "multi_margin_loss"):
        function = getattr(F, name)
        for wrong in (4, -1) if reports_at_once() else ():
            with pytest.raises(norch.IndexError, match=rf"{name}\(\).*\[0, 4\)"):
                function(x, norch.tensor([0, 1, wrong]))
        with pytest.raises(norch.DTypeError, match=name):
            function(x, norch.tensor([True, False, True]))
        with pytest.raises(norch.ShapeError, match=r"\(2,\).*\(3, 4\)"):
            function(x, norch.tensor([1, 2]))
        with pytest.raises(norch.ShapeError, match="weight"):
            function(x, norch.tensor([1, 2, 3]), weight=norch.ones(3))
    with pytest.raises(norch.DTypeError, match="nll_loss"):
        F.nll_loss(x, norch.ones(3))
    if reports_at_once():
        with pytest.raises(norch.IndexError, match="multilabel"):
            F.multilabel_margin_loss(x, norch.full((3, 4), 4))
    with pytest.raises(norch.ShapeError, match="multilabel"):
        F.multilabel_margin_loss(x, norch.full((3, 1), 1))
    with pytest.raises(norch.DTypeError, match="1 and -1"):
        F.soft_margin_loss(x, x > 0)
    with pytest.raises(ValueError, match="ignore_index=1 is for class indices"):
        F.cross_entropy(x, x.softmax(1), ignore_index=1)


def test_margins_and_powers_are_checked():
    x = norch.rand(3, 4)
    with pytest.raises(ValueError, match="margin must be greater than 0"):
        F.triplet_margin_loss(x, x, x, margin=0)
    for kind in (nn.TripletMarginLoss, nn.TripletMarginWithDistanceLoss):
        with pytest.raises(ValueError, match="margin must be greater than 0"):
            kind(margin=-1.0)
    with pytest.raises(ValueError, match="p must be 1 or 2"):
        F.multi_margin_loss(x, norch.tensor([0, 1, 2]), p=3)
    with pytest.raises(ValueError, match="delta"):
        nn.HuberLoss(delta=0.0)(x, x)
    with pytest.raises(ValueError, match="beta"):
        nn.SmoothL1Loss(beta=-1.0)(x, x)


# --- One by one -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss"])
def test_weights_of_elements(name):
    torch = pytest.importorskip("torch")
    x, t, w = (np.random.default_rng(i).uniform(0.1, 2, (3, 4)) for i in range(3))
    for reduction in REDUCTIONS:
        got = getattr(F, name)(norch.tensor(x), norch.tensor(t), reduction=reduction, weight=norch.tensor(w))
        want = getattr(torch.nn.functional, name)(
            torch.tensor(x), torch.tensor(t), reduction=reduction, weight=torch.tensor(w)
        )
        close(got, want, 1e-12)
    with pytest.raises(norch.ShapeError, match="weight"):
        getattr(F, name)(norch.tensor(x), norch.tensor(t), weight=norch.tensor(w[0]))


def test_kl_div_batchmean():
    x, t = np.log(np.full((2, 4), 0.25)), np.array([[0.5, 0.5, 0, 0], [0.25] * 4])
    expected = 0.5 * math.log(2)
    assert F.kl_div(norch.tensor(x), norch.tensor(t), reduction="batchmean").item() == pytest.approx(expected)
    assert nn.KLDivLoss(reduction="batchmean")(norch.tensor(x), norch.tensor(t)).item() == pytest.approx(expected)


def test_soft_margin_does_not_overflow():
    x = norch.tensor([-1000.0, 1000.0], requires_grad=True)
    loss = F.soft_margin_loss(x, norch.ones(2), reduction="none")
    loss.sum().backward()
    assert loss.tolist() == [1000, 0]
    assert x.grad.tolist() == [-1, 0]


def test_gaussian_variances():
    x, t = norch.zeros(2, 3), norch.ones(2, 3)
    assert F.gaussian_nll_loss(x, t, 2.0).item() == pytest.approx((math.log(2) + 0.5) / 2)
    assert F.gaussian_nll_loss(x.long(), t.long(), 2.0).item() == pytest.approx((math.log(2) + 0.5) / 2)
    assert math.isnan(F.gaussian_nll_loss(x, t, norch.full((2, 3), -1.0)).item())
    with pytest.raises(ValueError, match="negative"):
        F.gaussian_nll_loss(x, t, -1.0)
    for shape in ((3,), (1, 1), (2, 3, 1)):
        with pytest.raises(norch.ShapeError, match="var"):
            F.gaussian_nll_loss(x, t, norch.ones(shape))
    var = norch.zeros(2, 3, requires_grad=True)
    F.gaussian_nll_loss(x, t, var, eps=0.5, reduction="sum").backward()
    np.testing.assert_allclose(var.grad.cpu().numpy(), np.full((2, 3), (1 / 0.5 - 1 / 0.25) / 2), rtol=1e-6)
    assert var.sum().item() == 0


def test_losses_of_one_row():
    x = norch.tensor([0.1, 0.2, 0.4, 0.8])
    assert F.multi_margin_loss(x, norch.tensor(3), reduction="none").shape == ()
    assert F.multi_margin_loss(x, norch.tensor([3]), reduction="none").shape == (1,)
    # The example of the documentation of MultiLabelMarginLoss: 0.25 * (0.6 + 0.7 + ... ) by hand.
    target = norch.tensor([3, 0, -1, 1])
    expected = 0.25 * ((1 - (0.1 - 0.2)) + (1 - (0.1 - 0.4)) + (1 - (0.8 - 0.2)) + (1 - (0.8 - 0.4)))
    assert nn.MultiLabelMarginLoss()(x, target).item() == pytest.approx(expected)


def test_distances():
    a, b = (np.random.default_rng(i).standard_normal((3, 4)) for i in range(2))
    x, y = norch.tensor(a), norch.tensor(b)
    close(nn.PairwiseDistance()(x, y), np.linalg.norm(a - b + 1e-6, axis=1), 1e-12)
    close(nn.PairwiseDistance(1.0, 0.5, True)(x, y), np.abs(a - b + 0.5).sum(1, keepdims=True), 1e-12)
    close(F.pairwise_distance(x, y[0], math.inf), np.abs(a - b[0] + 1e-6).max(1), 1e-12)
    cos = (a * b).sum(0) / np.linalg.norm(a, axis=0) / np.linalg.norm(b, axis=0)
    close(nn.CosineSimilarity(dim=0)(x, y), cos, 1e-12)
    same = norch.ones(2, 3, requires_grad=True)
    F.pairwise_distance(same, same, eps=0.0).sum().backward()
    assert bool(norch.isfinite(same.grad).all())


def test_a_distance_may_be_a_module_or_a_function():
    a, b, c = norch.rand(3, 2, 5).unbind(0)
    cosine = nn.TripletMarginWithDistanceLoss(distance_function=lambda x, y: 1 - F.cosine_similarity(x, y))
    expected = (1 - F.cosine_similarity(a, b) - 1 + F.cosine_similarity(a, c) + 1).relu().mean()
    assert cosine(a, b, c).item() == pytest.approx(expected.item())
    module = nn.TripletMarginWithDistanceLoss(distance_function=nn.PairwiseDistance(p=1.0), swap=True)
    assert [name for name, _ in module.named_children()] == ["distance_function"]
    assert module(a, b, c).item() == pytest.approx(F.triplet_margin_loss(a, b, c, p=1.0, swap=True).item())


def test_buffers_and_reprs():
    assert repr(nn.TripletMarginWithDistanceLoss()) == (
        "TripletMarginWithDistanceLoss(\n  (distance_function): PairwiseDistance()\n)"
    )
    for case in CASES:
        module = getattr(nn, case.module)()
        assert list(module.state_dict()) == []
        if case.module != "TripletMarginWithDistanceLoss":
            assert repr(module) == f"{case.module}()"
    assert repr(nn.CTCLoss()) == "CTCLoss()"
    assert repr(nn.NLLLoss2d()) == "NLLLoss2d()"
    criterion = nn.BCEWithLogitsLoss(norch.ones(3), pos_weight=norch.ones(3))
    assert list(criterion.state_dict()) == ["weight", "pos_weight"]
    assert criterion.double().pos_weight.dtype is norch.float64


@pytest.mark.parametrize("dtype", [norch.float16, norch.bfloat16])
def test_losses_of_16_bit_floats_keep_their_dtype(dtype):
    for name in BY_NAME:
        inputs = [x.detach().to(dtype) if x.is_floating_point() else x for x in tensors(norch, BY_NAME[name])[0]]
        want = getattr(F, name)(*[x.double() if x.is_floating_point() else x for x in inputs]).item()
        got = getattr(F, name)(*inputs)
        assert got.dtype is dtype, name
        assert got.item() == pytest.approx(want, rel=0.05, abs=0.02), name


def test_losses_of_ones_own_have_reductions_of_their_own():
    class MaxSup(nn.CrossEntropyLoss):
        def forward(self, input, target):
            loss = F.cross_entropy(input, target, reduction="none")
            return loss if self.reduction is None else loss.max()

    x, y = norch.zeros(2, 4), norch.tensor([1, 2])
    assert MaxSup(reduction=None)(x, y).shape == (2,)
    assert MaxSup(reduction="max")(x, y).shape == ()

    class Plain(nn.CrossEntropyLoss):
        pass

    for given in (None, "max"):
        with pytest.raises((ValueError, TypeError), match="reduction"):
            Plain(reduction=given)(x, y)
        with pytest.raises(ValueError, match="reduction"):
            nn.CrossEntropyLoss(reduction=given)


@pytest.mark.parametrize(("own", "other"), [("float64", "float32"), ("float32", "float16"), ("float32", "int64")])
def test_multilabel_soft_margin_loss_is_of_the_promoted_dtype(own, other):
    x = norch.tensor([[0.1, -0.5, 1.2]], dtype=getattr(norch, own), requires_grad=True)
    target = norch.tensor([[1, 0, 1]], dtype=getattr(norch, other))
    loss = F.multilabel_soft_margin_loss(x, target)
    assert loss.dtype is x.dtype
    expected = np.mean([np.log1p(np.exp(-0.1)), np.log1p(np.exp(-0.5)), np.log1p(np.exp(-1.2))])
    assert loss.item() == pytest.approx(expected, rel=1e-14 if own == "float64" else 1e-6)
    loss.backward()
    assert x.grad.dtype is x.dtype
