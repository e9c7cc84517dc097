"""One of PyTorch's op samples, run by PyTorch and by norch, and what came out compared.

An OpInfo of `op_db` says what an op is called, which dtypes it takes and with which arguments it is worth trying.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_methods_invocations import op_db

import norch

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.bool)
ERRORS = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, ZeroDivisionError, OverflowError)
TOLERANCES = {torch.float64: 1e-9, torch.float32: 2e-5, torch.bfloat16: 3e-2}

# Random ops draw from the seed that a test gave, not each time from the same.
common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)

UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
TIES = {"sort", "msort", "kthvalue", "mode", "topk"}  # which of equal elements is meant, PyTorch leaves open
SIGNS = {"svd", "linalg.svd", "linalg.eig", "linalg.eigh", "linalg.qr", "qr"}  # and here the sign of a vector


def full_name(op: Any) -> str:
    """`add`, or `norm.fro` for a variant."""
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


OPS = {full_name(op): op for op in op_db}


def _named(name: str) -> Any:
    path, _, last = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(f"norch.{path}" if path else "norch"), last, None)
    except ModuleNotFoundError:
        found = None
    if found is None or not callable(found):  # a dtype, whose name a method has too
        found = None if path else getattr(norch.Tensor, last, None)
    return found.__get__ if isinstance(found, property) else found


# Where an OpInfo has the arguments in another order than the function that it is about.
_ARGUMENTS: dict[str, Callable[..., Any]] = {
    "einsum": lambda f, tensors, equation: f(equation, *tensors),
    "where": lambda f, a, condition, b: f(condition, a, b),
    "polygamma": lambda f, x, n: f(n, x),
    "special.polygamma": lambda f, x, n: f(n, x),
    "nn.functional.embedding": lambda f, weight, index, **more: f(index, weight, **more),
    "nn.functional.embedding_bag": lambda f, weight, index, **more: f(index, weight, **more),
    "linalg.lstsq.grad_oriented": lambda f, *args, **more: tuple(f(*args, **more)[:2]),
    "linalg.pinv.singular": lambda f, a, b: f(a @ b.mT),
    "svd_lowrank": lambda f, a, b, **more: f(a @ b.mT, **more),
    "pca_lowrank": lambda f, a, b, **more: f(a @ b.mT, **more),
    "normal.in_place": lambda f, x, *more: x.clone().normal_(*more),
    "nn.functional.gaussian_nll_loss": functools.partial(lambda f, *a, **k: f(*a, **k), strict=False),
}


def function_of(op: Any) -> Any:
    """norch's function of an op's name, or its method; None where there is neither."""
    function = _named(op.name)
    adapt = _ARGUMENTS.get(full_name(op)) or _ARGUMENTS.get(op.name)
    if function is None:
        return None
    if op.name.endswith("_") and not op.name.endswith("__"):
        return lambda x, *args, **kwargs: function(x.clone(), *args, **kwargs)
    return functools.partial(adapt, function) if adapt else function


def is_lacking(op: Any) -> bool:
    found = function_of(op)
    return found is None or hasattr(found, "_instead")  # as functions of complex numbers, which say so


# --- Tensors of the one as tensors of the other ---------------------------------------------------------------------


def over(x: Any, convert: Callable[[Any], Any]) -> Any:
    """What a sample holds, with `convert` of whatever is no container."""
    if isinstance(x, (tuple, list)) and not isinstance(x, torch.Size):
        parts = [over(v, convert) for v in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    if isinstance(x, dict):
        return {k: over(v, convert) for k, v in x.items()}
    if isinstance(x, slice):
        return slice(over(x.start, convert), over(x.stop, convert), over(x.step, convert))
    return convert(x)


def _to_norch(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return _tensor(x)
    if isinstance(x, (torch.dtype, torch.memory_format, torch.layout)):
        return getattr(norch, str(x).removeprefix("torch."))
    if isinstance(x, torch.device):
        return str(x)
    return norch.nn.PairwiseDistance() if isinstance(x, torch.nn.PairwiseDistance) else x


def _tensor(x: torch.Tensor) -> norch.Tensor:
    """With the layout and the strides of x, and requiring a gradient where x does."""
    if x.layout is torch.sparse_coo:
        parts = to_norch((x._indices(), x._values().detach()))
        return norch.sparse_coo_tensor(*parts, tuple(x.shape), requires_grad=x.requires_grad)
    if x.layout is torch.sparse_csr:
        rows = to_norch((x.crow_indices(), x.col_indices(), x.values().detach()))
        return norch.sparse_csr_tensor(*rows, tuple(x.shape), requires_grad=x.requires_grad)
    values = x.detach()
    bits = values.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if x.dtype is torch.bfloat16 else values.numpy()
    if 0 in x.stride() and x.numel():
        shown = bits[tuple(slice(None) if s else slice(1) for s in x.stride())]
        out = norch.tensor(shown.copy()).expand(*x.shape)
    else:
        out = norch.empty_strided(tuple(x.shape), tuple(x.stride()), dtype=_to_norch(x.dtype))
        out.copy_(norch.tensor(np.ascontiguousarray(bits)).reshape(tuple(x.shape)))
    return out.requires_grad_() if x.requires_grad else out


def to_norch(x: Any) -> Any:
    return over(x, _to_norch)


def to_torch(x: norch.Tensor) -> torch.Tensor:
    x = x.detach().to_dense()
    if x.dtype is norch.bfloat16:
        return torch.from_numpy(x.numpy().view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(x.numpy()))


def clone(x: Any) -> Any:
    return over(x, lambda v: v.detach().clone().requires_grad_(v.requires_grad) if isinstance(v, torch.Tensor) else v)


def in_float64(x: Any) -> Any:
    def convert(v: Any) -> Any:
        if isinstance(v, torch.Tensor) and v.dtype.is_floating_point:
            return v.detach().double().requires_grad_(v.requires_grad)
        return torch.float64 if isinstance(v, torch.dtype) and v.is_floating_point else v

    return over(x, convert)


def flat(x: Any) -> list[Any]:
    """The tensors and numbers of a result, in order."""
    if isinstance(x, (tuple, list)) and not isinstance(x, (torch.Size, norch.Size)):
        return [v for part in x for v in flat(part)]
    return [v for part in x.values() for v in flat(part)] if isinstance(x, dict) else [x]


def tensors(x: Any) -> list[Any]:
    return [v for v in flat(x) if isinstance(v, (torch.Tensor, norch.Tensor))]


def written(name: str, sample: Any) -> str:
    """A sample as a call, values shown only of small tensors."""

    def short(x: Any) -> str:
        if isinstance(x, torch.Tensor):
            values = repr(x.detach().to_dense().tolist()) if x.numel() < 5 else ""
            return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}{values}"
        return f"({', '.join(map(short, x))})" if isinstance(x, (tuple, list)) else repr(x)

    arguments = [short(v) for v in (sample.input, *sample.args)]
    return f"{name}({', '.join([*arguments, *(f'{k}={short(v)}' for k, v in sample.kwargs.items())])})"


# --- One call ---------------------------------------------------------------------------------------------------------


def attempt(f: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, Exception | None]:
    try:
        return f(*args, **kwargs), None
    except Exception as error:
        return None, error


def _parts(x: Any) -> Any:
    """Complex numbers as their parts."""
    if isinstance(x, torch.Tensor):
        return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
    return norch.view_as_real(x) if norch.is_complex(x) else x


class Call:
    """A function called with a sample's arguments: its results, and the gradients of its leaves."""

    def __init__(self, function: Any, arguments: Any, sample: Any, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.arguments, self.sample = arguments, sample
        args, kwargs = arguments
        self.result, self.error = attempt(lambda: over(function(*args, **kwargs), _parts))

    def processed(self) -> Any:
        """What PyTorch compares and differentiates of results that are not unique. Raises what that raises."""
        return self.sample.output_process_fn_grad(self.result)

    def gradients(self) -> tuple[list[Any], list[bool]]:
        """Of a weighted sum of the results; and which of these required one."""
        outputs = [y.to_dense() for y in tensors(self.processed())]
        wanted = [bool(y.requires_grad) and y.dtype.is_floating_point for y in outputs]
        draw = np.random.default_rng(1)
        weights = [torch.tensor(draw.standard_normal(tuple(y.shape))) for y in outputs]
        chosen = [y for y, w in zip(outputs, wanted) if w]
        given = [v for v, w in zip(weights, wanted) if w]
        if chosen and isinstance(chosen[0], torch.Tensor):
            torch.autograd.backward(chosen, [v.to(y.dtype) for y, v in zip(chosen, given)])
        elif chosen:
            norch.autograd.backward(chosen, [to_norch(v).to(y.dtype) for y, v in zip(chosen, given)])
        leaves = [v for v in tensors(self.arguments) if v.requires_grad and v.is_leaf]
        return [v.new_zeros(tuple(v.shape)) if v.grad is None else v.grad for v in leaves], wanted


def differ(a: Any, b: Any, dtype: torch.dtype, values: bool, exact: Callable[[], torch.Tensor] | None) -> str | None:
    """In which way norch's `b` is not PyTorch's `a`. exact: the same in float64, which both may miss by as much."""
    if not isinstance(a, torch.Tensor):
        if isinstance(a, float) and isinstance(b, float):
            same = bool(np.isclose(b, a, rtol=TOLERANCES.get(dtype, 1e-6), equal_nan=True))
        else:
            same = type(a) is type(b) or isinstance(a, (torch.Size, torch.dtype))
            same = same and bool(to_norch(a) == b)
        return None if same else f"{b!r}, PyTorch {a!r}"
    if not isinstance(b, norch.Tensor):
        return f"{type(b).__name__}, PyTorch a tensor"
    a, b = a.detach().to_dense(), to_torch(b)
    if a.dtype != b.dtype:
        return f"dtype {b.dtype}, PyTorch {a.dtype}"
    if a.shape != b.shape:
        return f"shape {tuple(b.shape)}, PyTorch {tuple(a.shape)}"
    if not values:
        return None
    if not a.dtype.is_floating_point:
        bad = a != b
    else:
        tolerance = max(TOLERANCES.get(d, 0) for d in (a.dtype, dtype))
        a, b = a.double(), b.double()
        bad = ~torch.isclose(b, a, rtol=tolerance, atol=tolerance, equal_nan=True)
        if bad.any() and exact is not None and (true := exact()) is not None and true.shape == a.shape:
            true = true.double()
            ours, theirs = ((v - true).abs()[bad].max() for v in (b, a))
            size = true.abs().max().clamp(min=1)
            if ours <= 2 * theirs + tolerance * size:
                return None
    if not bad.any():
        return None
    at = tuple(int(i[0]) for i in torch.where(bad)) if bad.ndim else ()
    return f"{int(bad.sum())} of {bad.numel()} values, {b[at].item()!r} at {at}, PyTorch {a[at].item()!r}"


def difference(
    theirs: Any, ours: Any, dtype: torch.dtype, values: bool = True, exact: Callable[[], Any] | None = None
) -> str | None:
    """In which way norch's results are not PyTorch's, if they are not."""
    theirs, ours = flat(theirs), flat(ours)
    if len(theirs) != len(ours):
        return f"{len(ours)} results, PyTorch {len(theirs)}"
    for i, (a, b) in enumerate(zip(theirs, ours)):
        found = differ(a, b, dtype, values, None if exact is None else lambda i=i: (flat(exact()) + [None] * i)[i])
        if found:
            return f"result {i}: {found}" if len(theirs) > 1 else found
    return None


class Comparison:
    """A sample in both frameworks. `found` has a line for each way in which they differ."""

    def __init__(self, op: Any, sample: Any, dtype: torch.dtype, backward: bool) -> None:
        self.op, self.sample, self.dtype, self.backward = op, sample, dtype, backward
        self.given = ((sample.input, *sample.args), sample.kwargs)
        self.function = function_of(op)

    def torch(self, seed: int = 0) -> Call:
        return Call(self.op.op, clone(self.given), self.sample, seed)

    def exactly(self) -> Call:
        return Call(self.op.op, in_float64(self.given), self.sample)

    def is_random(self) -> bool:
        """Whether another seed gives PyTorch another result."""
        first, *others = (tensors(self.torch(seed).result) for seed in range(9))
        return any(not torch.equal(x.nan_to_num(), y.nan_to_num()) for z in others for x, y in zip(first, z))

    def run(self) -> Iterator[str]:
        theirs = self.torch()
        if theirs.error is not None:
            return  # not for this dtype
        ours = Call(self.function, to_norch(self.given), self.sample)
        if ours.error is not None:
            yield f"{type(ours.error).__name__}: {ours.error}"
            return
        why = self.results_differ(theirs, ours)
        if why and self.is_random():
            why = difference(theirs.result, ours.result, self.dtype, values=False)
            if not why:
                return
        if why:
            yield why
            return
        comparable = self.op.name not in TIES or self.dtype is not torch.bfloat16
        if self.backward and comparable and (why := self.gradients_differ(theirs, ours)) and not self.is_random():
            yield f"gradient: {why}"
        if self.op.inplace_variant and (why := self.in_place_differ()):
            yield f"in place: {why}"

    def results_differ(self, theirs: Call, ours: Call) -> str | None:
        if self.op.name in SIGNS and self.backward:
            pair, error = attempt(lambda: (theirs.processed(), ours.processed()))
            return str(error) if error else difference(*pair, self.dtype, True, lambda: self.exactly().processed())
        a, b = theirs.result, ours.result
        if self.op.name in TIES and isinstance(a, tuple):
            return difference(a[:1], b[:1], self.dtype) or difference(a[1:], b[1:], self.dtype, values=False)
        if self.op.name == "argsort":
            at = self.sample.kwargs.get("dim", (*self.sample.args, -1)[0])
            x = self.sample.input.detach().reshape(1) if not self.sample.input.ndim else self.sample.input.detach()
            a, b = (x.gather(at, i.reshape(x.shape)) for i in (a, to_torch(b)))
            return None if torch.equal(a, b) else "another order"
        return difference(a, b, self.dtype, self.op.name not in UNINITIALISED, lambda: self.exactly().result)

    def gradients_differ(self, theirs: Call, ours: Call) -> str | None:
        expected, error = attempt(theirs.gradients)
        if error is not None:
            return None
        found, error = attempt(ours.gradients)
        if error is not None:
            return f"{type(error).__name__}: {error}"
        if expected[1] != found[1]:
            return f"requires_grad {found[1]}, PyTorch {expected[1]}"
        exact = functools.cache(lambda: (attempt(self.exactly().gradients)[0] or [None])[0])
        return difference(expected[0], found[0], self.dtype, True, exact)

    def in_place_differ(self) -> str | None:
        path, _, name = self.op.name.rpartition(".")
        if path == "nn.functional":
            method = functools.partial(self.function, inplace=True)
        else:
            method = getattr(norch.Tensor, f"{name.rstrip('_')}_", None)
        if method is None:
            return "norch has no such method"
        with torch.no_grad(), norch.no_grad():
            theirs = Call(self.op.inplace_variant, clone(self.given), self.sample)
            ours = Call(method, to_norch(self.given), self.sample)
        if theirs.error is not None:
            return None if ours.error is not None else f"accepted, PyTorch {str(theirs.error)[:100]}"
        if ours.error is not None:
            return f"{type(ours.error).__name__}: {ours.error}"
        found = difference(theirs.result, ours.result, self.dtype, True, lambda: self.exactly().result)
        return None if found and self.is_random() else found


def failures(op: Any, dtype: torch.dtype) -> Iterator[str]:
    """All samples of an op in a dtype, as function and in place: a line for each difference."""
    backward = dtype.is_floating_point and op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    torch.manual_seed(0)
    for sample in op.sample_inputs("cpu", dtype, requires_grad=backward):
        for why in Comparison(op, sample, dtype, backward).run():
            yield f"{written(full_name(op), sample)}: {why}"


def errors_missed(op: Any) -> Iterator[str]:
    """The wrong calls that PyTorch has samples of: those that norch accepts, or that end in an error of no kind."""
    torch.manual_seed(0)
    for wrong in op.error_inputs("cpu"):
        comparison = Comparison(op, wrong.sample_input, torch.float32, False)
        given, error = attempt(to_norch, comparison.given)
        if error is not None or comparison.torch().error is None:  # complex numbers, sparse tensors
            continue
        ours = Call(comparison.function, given, wrong.sample_input)
        if not isinstance(ours.error, ERRORS):
            came = f"accepted, PyTorch {wrong.error_regex[:80]}" if ours.error is None else repr(ours.error)
            yield f"error: {written(full_name(op), wrong.sample_input)}: {came}"
