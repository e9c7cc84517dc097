"""Parameters of which elements are set to zero and stay so.

    prune.l1_unstructured(layer, "weight", amount=0.3)    # the 30% of smallest magnitude

From then on `layer.weight_orig` is what is trained, `layer.weight_mask` a buffer of zeros and ones, and `layer.weight`
their product, made before each call. Pruning again prunes what is left; `remove` makes it permanent.

Arguments that mean the same in every function and class:

    module, name: the module, and which of its parameters is pruned. Functions return the module
    amount: how much is pruned, a number of elements (or of slices along a dim), or, as a float, a share of all; another
        kind of amount raises TypeError, one out of range ValueError
    dim: the dim whose slices are pruned as a whole. n: of which norm (1, 2, inf) they are compared
    importance_scores: a tensor of the parameter's shape, of which the smallest magnitudes are pruned instead of its own
    t: a tensor. default_mask: what was pruned of it before, a tensor of zeros and ones of its shape
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import norch

from ..module import Module
from .convert_parameters import parameters_to_vector

M = TypeVar("M", bound=Module)


class BasePruningMethod(ABC):
    """Base of what decides which elements are pruned: a subclass has PRUNING_TYPE and `compute_mask`.

    PRUNING_TYPE: how it prunes again what is pruned already: "unstructured" looks at the elements that are left,
    "structured" at the slices along `self.dim` that are left, "global" at all.
    """

    PRUNING_TYPE: str
    _tensor_name: str | None = None

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, str(self._tensor_name), self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: norch.Tensor, default_mask: norch.Tensor) -> norch.Tensor:
        """The mask, of the shape of `t`: default_mask with zeros where more is pruned."""

    def apply_mask(self, module: Module) -> norch.Tensor:
        """The product of the module's mask and parameter, of its shape. Raises RuntimeError before `apply`."""
        if self._tensor_name is None:
            raise RuntimeError(f"prune: {type(module).__name__} has to be pruned before its mask is applied")
        orig: norch.Tensor = getattr(module, self._tensor_name + "_orig")
        mask: norch.Tensor = getattr(module, self._tensor_name + "_mask")
        return mask.to(dtype=orig.dtype) * orig

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: norch.Tensor | None = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Prunes the parameter by a method made of `args` and `kwargs`, and returns the hook that keeps it pruned.

        That is the method, or a PruningContainer where the parameter was pruned before. Raises RuntimeError for a
        parameter with several such hooks, ShapeError for scores of another shape than the parameter's.
        """
        hooks = _hooks_of(module, name)
        if len(hooks) > 1:
            raise RuntimeError(
                f"{name!r} of {type(module).__name__} has {len(hooks)} pruning hooks; use one PruningContainer"
            )
        method = cls(*args, **kwargs)
        method._tensor_name = name
        orig: norch.Tensor = getattr(module, name)
        scores = orig if importance_scores is None else importance_scores
        _check_scores(scores, orig)
        mask: norch.Tensor
        if hooks:
            key, old = hooks[0]
            container = old if isinstance(old, PruningContainer) else PruningContainer(old)
            container.add_pruning_method(method)
            mask = container.compute_mask(scores.detach(), getattr(module, name + "_mask").detach().clone())
            del module._forward_pre_hooks[key]
            hook: BasePruningMethod = container
        else:
            hook, parameter = method, module.get_parameter(name)
            mask = method.compute_mask(scores.detach(), norch.ones_like(orig))
            delattr(module, name)
            module.register_parameter(name + "_orig", parameter)
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, hook.apply_mask(module))
        module.register_forward_pre_hook(hook)
        return hook

    def prune(
        self,
        t: norch.Tensor,
        default_mask: norch.Tensor | None = None,
        importance_scores: norch.Tensor | None = None,
    ) -> norch.Tensor:
        """The tensor `t` times its mask, of its shape. Raises ShapeError for scores of another shape."""
        scores = t if importance_scores is None else importance_scores
        _check_scores(scores, t)
        return t * self.compute_mask(scores, norch.ones_like(t) if default_mask is None else default_mask)

    def remove(self, module: Module) -> None:
        """Makes the pruned tensor the parameter again. Raises RuntimeError before `apply`.

        The hook itself stays, as `prune.remove` takes both away.
        """
        weight = self.apply_mask(module)
        name = str(self._tensor_name)
        orig = module.get_parameter(name + "_orig")
        with norch.no_grad():
            orig.copy_(weight)
        for each in (name, name + "_orig", name + "_mask"):
            delattr(module, each)
        module.register_parameter(name, orig)


class PruningContainer(BasePruningMethod):
    """The methods that pruned a parameter one after the other, as a sequence: len, indices and iteration.

    args: methods of one parameter.
    """

    PRUNING_TYPE = "container"

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod | None) -> None:
        """Adds `method`. Raises TypeError for what is none, ValueError for one of another parameter."""
        if method is not None and not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method).__name__} is not a BasePruningMethod subclass")
        if method is not None and method._tensor_name != self._tensor_name:
            raise ValueError(
                f"this PruningContainer is of the parameter named {self._tensor_name!r}, and the method of "
                f"{method._tensor_name!r}"
            )
        self._pruning_methods += (method,)  # type: ignore[operator]

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: norch.Tensor, default_mask: norch.Tensor) -> norch.Tensor:
        """The mask with what the last method prunes of what the mask leaves. Raises ValueError for an unknown
        PRUNING_TYPE.
        """
        method = self._pruning_methods[-1]
        left: Any
        if method.PRUNING_TYPE == "unstructured":
            left = default_mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = _dim_of(method.dim, t)  # type: ignore[attr-defined]
            kept = default_mask.sum(dim=[d for d in range(t.ndim) if d != dim]) != 0
            left = (*[slice(None)] * dim, kept)
        elif method.PRUNING_TYPE == "global":
            left = (slice(None),) * t.ndim
        else:
            raise ValueError(f"prune: unknown PRUNING_TYPE {method.PRUNING_TYPE!r}")
        mask = default_mask.to(dtype=t.dtype, copy=True)
        mask[left] = method.compute_mask(t[left], default_mask[left]).to(dtype=mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Prunes nothing, and gives the parameter the names of one that is pruned."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: norch.Tensor, default_mask: norch.Tensor) -> norch.Tensor:
        """The mask that was there, of the shape of `t`."""
        return default_mask


class RandomUnstructured(BasePruningMethod):
    """Prunes elements by chance."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        _check_amount(amount)
        self.amount = amount

    def compute_mask(self, t: norch.Tensor, default_mask: norch.Tensor) -> norch.Tensor:
        """The mask, of the shape of `t`, with zeros at random. Raises ValueError where there are too few elements."""
        count = _count(self.amount, t.numel())
        return _without(default_mask, norch.rand_like(t).reshape(-1).topk(count).indices) if count else default_mask


