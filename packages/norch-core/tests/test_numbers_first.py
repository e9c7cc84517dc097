"""Numbers before tensors, the order of PyTorch's first versions, which old programs have."""

from __future__ import annotations

import pytest

import norch

X, A, B = norch.arange(4.0), norch.full((4,), 2.0), norch.arange(1.0, 5.0)
M, V = norch.arange(4.0).reshape(2, 2), norch.arange(1.0, 3.0)

CALLS = {
    "X.add(3, A)": "X + 3 * A", "X.sub(3, A)": "X - 3 * A", "X.subtract(3, A)": "X - 3 * A",
    "norch.add(X, 3, A)": "X + 3 * A", "norch.sub(X, 3, A)": "X - 3 * A", "X.clone().add_(3, A)": "X + 3 * A",
    "X.clone().sub_(3, A)": "X - 3 * A", "norch.add(X, 3, A, out=norch.empty(4))": "X + 3 * A",
    "norch.addcmul(X, 0.5, A, B)": "X + 0.5 * A * B", "X.addcmul(0.5, A, B)": "X + 0.5 * A * B",
    "X.clone().addcmul_(0.5, A, B)": "X + 0.5 * A * B", "X.clone().addcdiv_(-0.5, A, B)": "X - 0.5 * A / B",
    "norch.addcdiv(X, 0.5, A, B)": "X + 0.5 * A / B", "norch.addmm(0.5, M, 2, M, M)": "0.5 * M + 2 * M @ M",
    "norch.addmm(0.5, M, M, M)": "0.5 * M + M @ M", "M.clone().addmm_(0.5, 2, M, M)": "0.5 * M + 2 * M @ M",
    "norch.addmv(0.5, V, 2, M, V)": "0.5 * V + 2 * M @ V", "V.clone().addmv_(2, M, V)": "2 * V + M @ V",
    "norch.addr(0.5, M, 2, V, V)": "0.5 * M + 2 * norch.outer(V, V)",
    "norch.baddbmm(0.5, M[None], 2, M[None], M[None])": "(0.5 * M + 2 * M @ M)[None]",
}  # fmt: skip


@pytest.mark.parametrize(("call", "meaning"), CALLS.items())
def test_numbers_are_taken_by_name(call, meaning):
    names = {"norch": norch, "X": X, "A": A, "B": B, "M": M, "V": V}
    with pytest.warns(UserWarning, match="has deprecated numbers before tensors"):
        found = eval(call, names)
    assert norch.allclose(found, eval(meaning, names))


def test_what_is_no_such_order_is_refused():
    for wrong in (
        lambda: norch.add(X, A, 3),
        lambda: X.add(A, 3),
        lambda: X.sub(A, A, A),
        lambda: X.add(3, A, alpha=2),
        lambda: X.clone().add_(3, A, A),
        lambda: X.addcmul(0.5, A, B, value=2),
        lambda: norch.mul(X, 2, A),
    ):
        with pytest.raises(TypeError):
            wrong()
