"""Each loss with its options, its arguments and a formula for NumPy, written apart from norch's."""

import math
from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    name: str  # of the function
    module: str
    arrays: tuple[Any, ...]
    formula: Any  # of the arrays and the options: the losses, before they are reduced; or (losses, weights of the mean)
    options: tuple[dict[str, Any], ...] = ({},)
    differentiable: tuple[int, ...] = (0,)
    second: bool = True  # whether PyTorch has second derivatives
    elementwise: bool = True


DRAW = np.random.default_rng(7)


def draw(*shape, low=-2.0, high=2.0):
    return DRAW.uniform(low, high, shape)


def signs(*shape):
    return DRAW.choice([-1.0, 1.0], shape)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def huber(a, b, delta=1.0):
    d = np.abs(a - b)
    return np.where(d < delta, d * d / 2, delta * (d - delta / 2))


def bce(p, t, weight=1.0):
    return -weight * (t * np.log(p) + (1 - t) * np.log(1 - p))


def bce_logits(x, t, weight=1.0, pos_weight=1.0):
    return -weight * (pos_weight * t * np.log(sigmoid(x)) + (1 - t) * np.log(sigmoid(-x)))


def poisson(x, t, log_input=True, full=False, eps=1e-8):
    out = np.exp(x) - t * x if log_input else x - t * np.log(x + eps)
    return out + np.where(t > 1, t * np.log(t) - t + np.log(2 * math.pi * t) / 2, 0) if full else out


def gaussian(x, t, var, full=False, eps=1e-6):
    if var.ndim < x.ndim:
        var = var[..., None]
    held = np.maximum(var, eps)
    return (np.log(held) + (x - t) ** 2 / held) / 2 + (math.log(2 * math.pi) / 2 if full else 0)


def cosine(a, b, t, margin=0.0):
    cos = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    return np.where(t == 1, 1 - cos, np.maximum(cos - margin, 0))


def distance(a, b, p=2.0, eps=1e-6):
    return (np.abs(a - b + eps) ** p).sum(-1) ** (1 / p)


def triplet(a, b, c, margin=1.0, swap=False, **how):
    far = distance(a, c, **how)
    far = np.minimum(far, distance(b, c, **how)) if swap else far
    return np.maximum(distance(a, b, **how) - far + margin, 0)


def multi_margin(x, t, p=1, margin=1.0, weight=None):
    losses = np.zeros(len(x))
    for n, row in enumerate(x):
        factor = 1.0 if weight is None else weight[t[n]]
        losses[n] = sum(
            factor * max(0, margin - row[t[n]] + v) ** p for i, v in enumerate(row) if i != t[n]
        ) / len(row)  # fmt: skip
    return losses


def multilabel_margin(x, t):
    losses = np.zeros(len(x))
    for n, row in enumerate(x):
        wanted = t[n].tolist()
        wanted = wanted[: wanted.index(-1)] if -1 in wanted else wanted
        others = [i for i in range(len(row)) if i not in wanted]
        losses[n] = sum(max(0, 1 - row[j] + row[i]) for j in wanted for i in others) / len(row)
    return losses


def nll(logs, t, weight=None, ignore_index=-100):
    """One target at a time. The mean is over the weights of the targets."""
    losses, counts = np.zeros(t.shape), np.zeros(t.shape)
    for at in np.ndindex(t.shape):
        if t[at] != ignore_index:
            place = (t[at], *at) if logs.ndim == 1 else (at[0], t[at], *at[1:])
            counts[at] = 1.0 if weight is None else weight[t[at]]
            losses[at] = -logs[place] * counts[at]
    return losses, counts


def log_softmax(x):
    dim = 1 if x.ndim > 1 else 0
    return x - np.log(np.exp(x).sum(dim, keepdims=True))


def cross_entropy(x, t, weight=None, ignore_index=-100, label_smoothing=0.0):
    dim, logs = 1 if x.ndim > 1 else 0, log_softmax(x)
    classes = x.shape[dim]
    scaled = logs * (1 if weight is None else weight.reshape(-1, *[1] * (x.ndim - dim - 1)))
    if t.dtype.kind == "f":
        return -(scaled * (t * (1 - label_smoothing) + label_smoothing / classes)).sum(dim)
    losses, counts = nll(logs, t, weight, ignore_index)
    spread = -scaled.sum(dim) * (t != ignore_index) / classes
    return losses * (1 - label_smoothing) + label_smoothing * spread, counts


def grid(**choices):
    """Every combination; a value None leaves the option out."""
    found = [{}]
    for name, values in choices.items():
        found = [one | ({} if v is None else {name: v}) for one in found for v in values]
    return tuple(found)


PAIR = (draw(3, 4), draw(3, 4))
CHANCES = (draw(3, 4, low=0.1, high=0.9), draw(3, 4, low=0.1, high=0.9))
WEIGHT = draw(4, low=0.5, high=1.5)
CLASSES = grid(weight=[None, WEIGHT], ignore_index=[None, 1])
SCORES = {(): draw(4), (5,): draw(5, 4), (2, 3): draw(2, 4, 3), (2, 3, 2): draw(2, 4, 3, 2)}