class L1Unstructured(BasePruningMethod):
    """Prunes the elements of smallest magnitude."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        _check_amount(amount)
        self.amount = amount

    def compute_mask(self, t: norch.Tensor, default_mask: norch.Tensor) -> norch.Tensor:
        """The mask, of the shape of `t`, with zeros where it is smallest. Raises ValueError where there are too few
        elements.
        """
        count = _count(self.amount, t.numel())
        if not count:
            return default_mask
        return _without(default_mask, t.abs().reshape(-1).topk(count, largest=False).indices)


class RandomStructured(BasePruningMethod):
    """Prunes slices along a dim by chance."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        _check_amount(amount)
        self.amount, self.dim = amount, dim

    def compute_mask(self, t: norch.Tensor, default_mask: norch.Tensor) -> norch.Tensor:
        """The mask, of the shape of `t`, with slices of zeros. Raises ShapeError for a 1-D tensor, IndexError for a
        dim that it has not, ValueError where there are too few slices.
        """
        dim = _sliced(t, self.dim)
        count = _count(self.amount, t.shape[dim])
        if not count:
            return default_mask
        drawn = norch.rand(t.shape[dim], device=t.device)
        return _with_slices(t, dim, drawn > drawn.kthvalue(count).values, default_mask)


class LnStructured(BasePruningMethod):
    """Prunes the slices along a dim whose norm is smallest."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        _check_amount(amount)
        self.amount, self.n, self.dim = amount, n, dim

    def compute_mask(self, t: norch.Tensor, default_mask: norch.Tensor) -> norch.Tensor:
        """As of RandomStructured, whose slices are drawn."""
        dim = _sliced(t, self.dim)
        count = _count(self.amount, t.shape[dim])
        if not count:
            return default_mask
        norms = norch.norm(t, self.n, dim=[d for d in range(t.ndim) if d != dim])
        return _with_slices(t, dim, norms.topk(t.shape[dim] - count).indices, default_mask)


class CustomFromMask(BasePruningMethod):
    """Prunes where `mask`, a tensor of the parameter's shape, is zero."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: norch.Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: norch.Tensor, default_mask: norch.Tensor) -> norch.Tensor:
        """The product of both masks, of the shape of `t`. Raises ShapeError where theirs differ."""
        if default_mask.shape != self.mask.shape:
            raise norch.ShapeError(
                f"prune: a mask of shape {tuple(self.mask.shape)} does not fit one of {tuple(default_mask.shape)}"
            )
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def identity(module: M, name: str) -> M:
    """Gives a parameter the names of a pruned one; its elements stay as they are."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: M, name: str, amount: float) -> M:
    """Prunes elements of a parameter by chance."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: M, name: str, amount: float, importance_scores: norch.Tensor | None = None) -> M:
    """Prunes the elements of a parameter whose magnitude is smallest."""
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: M, name: str, amount: float, dim: int) -> M:
    """Prunes slices of a parameter along `dim` by chance."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: M, name: str, amount: float, n: Any, dim: int, importance_scores: norch.Tensor | None = None
) -> M:
    """Prunes the slices of a parameter along `dim` whose n-norm is smallest."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: M, name: str, mask: norch.Tensor) -> M:
    """Prunes a parameter where `mask`, a tensor of its shape, is zero."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], norch.Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prunes several parameters as if they were one vector.

    parameters: pairs of a module and a name. importance_scores: by such a pair. pruning_method: a class of
    "unstructured" methods, made of `kwargs`. Raises TypeError for another class,
    or scores that are no dict.
    """
    if not isinstance(importance_scores, dict | None):
        raise TypeError("global_unstructured(): importance_scores must be a dict")
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f"global_unstructured(): {pruning_method.__name__} is of PRUNING_TYPE {method.PRUNING_TYPE!r}, not "
            "'unstructured'"
        )
    pairs = list(parameters)
    tensors = [getattr(module, name) for module, name in pairs]
    scores = [(importance_scores or {}).get(pair, tensor) for pair, tensor in zip(pairs, tensors)]
    masks = [getattr(m, name + "_mask", norch.ones_like(tensor)) for (m, name), tensor in zip(pairs, tensors)]
    vectors = [parameters_to_vector([part.detach() for part in parts]) for parts in (scores, masks)]
    found = PruningContainer(method).compute_mask(*vectors)
    for (module, name), tensor, mask in zip(pairs, tensors, found.split([tensor.numel() for tensor in tensors])):
        custom_from_mask(module, name, mask.view_as(tensor))


