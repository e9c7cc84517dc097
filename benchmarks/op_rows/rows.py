"""Norms, softmax, activations and losses."""

from __future__ import annotations

from typing import Any

from .inputs import Op, sources


def rows(op: Op, lib: Any, device: str) -> None:
    normal, uniform, integers = sources(lib, device)
    functional = lib.nn.functional

    def images() -> Any:
        return normal(16, 64, 128, 128)

    op("rows of 24 compared", lambda x, y: x > y, lambda: normal(65536, 24), lambda: normal(24), grad=False)
    op("batch_norm train", lambda x: functional.batch_norm(x, None, None, training=True), images)
    op("instance_norm", lambda x: functional.instance_norm(x), images)
    op("group_norm 8", lambda x: functional.group_norm(x, 8), images)
    op(
        "layer_norm 768",
        lambda x, w, b: functional.layer_norm(x, (768,), w, b),
        lambda: normal(8192, 768),
        lambda: normal(768),
        lambda: normal(768),
    )
    op(
        "rms_norm 1024",
        lambda x, w: functional.rms_norm(x, (1024,), w),
        lambda: normal(8192, 1024),
        lambda: normal(1024),
    )
    op("local_response_norm", lambda x: functional.local_response_norm(x, 5), images)
    op("normalize", lambda x: functional.normalize(x, dim=-1), lambda: normal(65536, 128))
    op("normalize dim 1 img", lambda x: functional.normalize(x, dim=1), images)
    op(
        "cosine_similarity",
        lambda a, b: functional.cosine_similarity(a, b),
        lambda: normal(65536, 128),
        lambda: normal(65536, 128),
    )
    op(
        "cosine_similarity all",
        lambda a, b: functional.cosine_similarity(a, b, dim=-1),
        lambda: normal(512, 1, 128),
        lambda: normal(1, 512, 128),
    )
    op(
        "pairwise_distance",
        lambda a, b: functional.pairwise_distance(a, b),
        lambda: normal(65536, 128),
        lambda: normal(65536, 128),
    )
    op("cdist 2048x2048x64", lambda a, b: lib.cdist(a, b), lambda: normal(2048, 64), lambda: normal(2048, 64))
    op("cdist 1", lambda a, b: lib.cdist(a, b, p=1), lambda: normal(1024, 64), lambda: normal(1024, 64))
    op("cdist 20x3 batch", lambda a, b: lib.cdist(a, b), lambda: normal(64, 200, 3), lambda: normal(64, 200, 3))
    op("pdist", lambda a: functional.pdist(a), lambda: normal(1024, 64))
    op("dropout", lambda x: functional.dropout(x, 0.1), lambda: normal(8192, 1024))
    op("dropout2d", lambda x: functional.dropout2d(x, 0.1), images)
    op("gumbel_softmax", lambda x: functional.gumbel_softmax(x), lambda: normal(8192, 256))
    for n in (
        "relu",
        "gelu",
        "silu",
        "mish",
        "softplus",
        "elu",
        "selu",
        "leaky_relu",
        "hardswish",
        "logsigmoid",
        "glu",
        "tanhshrink",
        "softsign",
        "hardtanh",
        "relu6",
        "celu",
    ):
        op(n, getattr(functional, n), lambda: normal(8192, 1024))
    op("prelu", lambda x, w: functional.prelu(x, w), images, lambda: normal(64))
    op("softmax last", lambda x: x.softmax(-1), lambda: normal(8192, 1024))
    op("softmax dim1 img", lambda x: x.softmax(1), lambda: normal(16, 21, 128, 128))
    op("softmax small rows", lambda x: x.softmax(-1), lambda: normal(262144, 10))
    op("log_softmax 32000", lambda x: x.log_softmax(-1), lambda: normal(1024, 32000))
    op(
        "cross_entropy 32000",
        lambda x, t: functional.cross_entropy(x, t),
        lambda: normal(2048, 32000),
        lambda: integers(32000, 2048),
    )
    op(
        "cross_entropy seg",
        lambda x, t: functional.cross_entropy(x, t, ignore_index=0),
        lambda: normal(16, 21, 128, 128),
        lambda: integers(21, 16, 128, 128),
    )
    op(
        "cross_entropy smoothing weights",
        lambda x, t, w: functional.cross_entropy(x, t, w.detach(), label_smoothing=0.1),
        lambda: normal(4096, 1000),
        lambda: integers(1000, 4096),
        lambda: uniform(1000),
    )
    op(
        "cross_entropy probs",
        lambda x, t: functional.cross_entropy(x, t.detach()),
        lambda: normal(4096, 1000),
        lambda: normal(4096, 1000).softmax(-1),
    )
    op(
        "bce_with_logits",
        lambda x, t: functional.binary_cross_entropy_with_logits(x, t.detach()),
        lambda: normal(4096, 1000),
        lambda: uniform(4096, 1000),
    )
    op(
        "bce",
        lambda x, t: functional.binary_cross_entropy(x, t.detach()),
        lambda: uniform(4096, 1000),
        lambda: uniform(4096, 1000),
    )
    op("mse", lambda x, t: functional.mse_loss(x, t.detach()), lambda: normal(4096, 1000), lambda: normal(4096, 1000))
    op(
        "smooth_l1",
        lambda x, t: functional.smooth_l1_loss(x, t.detach()),
        lambda: normal(4096, 1000),
        lambda: normal(4096, 1000),
    )
    op(
        "huber",
        lambda x, t: functional.huber_loss(x, t.detach()),
        lambda: normal(4096, 1000),
        lambda: normal(4096, 1000),
    )
    op(
        "kl_div",
        lambda x, t: functional.kl_div(x, t.detach(), reduction="batchmean"),
        lambda: normal(4096, 1000).log_softmax(-1),
        lambda: normal(4096, 1000).softmax(-1),
    )
    op(
        "nll_loss",
        lambda x, t: functional.nll_loss(x, t),
        lambda: normal(8192, 1000).log_softmax(-1),
        lambda: integers(1000, 8192),
    )
    op(
        "triplet",
        lambda a, p, n: functional.triplet_margin_loss(a, p, n),
        lambda: normal(8192, 256),
        lambda: normal(8192, 256),
        lambda: normal(8192, 256),
    )
    op(
        "gaussian_nll",
        lambda a, p, n: functional.gaussian_nll_loss(a, p.detach(), n),
        lambda: normal(8192, 256),
        lambda: normal(8192, 256),
        lambda: uniform(8192, 256) + 0.1,
    )
    op(
        "multi_margin",
        lambda a, t: functional.multi_margin_loss(a, t),
        lambda: normal(8192, 256),
        lambda: integers(256, 8192),
    )
