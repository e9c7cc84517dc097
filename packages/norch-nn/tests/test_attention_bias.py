"""Masks of causal attention of fewer queries than keys."""

import norch
from norch.nn.attention.bias import CausalBias, CausalVariant, causal_lower_right, causal_upper_left


def test_masks():
    lower, upper = causal_lower_right(2, 4), causal_upper_left(2, 4)
    assert lower.int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert upper.int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0]]
    assert norch.equal(CausalBias(CausalVariant.LOWER_RIGHT, 2, 4), lower)
    q, k = norch.rand(1, 2, 2, 8), norch.rand(1, 2, 4, 8)
    attend = norch.nn.functional.scaled_dot_product_attention
    norch.testing.assert_close(attend(q, k, k, attn_mask=upper), attend(q, k, k, is_causal=True))
    last = attend(q[:, :, 1:], k, k)
    norch.testing.assert_close(attend(q, k, k, attn_mask=lower)[:, :, 1:], last)