def remove(module: M, name: str) -> M:
    """Makes pruning permanent: the parameter has its name again, with zeros where it was pruned, and is the same
    object that is trained. Raises ValueError where it was not pruned.
    """
    for key, hook in _hooks_of(module, name):
        hook.remove(module)
        del module._forward_pre_hooks[key]
        return module
    raise ValueError(
        f"remove(): parameter {name!r} of {type(module).__name__} has to be pruned before pruning can be removed"
    )


def is_pruned(module: Module) -> bool:
    """Whether a parameter of `module`, or of a module below it, is pruned."""
    hooks = [hook for each in module.modules() for hook in each._forward_pre_hooks.values()]
    return any(isinstance(hook, BasePruningMethod) for hook in hooks)


def _hooks_of(module: Module, name: str) -> list[tuple[int, BasePruningMethod]]:
    hooks = module._forward_pre_hooks.items()
    return [(k, hook) for k, hook in hooks if isinstance(hook, BasePruningMethod) and hook._tensor_name == name]


def _check_scores(scores: norch.Tensor, t: norch.Tensor) -> None:
    if scores.shape != t.shape:
        raise norch.ShapeError(
            f"prune: importance_scores of shape {tuple(scores.shape)} do not fit a tensor of {tuple(t.shape)}"
        )


def _check_amount(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"prune: amount must be an int or a float, not {type(amount).__name__}")
    if not (int(amount) >= 0 if isinstance(amount, numbers.Integral) else 0 <= float(amount) <= 1):
        raise ValueError(f"prune: amount={amount} should be a float in [0, 1] or an int that is not negative")


def _count(amount: Any, size: int) -> int:
    """How many of `size` are pruned."""
    count = int(amount) if isinstance(amount, numbers.Integral) else round(float(amount) * size)
    if count > size:
        raise ValueError(f"prune: amount={count} is more than there is to prune: {size}")
    return count


def _dim_of(dim: int, t: norch.Tensor) -> int:
    if not -t.ndim <= dim < t.ndim:
        raise IndexError(f"prune: dim {dim} of a tensor of shape {tuple(t.shape)}")
    return dim % t.ndim


def _sliced(t: norch.Tensor, dim: int) -> int:
    if t.ndim <= 1:
        raise norch.ShapeError(f"prune: only tensors of several dims have slices, not one of shape {tuple(t.shape)}")
    return _dim_of(dim, t)


def _without(mask: norch.Tensor, indices: norch.Tensor) -> norch.Tensor:
    flat = mask.reshape(-1).clone()
    flat[indices] = 0
    return flat.reshape(mask.shape)


def _with_slices(t: norch.Tensor, dim: int, kept: norch.Tensor, mask: norch.Tensor) -> norch.Tensor:
    found = norch.zeros_like(t)
    found[(*[slice(None)] * dim, kept)] = 1
    return found * mask.to(dtype=found.dtype)


norch.check_functions(globals())
