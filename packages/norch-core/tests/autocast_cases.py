"""What autocast makes of dtypes, by expression: of float32 operands and of 16-bit ones, on the CPU and elsewhere.

An entry is the dtypes of the results, "l" for the lower one and "f" for float32: "lf ff" is, on the CPU, the lower one
of float32 operands and float32 of 16-bit ones, and float32 of both on other devices. `T` is norch or torch, `F` where
its functions of layers are, `x` makes a tensor of the dtype, `full` one of float32.
"""

from __future__ import annotations

CASES = {
    "ll ll": """
        T.mm(x(4, 4), x(4, 4))
        T.matmul(x(4, 4), x(4, 4))
        T.matmul(x(4, 4), full(4, 4))
        x(4, 4) @ full(4, 4)
        x(4, 4).matmul(x(4))
        T.bmm(x(2, 4, 4), x(2, 4, 4))
        T.inner(x(4, 4), x(4, 4))
        T.addmm(full(4, 4), x(4, 4), x(4, 4))
        T.addbmm(x(4, 4), x(2, 4, 4), x(2, 4, 4))
        T.baddbmm(x(2, 4, 4), x(2, 4, 4), full(2, 4, 4))
        T.linalg.multi_dot([x(4, 4), x(4, 4), x(4, 4)])
        T.linalg.vecdot(x(4, 4), x(4, 4))
        T.matrix_power(x(4, 4), 2)
        T.einsum("ij,jk->ik", x(4, 4), full(4, 4))
        F.linear(x(4, 4), full(4, 4), full(4))
        F.conv1d(x(2, 3, 9), full(4, 3, 3))
        F.conv2d(x(2, 3, 8, 8), full(5, 3, 3, 3), full(5))
        F.conv3d(x(1, 2, 6, 6, 6), full(3, 2, 3, 3, 3))
        F.conv_transpose1d(x(2, 3, 9), full(3, 2, 3))
        F.conv_transpose2d(x(2, 3, 8, 8), full(3, 2, 3, 3))
        F.conv_transpose3d(x(1, 2, 6, 6, 6), full(2, 2, 3, 3, 3))
        F.prelu(x(4, 4), full(4))
        F.scaled_dot_product_attention(x(2, 4, 4), x(2, 4, 4), full(2, 4, 4), full(4, 4))
    """,
    "fl ll": """
        T.mv(x(4, 4), x(4))
        T.addmv(x(4), x(4, 4), x(4))
        T.addr(x(4, 4), x(4), x(4))
    """,
    "ll fl": "T.tensordot(x(4, 4), x(4, 4), 1)",
    "fl ff": """
        T.acos(x(4))
        T.asin(x(4))
        T.cosh(x(4))
        T.erfinv(x(4))
        T.exp(x(4))
        x(4).exp()
        T.expm1(x(4))
        T.log(x(4))
        T.log10(x(4))
        T.log2(x(4))
        T.log1p(x(4))
        T.reciprocal(x(4))
        T.rsqrt(x(4))
        T.sinh(x(4))
        T.tan(x(4))
        T.pow(x(4), 2)
        x(4) ** 2
        2.0 ** x(4)
        x(4) ** x(4)
        F.softplus(x(4))
        F.layer_norm(x(4, 4), (4,), full(4), full(4))
        F.rms_norm(x(4, 4), (4,))
        F.group_norm(x(2, 3, 8, 8), 3)
        F.normalize(x(4, 4))
        T.norm(x(4, 4))
        x(4, 4).norm(2, 0)
        T.linalg.norm(x(4, 4))
        T.linalg.vector_norm(x(4, 4))
        T.linalg.matrix_norm(x(4, 4))
        F.cosine_similarity(x(4, 4), x(4, 4))
        T.dist(x(4, 4), x(4, 4))
        T.renorm(x(4, 4), 2, 0, 1.0)
        T.logsumexp(x(4, 4), 0)
        T.softmax(x(4, 4), 0)
        x(4, 4).softmax(0)
        F.log_softmax(x(4, 4), 0)
        T.cumprod(x(4, 4), 0)
        T.cumsum(x(4, 4), 0)
        T.sum(x(4, 4))
        x(4, 4).sum(0)
    """,
    "ff ff": """
        T.prod(x(4, 4))
        x(4, 4).prod(0)
        T.cdist(x(4, 4), x(4, 4))
        F.mse_loss(x(4, 4), x(4, 4))
        F.mse_loss(x(4, 4), full(4, 4))
        F.l1_loss(x(4, 4), x(4, 4))
        F.smooth_l1_loss(x(4, 4), x(4, 4))
        F.huber_loss(x(4, 4), x(4, 4))
        F.nll_loss(x(4, 4), T.tensor([0, 1, 2, 3]))
        F.cross_entropy(x(4, 4), T.tensor([0, 1, 2, 3]))
        F.kl_div(x(4, 4), x(4, 4), reduction="sum")
        F.binary_cross_entropy_with_logits(x(4, 4), x(4, 4))
    """,
    "ff fl": """
        T.trace(x(4, 4))
        T.quantile(x(4), 0.5)
        T.linalg.inv(x(4, 4) + 4 * T.eye(4))
        T.linalg.solve(x(4, 4) + 4 * T.eye(4), x(4, 4))
        x(4, 4).pinverse()
        F.max_pool3d(x(1, 2, 6, 6, 6), 2)
        F.adaptive_avg_pool3d(x(1, 2, 6, 6, 6), 2)
    """,
    "fl fl": """
        x(4) + x(4)
        x(4) * 2
        T.sqrt(x(4))
        T.square(x(4))
        T.tanh(x(4))
        T.sigmoid(x(4))
        F.relu(x(4))
        F.gelu(x(4))
        F.silu(x(4))
        T.outer(x(4), x(4))
        T.kron(x(4, 4), x(4, 4))
        T.dot(x(4), x(4))
        T.mean(x(4, 4))
        T.var(x(4, 4))
        T.std(x(4, 4))
        T.amax(x(4, 4))
        T.cat([x(4), x(4)])
        T.addcmul(x(4), x(4), x(4))
        T.atan2(x(4), x(4))
        F.batch_norm(x(2, 3, 8, 8), T.zeros(3), T.ones(3), full(3), full(3), training=True)
        F.max_pool2d(x(2, 3, 8, 8), 2)
        F.avg_pool2d(x(2, 3, 8, 8), 2)
        F.embedding(T.tensor([0, 1]), x(4, 4))
        T.lerp(x(4), x(4), 0.5)
        x(4).exp_()
        x(4).pow_(2)
    """,
    "ff ff ": """
        x(4) + full(4)
        T.cat([x(4), full(4)])
        T.stack([x(4), full(4)])
        T.hstack([x(4), full(4)])
        T.addcmul(full(4), x(4), x(4))
        T.addcdiv(full(4), x(4), full(4))
        T.atan2(x(4), full(4))
        T.where(x(4) > 0.3, x(4), full(4))
        F.embedding(T.tensor([0, 1]), full(4, 4))
        T.zeros(3)
        full(4).add_(x(4))
    """,
}

PROMOTED_ELSEWHERE = """
    T.dot(x(4), full(4))
    T.vdot(x(4), full(4))
    T.cross(x(3, 3), full(3, 3))
    T.tensordot(x(4, 4), full(4, 4), 1)
    F.bilinear(x(4, 4), full(4, 4), full(3, 4, 4))
    full(4, 4).scatter_add(0, T.tensor([[0, 1, 2, 3]]), x(4, 4))
    T.index_put(full(4, 4), (T.tensor([0, 1]),), x(4))
"""
"""Of operands that differ, float32 on devices other than the CPU, where PyTorch refuses some of them."""


def cases() -> list[tuple[str, str]]:
    return [(line.strip(), results) for results, block in CASES.items() for line in block.strip().splitlines()]
