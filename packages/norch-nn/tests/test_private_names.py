"""Functions that begin with an underscore in PyTorch, and that published programs call all the same."""

import math

import pytest

import norch
import norch.nn.functional as F
from norch import nn


def test_parts_of_attention_by_private_names():
    norch.manual_seed(0)
    attention = nn.MultiheadAttention(4, 2)
    query, key = norch.randn(3, 2, 4), norch.randn(5, 2, 4)
    weight, bias = attention.in_proj_weight, attention.in_proj_bias
    rows = zip(weight.split(4), bias.split(4), strict=True)
    expected = [F.linear(x, w, b) for x, (w, b) in zip((query, key, key), rows, strict=True)]
    for found in (
        F._in_projection_packed(query, key, key, weight, bias),
        F._in_projection(query, key, key, *weight.split(4), *bias.split(4)),
    ):
        assert all(norch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert len(F._in_projection_packed(query, query, query, weight)) == 3
    mask = F._canonical_mask(norch.tensor([True, False]), "mask", F._none_or_dtype(None), "other", norch.float32)
    assert mask.tolist() == [-math.inf, 0]
    assert F._mha_shape_check(query, key, key, None, None, 2)
    assert not F._mha_shape_check(query[:, 0], key[:, 0], key[:, 0], None, None, 2)
    with pytest.raises(RuntimeError, match="all have 2 or all have 3 dims"):
        F._mha_shape_check(query, key[:, 0], key, None, None, 2)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        F._verify_batch_size([1, 3, 1])


def test_text_of_parts_is_indented():
    from norch.nn.modules.module import _addindent

    assert _addindent("a\nb\nc", 2) == "a\n  b\n  c"


def test_names_of_parts_that_copies_of_pytorchs_files_import():
    from norch import functional
    from norch.nn.modules.conv import Tensor, _pair, _size_2_t
    from norch.optim.optimizer import _default_to_fused_or_foreach

    assert functional.F is F
    assert F._Reduction.get_enum("mean") == 1
    assert (_pair(3), Tensor) == ((3, 3), norch.Tensor)
    assert _size_2_t is not None
    assert _default_to_fused_or_foreach([], False) == (False, False)
    from norch.optim.swa_utils import _group_tensors_by_device_and_dtype

    ((found, places),) = _group_tensors_by_device_and_dtype(
        [[norch.ones(1), norch.ones(2)]], with_indices=True
    ).values()
    assert ([len(x) for x in found[0]], list(places)) == ([1, 2], [0, 1])


def test_checkpoints_by_their_functions_name():
    from norch.utils.checkpoint import CheckpointFunction

    calls = []
    weight = norch.tensor([2.0], requires_grad=True)

    def part(x):
        calls.append(1)
        return x * weight * x

    CheckpointFunction.apply(part, True, norch.tensor([3.0], requires_grad=True)).sum().backward()
    assert (weight.grad.tolist(), len(calls)) == ([9.0], 2)
