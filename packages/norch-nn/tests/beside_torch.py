"""Modules beside PyTorch's: the same weights, then results and all gradients compared, in float64."""

import re

import numpy as np
import torch

import norch
from norch import nn
from norch.nn.utils import rnn


def pair(name, *args, **kwargs):
    """The module of PyTorch and that of norch, with the same weights."""
    theirs = getattr(torch.nn, name)(*args, **kwargs, dtype=torch.float64)
    ours = getattr(nn, name)(*args, **kwargs, dtype=norch.float64)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    assert shown(ours) == shown(theirs)
    return theirs, ours


def shown(module):
    """What a module prints; norms have said whether they have a bias since PyTorch 2.13."""
    return re.sub(r"(affine=(?:True|False)), bias=(?:True|False)", r"\1", repr(module))


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def leaves(values):
    return (
        [torch.tensor(v, requires_grad=True) for v in values],
        [norch.tensor(v, requires_grad=True) for v in values],
    )


def flat(result):
    """All tensors of a result, in order."""
    if isinstance(result, (torch.nn.utils.rnn.PackedSequence, rnn.PackedSequence)):
        return [result.data]
    if isinstance(result, (list, tuple)):
        return [x for part in result for x in flat(part)]
    return [result]


def value(x):
    return x.detach().cpu().numpy()


def compare(theirs, ours, inputs, results):
    """Results, then the gradients of inputs and parameters for a random gradient of all results."""
    left, right = (flat(r) for r in results)
    assert len(left) == len(right)
    losses = [0, 0]
    for i, (a, b) in enumerate(zip(left, right)):
        assert tuple(a.shape) == tuple(b.shape)
        np.testing.assert_allclose(value(b), value(a), rtol=1e-11, atol=1e-13)
        weight = numbers(*a.shape, seed=i + 10)
        losses[0] = losses[0] + (a * torch.tensor(weight)).sum()
        losses[1] = losses[1] + (b * norch.tensor(weight)).sum()
    for loss in losses:
        loss.backward()
    pairs = [*zip(*inputs), *((p, dict(ours.named_parameters())[n]) for n, p in theirs.named_parameters())]
    for a, b in pairs:
        np.testing.assert_allclose(value(b.grad), value(a.grad), rtol=1e-10, atol=1e-12)
