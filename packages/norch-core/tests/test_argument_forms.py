"""Arguments by the names, and in the forms, that PyTorch scripts use."""

from __future__ import annotations

import inspect

import pytest

import norch


def forms(lib):
    x = lib.arange(6.0).reshape(2, 3)
    lower = lib.full((2, 3), 2.5)
    return [
        x.repeat(repeats=(2, 1)),
        x.tile(dims=(2,)),
        lib.tile(x, dims=(2, 2)),
        lib.max(x, other=lower),
        lib.min(x, other=lower),
        x.max(other=lower),
        x.norm(dtype=lib.float64),
        lib.norm(x, p=1, dim=0, dtype=lib.float64),
        x.to("cpu", non_blocking=True, copy=True),
    ]


def test_forms_like_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for found, expected in zip(forms(norch), forms(torch), strict=True):
        assert found.tolist() == expected.tolist()
        assert str(found.dtype).removeprefix("norch.") == str(expected.dtype).removeprefix("torch.")


def test_bounds_whose_names_are_words_of_python() -> None:
    x = norch.zeros(100)
    drawn = x.uniform_(**{"from": 2.0, "to": 3.0})
    assert drawn is x
    assert 2 <= x.min().item() < x.max().item() < 3
    assert set(x.random_(**{"from": 4, "to": 6}).tolist()) == {4.0, 5.0}
    with pytest.raises(TypeError, match="upto"):
        x.uniform_(upto=3)


def test_an_int_is_an_index_of_the_accelerator() -> None:
    found = norch.accelerator.current_accelerator()
    if found is None:
        for call in (lambda: norch.device(0), lambda: norch.ones(1).to(0)):
            with pytest.raises(norch.DeviceError, match="0 means an accelerator"):
                call()
    else:
        assert norch.device(0) == norch.device(found.type, 0)
    with pytest.raises(norch.DeviceError, match="-1"):
        norch.device(-1)


def test_a_size_and_a_tuple_make_a_size() -> None:
    joined = norch.zeros(2, 3).shape + (4,)
    assert type(joined) is norch.Size
    assert joined == (2, 3, 4)
    assert hash(joined) == hash((2, 3, 4))
    assert norch.zeros(joined).shape == joined


def test_assert_close_says_what_differs() -> None:
    close = norch.testing.assert_close
    x = norch.tensor([1.0, 2.0])
    close(x, x + 1e-6)
    close({"a": [x, 1]}, {"a": [x.clone(), 1]})
    close(1.0, 1.0 + 1e-9)
    for wrong, said in (
        (x + 1e-3, "2 of 2 elements"),
        (x[:1], "shapes"),
        (x.double(), "dtypes"),
    ):
        with pytest.raises(AssertionError, match=said):
            close(x, wrong)
    with pytest.raises(AssertionError, match="at ..a...1"):
        close({"a": [x, 1]}, {"a": [x, 2]})
    with pytest.raises(AssertionError, match="mine"):
        close(x, x + 1, msg="mine")
    with pytest.raises(ValueError, match="rtol and atol"):
        close(x, x, rtol=1e-3)
    close(x, x + 0.5, rtol=0, atol=0.6)
    close(x.double(), x, check_dtype=False)
    nan = norch.tensor([float("nan")])
    close(nan, nan, equal_nan=True)
    with pytest.raises(AssertionError):
        close(nan, nan)


def test_assert_allclose() -> None:
    nan = float("nan")
    norch.testing.assert_allclose(norch.tensor([1.0, nan]), norch.tensor([1.00009, nan], dtype=norch.float64))
    norch.testing.assert_allclose([1, 2], norch.tensor([1, 2]))
    with pytest.raises(AssertionError, match="greatest absolute"):
        norch.testing.assert_allclose(norch.ones(2), norch.ones(2) + 2e-4)
    with pytest.raises(AssertionError, match="^apart$"):
        norch.testing.assert_allclose(norch.ones(2), norch.zeros(2), 0.1, 0.1, msg="apart")


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16", "int64"])
@pytest.mark.parametrize("apart", [0, 1e-8, 3e-7, 1e-6, 1e-5, 3e-4, 5e-3, 1])
def test_assert_close_is_as_strict_as_pytorch(kind: str, apart: float) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib in (norch, torch):
        a = lib.tensor([1.0, 3.0]).to(getattr(lib, kind))
        b = (lib.tensor([1.0, 3.0], dtype=lib.float64) + apart).to(getattr(lib, kind))
        try:
            lib.testing.assert_close(a, b)
            found.append(True)
        except AssertionError:
            found.append(False)
    assert found[0] == found[1]


