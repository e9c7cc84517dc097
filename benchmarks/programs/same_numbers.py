"""Makes norch and PyTorch draw the same numbers: NumPy's, in place of each library's own generator.

Two runs of a script then begin with the same weights, shuffle in the same order and drop the same elements, so that
their losses can be compared. Each function has a sequence of its own, whatever others draw between two calls of it.
"""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

_calls: Counter[str] = Counter()


def draws(name: str) -> np.random.Generator:
    """The generator of the next call of a function."""
    _calls[name] += 1
    return np.random.default_rng([_calls[name], *name.encode()])


def install(torch: Any) -> None:
    """torch: PyTorch, or norch in its place."""
    random.seed(0)
    np.random.seed(0)
    _factories(torch)
    _methods(torch)
    _initialisation(torch)
    _layers(torch)
    _data(torch)


def _sizes(args: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else tuple(map(int, args))


def _factories(torch: Any) -> None:
    def made(values: Any, like: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
        default = torch.get_default_dtype() if values.dtype.kind == "f" else torch.int64
        dtype = dtype or (like.dtype if like is not None else default)
        out = torch.from_numpy(np.asarray(values)).to(dtype)
        return out.requires_grad_() if requires_grad else out

    def factory(name: str, draw: Callable[[np.random.Generator, tuple[int, ...]], Any]) -> None:
        def new(*size: Any, generator: Any = None, dtype: Any = None, requires_grad: bool = False, **_: Any) -> Any:
            return made(draw(draws(name), _sizes(_.get("size", size) and size)), None, dtype, None, requires_grad)

        def like(input: Any, *, dtype: Any = None, requires_grad: bool = False, **_: Any) -> Any:
            return made(draw(draws(name), tuple(input.shape)), input, dtype, None, requires_grad)

        setattr(torch, name, new)
        setattr(torch, f"{name}_like", like)

    factory("rand", lambda r, size: r.random(size))
    factory("randn", lambda r, size: r.standard_normal(size))

    def randint(*args: Any, generator: Any = None, dtype: Any = None, **more: Any) -> Any:
        size = more.get("size") if "size" in more else args[-1]
        bounds = args if "size" in more else args[:-1]
        low, high = bounds if len(bounds) == 2 else (more.get("low", 0), more.get("high", *bounds))
        return made(draws("randint").integers(low, high, tuple(size)), None, dtype)

    def normal(mean: Any, std: Any = 1.0, size: Any = None, **_: Any) -> Any:
        shape = tuple(size if size is not None else getattr(mean, "shape", None) or std.shape)
        drawn = torch.from_numpy(draws("normal").standard_normal(shape)).to(torch.get_default_dtype())
        return drawn * std + mean

    def bernoulli(input: Any, **_: Any) -> Any:
        return (torch.from_numpy(draws("bernoulli").random(tuple(input.shape))) < input.double()).to(input.dtype)

    def multinomial(input: Any, num_samples: int, replacement: bool = False, **_: Any) -> Any:
        rows = input.detach().double().reshape(-1, input.shape[-1]).numpy()
        r = draws("multinomial")
        found = [r.choice(len(row), num_samples, replacement, row / row.sum()) for row in rows]
        return torch.from_numpy(np.array(found)).reshape(*input.shape[:-1], num_samples)

    torch.randint, torch.normal, torch.bernoulli, torch.multinomial = randint, normal, bernoulli, multinomial
    torch.randperm = lambda n, **_: torch.from_numpy(draws("randperm").permutation(int(n)))


def _methods(torch: Any) -> None:
    def filling(name: str, draw: Callable[..., Any]) -> None:
        def fill(self: Any, *args: Any, generator: Any = None, **named: Any) -> Any:
            values = draw(draws(name), tuple(self.shape), *args, **named)
            with torch.no_grad():
                return self.copy_(torch.from_numpy(np.asarray(values)))

        setattr(torch.Tensor, name, fill)

    filling("uniform_", lambda r, size, a=0.0, b=1.0, **k: r.uniform(k.get("from", a), k.get("to", b), size))
    filling("normal_", lambda r, size, mean=0.0, std=1.0: r.normal(mean, std, size))
    filling("exponential_", lambda r, size, lambd=1.0: r.exponential(1 / lambd, size))
    filling("bernoulli_", lambda r, size, p=0.5: (r.random(size) < p) * 1.0)
    torch.Tensor.bernoulli = lambda self, **_: torch.bernoulli(self)
    torch.Tensor.multinomial = lambda self, *args, **named: torch.multinomial(self, *args, **named)


def _initialisation(torch: Any) -> None:
    """Of parameters that an optimiser gets: those that are neither constant nor set by the script from constants."""

    def refill(parameter: Any, at: int) -> None:
        values = parameter.detach().float().numpy()
        if values.size < 2 or (values == values.flat[0]).all():
            return
        bound = min(1.0, 1 / math.sqrt(max(1, values.size // values.shape[0]))) if values.ndim > 1 else 0.1
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(draws(f"weights {at}").uniform(-bound, bound, values.shape)))

    before = torch.optim.Optimizer.__init__

    def __init__(self: Any, params: Any, *args: Any, **named: Any) -> None:
        params = list(params)
        flat = [p for group in params for p in (group["params"] if isinstance(group, dict) else [group])]
        for at, parameter in enumerate(p[1] if isinstance(p, tuple) else p for p in flat):
            if id(parameter) not in filled:
                filled[id(parameter)] = parameter
                refill(parameter, at)
        before(self, params, *args, **named)

    filled: dict[int, Any] = {}
    torch.optim.Optimizer.__init__ = __init__


def _layers(torch: Any) -> None:
    F = torch.nn.functional

    def dropping(name: str, dims: int | None) -> None:
        def drop(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
            if not training or p == 0:
                return input
            shape = tuple(input.shape) if dims is None else (*input.shape[:-dims], *[1] * dims)
            kept = torch.from_numpy((draws(name).random(shape) >= p) / max(1 - p, 1e-9)).to(input.dtype)
            return input * kept

        setattr(F, name, drop)
        layer = getattr(torch.nn, name.replace("dropout", "Dropout"))
        layer.forward = lambda self, input: drop(input, self.p, self.training)

    dropping("dropout", None)
    dropping("dropout2d", 2)
    torch.dropout = lambda input, p, train: F.dropout(input, p, train)
    attention = F.scaled_dot_product_attention
    F.scaled_dot_product_attention = lambda *args, dropout_p=0.0, **named: attention(*args, **named)
    for name in ("RNN", "LSTM", "GRU", "MultiheadAttention"):
        _without_dropout(getattr(torch.nn, name))


def _without_dropout(layer: Any) -> None:
    before = layer.__init__

    def __init__(self: Any, *args: Any, **named: Any) -> None:
        before(self, *args, **named)
        self.dropout = 0.0

    layer.__init__ = __init__


class Noise:
    """Pictures of noise in place of a data set that would be downloaded."""

    sizes = {"MNIST": (28, 28), "FashionMNIST": (28, 28), "CIFAR10": (32, 32, 3), "CIFAR100": (32, 32, 3)}
    shape = (64, 64, 3)
    classes = tuple("abcdefghij")

    def __init__(self, *args: Any, transform: Any = None, target_transform: Any = None, **_: Any) -> None:
        r = draws(type(self).__name__)
        self.pictures = r.integers(0, 256, (600, *self.shape), np.uint8)
        self.labels = [int(v) for v in r.integers(0, 10, 600)]
        self.transform, self.target_transform = transform, target_transform
        torch = sys.modules["torch"]
        self.data = self.train_data = torch.from_numpy(self.pictures)
        self.targets = self.train_labels = torch.tensor(self.labels)
        self.test_data, self.test_labels = self.data, self.targets

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        picture = Image.fromarray(self.pictures[index])
        label = self.labels[index]
        return (
            self.transform(picture) if self.transform else picture,
            self.target_transform(label) if self.target_transform else label,
        )


def _data(torch: Any) -> None:
    """Samplers that shuffle alike, data sets of noise, and no random change of pictures but of their middle."""
    from torch.utils.data import RandomSampler

    def __iter__(self: Any) -> Iterator[int]:
        r, count = draws("sampler"), len(self.data_source)
        if not self.replacement:
            yield from r.permutation(count).tolist()
        else:
            for _ in range(len(self)):
                yield int(r.integers(count))

    RandomSampler.__iter__ = __iter__
    datasets: ModuleType = __import__("torchvision.datasets").datasets
    for name in ("MNIST", "FashionMNIST", "CIFAR10", "CIFAR100", "ImageFolder", "SVHN", "LSUN", "FakeData"):
        kind = type(name, (Noise,), {"shape": Noise.sizes.get(name, Noise.shape)})
        setattr(datasets, name, kind)
    transforms: Any = __import__("torchvision.transforms").transforms
    transforms.RandomHorizontalFlip.forward = lambda self, img: img
    transforms.RandomCrop.forward = lambda self, img: transforms.functional.center_crop(img, self.size)