CASES = [
    Case("mse_loss", "MSELoss", PAIR, lambda a, b: (a - b) ** 2, differentiable=(0, 1)),
    Case("l1_loss", "L1Loss", PAIR, lambda a, b: np.abs(a - b), differentiable=(0, 1)),
    Case("smooth_l1_loss", "SmoothL1Loss", PAIR,
         lambda a, b, beta=1.0: huber(a, b, beta) / beta if beta else np.abs(a - b),
         grid(beta=[None, 0.4, 0.0]), (0, 1)),
    Case("huber_loss", "HuberLoss", PAIR, huber, grid(delta=[None, 0.4]), (0, 1)),
    Case("binary_cross_entropy", "BCELoss", CHANCES, bce, grid(weight=[None, WEIGHT]), (0, 1)),
    Case("binary_cross_entropy_with_logits", "BCEWithLogitsLoss", (PAIR[0], CHANCES[0]), bce_logits,
         grid(weight=[None, WEIGHT], pos_weight=[None, WEIGHT + 1]), (0, 1)),
    Case("kl_div", "KLDivLoss", (PAIR[0], CHANCES[0]),
         lambda x, t, log_target=False: np.exp(t) * (t - x) if log_target else t * (np.log(t) - x),
         grid(log_target=[None, True]), (0, 1)),
    Case("poisson_nll_loss", "PoissonNLLLoss", (draw(3, 4, low=0.5), draw(3, 4, low=0.2, high=4)), poisson,
         grid(log_input=[None, False], full=[None, True], eps=[None, 1e-3]), (0, 1)),
    *[
        Case("gaussian_nll_loss", "GaussianNLLLoss", (*PAIR, var), gaussian, grid(full=[None, True], eps=[None, 0.7]),
             (0, 1, 2))
        for var in (draw(3, 4, low=0.2), draw(3, 1, low=0.2), draw(3, low=0.2), draw(1, 4, low=0.2))
    ],
    Case("hinge_embedding_loss", "HingeEmbeddingLoss", (PAIR[0], signs(3, 4)),
         lambda x, t, margin=1.0: np.where(t == 1, x, np.maximum(margin - x, 0)), grid(margin=[None, 0.3])),
    Case("soft_margin_loss", "SoftMarginLoss", (PAIR[0], signs(3, 4)), lambda x, t: np.log1p(np.exp(-t * x))),
    Case("margin_ranking_loss", "MarginRankingLoss", (*PAIR, signs(3, 4)),
         lambda a, b, t, margin=0.0: np.maximum(margin - t * (a - b), 0), grid(margin=[None, 0.5]), (0, 1)),
    Case("cosine_embedding_loss", "CosineEmbeddingLoss", (*PAIR, signs(3)), cosine, grid(margin=[None, 0.2]), (0, 1)),
    *[
        Case("cosine_embedding_loss", "CosineEmbeddingLoss", (*rows, label), cosine, differentiable=(0, 1))
        for rows, label in (((draw(4), draw(4)), np.array(1)), (PAIR, np.ones(1)), (PAIR, -np.ones(1)))
    ],
    Case("triplet_margin_loss", "TripletMarginLoss", (draw(5, 4), draw(5, 4), draw(5, 4)), triplet,
         grid(margin=[None, 0.3], p=[None, 1.0, 3.0], swap=[None, True], eps=[None, 1e-3]), (0, 1, 2)),
    Case("triplet_margin_with_distance_loss", "TripletMarginWithDistanceLoss", (draw(5, 4), draw(5, 4), draw(5, 4)),
         triplet, grid(margin=[None, 0.3], swap=[None, True]), (0, 1, 2)),
    Case("multi_margin_loss", "MultiMarginLoss", (draw(3, 4), np.array([2, 0, 3])), multi_margin,
         grid(p=[None, 2], margin=[None, 0.4], weight=[None, WEIGHT]), second=False, elementwise=False),
    Case("multilabel_margin_loss", "MultiLabelMarginLoss",
         (draw(3, 4), np.array([[3, 0, -1, 1], [0, 1, 2, 3], [-1] * 4])),
         multilabel_margin, second=False, elementwise=False),
    Case("multilabel_soft_margin_loss", "MultiLabelSoftMarginLoss",
         (PAIR[0], DRAW.integers(0, 2, (3, 4)).astype(float)),
         lambda x, t, weight=1.0: bce_logits(x, t, weight).mean(-1), grid(weight=[None, WEIGHT])),
    *[
        Case("nll_loss", "NLLLoss", (scores, DRAW.integers(0, 4, shape)), nll, CLASSES, elementwise=False)
        for shape, scores in SCORES.items()
    ],
    *[
        Case("cross_entropy", "CrossEntropyLoss", (scores, DRAW.integers(0, 4, shape)), cross_entropy,
             tuple(a | b for a in CLASSES for b in grid(label_smoothing=[None, 0.2])), elementwise=False)
        for shape, scores in SCORES.items()
    ],
    *[
        Case("cross_entropy", "CrossEntropyLoss", (scores, np.exp(log_softmax(draw(*scores.shape)))), cross_entropy,
             grid(weight=[None, WEIGHT], label_smoothing=[None, 0.2]), (0, 1), elementwise=False)
        for scores in SCORES.values()
    ],
]  # fmt: skip


def ids(case):
    return case.name + "".join(str(a.shape).replace(" ", "") for a in case.arrays)