DEFAULTS = {
    "batch_norm": {"training": False, "momentum": 0.1, "eps": 1e-05},
    "binary_cross_entropy": {"reduction": "mean"},
    "binary_cross_entropy_with_logits": {"reduction": "mean"},
    "celu": {"alpha": 1.0},
    "cross_entropy": {"ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0},
    "dropout": {"p": 0.5, "training": True},
    "elu": {"alpha": 1.0},
    "glu": {"dim": -1},
    "group_norm": {"eps": 1e-05},
    "hardtanh": {"min_val": -1.0, "max_val": 1.0},
    "huber_loss": {"reduction": "mean", "delta": 1.0},
    "kl_div": {"reduction": "mean", "log_target": False},
    "l1_loss": {"reduction": "mean"},
    "layer_norm": {"eps": 1e-05},
    "leaky_relu": {"negative_slope": 0.01},
    "mse_loss": {"reduction": "mean"},
    "nll_loss": {"ignore_index": -100, "reduction": "mean"},
    "normalize": {"p": 2.0, "dim": 1, "eps": 1e-12},
    "pad": {"mode": "constant"},
    "smooth_l1_loss": {"reduction": "mean", "beta": 1.0},
    "softplus": {"beta": 1.0, "threshold": 20.0},
    "sgd_step_": {"momentum": 0, "dampening": 0, "weight_decay": 0, "nesterov": False, "maximize": False},
    "adam_step_": {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0, "decoupled": False},
    "adamax_step_": {"lr": 2e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0},
    "nadam_step_": {"lr": 2e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0},
    "radam_step_": {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0},
    "adagrad_step_": {"lr": 1e-2, "eps": 1e-10, "weight_decay": 0},
    "adadelta_step_": {"lr": 1.0, "rho": 0.9, "eps": 1e-6, "weight_decay": 0},
    "rmsprop_step_": {"lr": 1e-2, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0, "momentum": 0},
    "asgd_step_": {"lambd": 1e-4, "weight_decay": 0},
    "rprop_step_": {"etaminus": 0.5, "etaplus": 1.2, "step_size_min": 1e-6, "step_size_max": 50},
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_pytorchs(name):
    parameters = inspect.signature(getattr(norch, name)).parameters
    assert {n: parameters[n].default for n in DEFAULTS[name]} == DEFAULTS[name]


def test_where_takes_both_values_or_none():
    mask = norch.tensor([True, False])
    assert norch.where(mask, 1.0, 0.0).tolist() == [1.0, 0.0]
    assert [places.tolist() for places in norch.where(mask)] == [[0]]
    with pytest.raises(TypeError, match="where\\(\\): takes condition alone, or input and other"):
        norch.where(mask, 1.0)


def test_broadcast_to_takes_sizes_one_by_one():
    x = norch.ones(1, 3)
    forms = (x.broadcast_to(2, 3), x.broadcast_to((2, 3)), x.broadcast_to(size=(2, -1)), norch.broadcast_to(x, [2, 3]),
             norch.broadcast_to(x, size=(2, 3)), norch.broadcast_to(x, shape=(2, 3)))  # fmt: skip
    assert {tuple(found.shape) for found in forms} == {(2, 3)}


X = norch.tensor([[1.0, 2.0], [3.0, 4.0]])

BY_NUMPYS_NAMES = {
    "sum(x=X, axis=1)": "sum(X, 1)", "mean(a=X, axis=0, keepdims=True)": "mean(X, 0, True)",
    "unsqueeze(X, axis=0)": "unsqueeze(X, 0)", "squeeze(X[None], axis=0)": "X", "unbind(X, axis=1)[0]": "X[:, 0]",
    "tensor_split(X, 2, axis=1)[1]": "X[:, 1:]", "chunk(X, 2, axis=0)[0]": "X[:1]", "roll(X, 1, axis=0)": "X.flip(0)",
    "gather(X, axis=0, index=I)": "gather(X, 0, I)", "index_select(X, axis=0, index=I[0])": "X[I[0]]",
    "narrow(X, axis=0, start=0, length=1)": "X[:1]", "repeat_interleave(X, 2, axis=0)": "repeat_interleave(X, 2, 0)",
    "linalg.norm(input=X)": "linalg.norm(X)", "tril(a=X)": "tril(X)", "isnan(x=X)": "isnan(X)",
    "view_as_real(fft.fft(X, axis=0))": "view_as_real(fft.fft(X, dim=0))", "atan2(X, other=X)": "atan2(X, X)",
    "heaviside(X, values=X)": "heaviside(X, X)", "cross(x1=V, x2=V, axis=0)": "cross(V, V, 0)",
    "zeros_like(a=X)": "zeros_like(X)", "X.squeeze(axis=0)": "X", "X.index_select(axis=0, index=I[0])": "X[I[0]]",
    "real(triu(input=complex(X, X)))": "triu(X)",
}  # fmt: skip


class Names(dict):
    def __missing__(self, name):
        return getattr(norch, name)


@pytest.mark.parametrize(("call", "meaning"), BY_NUMPYS_NAMES.items())
def test_arguments_may_have_numpys_names(call, meaning):
    """As in PyTorch, whose functions all take them."""
    names = Names(X=X, V=X[0].repeat(2)[:3], I=norch.zeros(1, 2, dtype=norch.int64))
    norch.testing.assert_close(eval(call, {}, names), eval(meaning, {}, names))


def test_other_names_are_refused():
    for wrong in (
        lambda: norch.sum(X, axes=0),
        lambda: norch.gather(X, axis=0, dim=0, index=X),
        lambda: norch.tril(X, x=X),
        lambda: norch.squeeze(a=X, x=X),
    ):
        with pytest.raises(TypeError):
            wrong()
