"""Programs that train small models: random layers, a loss, an optimiser, a few steps."""

from __future__ import annotations

from math import prod
from random import Random

Shape = tuple[int, ...]

ACTIVATIONS = ("nn.ReLU()", "nn.Tanh()", "nn.GELU()", "nn.SiLU()", "nn.Sigmoid()", "nn.LeakyReLU(0.1)", "nn.ELU()",
               "nn.Softplus()", "nn.Hardswish()", "nn.Mish()", "nn.GELU('tanh')", "nn.ReLU6()", "nn.PReLU()",
               "nn.Softsign()", "nn.CELU()", "nn.SELU()", "nn.LogSigmoid()", "nn.Hardtanh()")  # fmt: skip

OPTIMIZERS = (
    "SGD(P, lr=0.1)", "SGD(P, lr=0.1, momentum=0.9)", "SGD(P, lr=0.1, momentum=0.9, nesterov=True)", "ASGD(P)",
    "SGD(P, lr=0.1, weight_decay=0.1)", "SGD(P, lr=0.1, maximize=True)", "Adam(P, lr=0.01, eps=0.1)",
    "AdamW(P, lr=0.01, eps=0.1)", "RMSprop(P, lr=0.01, eps=0.1)", "Adagrad(P, lr=0.1, eps=0.1)",
    "Adamax(P, eps=0.1)", "Adam(P, lr=0.01, amsgrad=True, eps=0.1)", "Adadelta(P, eps=0.1)",
    "NAdam(P, eps=0.1)", "RAdam(P, eps=0.1)", "Adam(P, lr=0.01, weight_decay=0.1, maximize=True, eps=0.1)",
    "AdamW(P, lr=0.01, amsgrad=True, betas=(0.5, 0.9), eps=0.1)", "Adagrad(P, lr_decay=0.1, weight_decay=0.1, eps=0.1)",
    "RMSprop(P, momentum=0.5, centered=True, eps=0.1)", "SGD(P, lr=0.1, momentum=0.9, dampening=0.5)",
    "Adadelta(P, rho=0.5, weight_decay=0.1, eps=0.1)", "NAdam(P, weight_decay=0.1, eps=0.1)",
)  # fmt: skip
"""With a large eps: what rounding leaves of a gradient of 0, as of a bias before a norm, is else a whole step."""

SCHEDULERS = ("StepLR(o, 1, 0.5)", "ExponentialLR(o, 0.9)", "CosineAnnealingLR(o, 3)", "LinearLR(o)",
              "LambdaLR(o, lambda n: 0.9 ** n)", "OneCycleLR(o, 0.1, total_steps=4)", "PolynomialLR(o, 3)",
              "MultiStepLR(o, [1, 2])", "ConstantLR(o, 0.5, 2)", "MultiplicativeLR(o, lambda n: 0.9)",
              "CosineAnnealingWarmRestarts(o, 2)", "CyclicLR(o, 0.01, 0.1, step_size_up=2, cycle_momentum=False)",
              "SequentialLR(o, [optim.lr_scheduler.ConstantLR(o, 0.5, 1), optim.lr_scheduler.StepLR(o, 1)], [1])",
              "ChainedScheduler([optim.lr_scheduler.StepLR(o, 1), optim.lr_scheduler.LinearLR(o)])")  # fmt: skip


def generate(r: Random) -> list[str]:
    """The lines of one training, of one to three steps."""
    kind = r.choice((vectors, vectors, images, images, sequences, tokens, recurrent))
    layers, shape, given = kind(r)
    dtype = r.choice(("float32", "float32", "float64"))
    lines = [f"m = filled(nn.Sequential({', '.join(layers)}).to(T.{dtype}), {r.randrange(1000)})"]
    if dtype == "float64":
        lines.append("m.double()")
    if r.random() < 0.2:
        lines.append("m.eval()")
    cast = f".to(T.{dtype})" if "int64" not in given else ""
    lines += [f"x = ({given}){cast}"]
    if not given.endswith("int64)") and r.random() < 0.5:
        lines.append("x.requires_grad_()")
    if r.random() < 0.15 and len(shape) == 4:
        lines.append("x = x.contiguous(memory_format=T.channels_last)")
    lines.append(f"_o = o = optim.{r.choice(OPTIMIZERS).replace('P', 'm.parameters()')}")
    if r.random() < 0.3:
        lines.append(f"_c = optim.lr_scheduler.{r.choice(SCHEDULERS)}")
    for _ in range(r.randint(1, 3)):
        lines.append("y = m(x)")
        lines.append(f"l = {loss(r)}")
        lines.append("o.zero_grad(); l.backward()")
        if r.random() < 0.2:
            clip = r.choice(
                ("nn.utils.clip_grad_norm_(m.parameters(), 0.5)", "nn.utils.clip_grad_value_(m.parameters(), 0.1)")
            )
            lines.append(f"n = {clip}")
        lines.append("o.step()")
        if any(line.startswith("_c") for line in lines):
            lines.append("_c.step(); lr = o.param_groups[0]['lr']")
    lines.append("p = dict(m.named_parameters()); b = dict(m.named_buffers())")
    return lines


def values(shape: Shape, r: Random) -> str:
    """Numbers that differ, between -2 and 2."""
    return f"((T.arange({prod(shape)}) * {r.choice((37, 101, 7919))} % 97 - 48) / 32).reshape({shape})"


def loss(r: Random) -> str:
    return r.choice(
        ("(y * y).mean()", "F.mse_loss(y, T.zeros_like(y) + 0.5)", "F.smooth_l1_loss(y, T.ones_like(y))",
         "F.cross_entropy(y.flatten(1), T.zeros(y.shape[0], dtype=T.int64))", "y.abs().sum()",
         "-F.log_softmax(y.flatten(1), 1)[:, 0].mean()", "F.huber_loss(y, T.zeros_like(y))",
         "F.binary_cross_entropy_with_logits(y, T.ones_like(y))", "y.logsumexp(-1).mean()", "y.norm()")
    )  # fmt: skip


def vectors(r: Random) -> tuple[list[str], Shape, str]:
    n, b = r.choice((1, 3, 4, 8)), r.choice((1, 2, 5))
    first, layers = n, []
    for _ in range(r.randint(1, 4)):
        kind = r.randrange(6)
        if kind <= 2:
            to = r.choice((1, 2, 4, 6))
            layers.append(f"nn.Linear({n}, {to}, bias={r.choice((True, True, False))})")
            n = to
        elif kind == 3:
            layers.append(r.choice(ACTIVATIONS))
        elif kind == 4:
            layers.append(
                r.choice(
                    (f"nn.LayerNorm({n})", f"nn.RMSNorm({n})", f"nn.BatchNorm1d({n})" if b > 1 else "nn.Identity()")
                )
            )
        else:
            layers.append(
                r.choice(("nn.Softmax(-1)", "nn.Dropout(0.0)", "nn.Flatten()", "nn.Identity()", "nn.LogSoftmax(-1)"))
            )
    return [*layers, f"nn.Linear({n}, 3)"], (b, first), values((b, first), r)


def images(r: Random) -> tuple[list[str], Shape, str]:
    c, size, b = r.choice((1, 2, 3)), r.choice((5, 6, 8, 9)), r.choice((1, 2))
    shape = (b, c, size, size + r.choice((0, 0, 1)))
    layers = []
    for _ in range(r.randint(1, 4)):
        kind = r.randrange(8)
        if kind <= 2:
            to, k = r.choice((2, 4)), r.choice((1, 2, 3))
            groups = r.choice((1, 1, c if to % c == 0 else 1))
            mode = r.choice(("zeros", "zeros", "reflect", "replicate"))
            options = f"padding={r.choice((0, 1, 1))}, stride={r.choice((1, 1, 2))}, bias={r.choice((True, False))}"
            layers.append(f"nn.Conv2d({c}, {to}, {k}, groups={groups}, padding_mode={mode!r}, {options})")
            c = to
        elif kind == 3:
            layers.append(r.choice(ACTIVATIONS))
        elif kind == 4:
            layers.append(
                r.choice((f"nn.BatchNorm2d({c})", f"nn.GroupNorm(1, {c})", f"nn.InstanceNorm2d({c}, affine=True)"))
            )
        elif kind == 5:
            layers.append(
                r.choice(
                    ("nn.MaxPool2d(2)", "nn.AvgPool2d(2, padding=1)", "nn.MaxPool2d(3, 1, 1)", "nn.LPPool2d(2, 2)")
                )
            )
        elif kind == 6:
            layers.append(
                r.choice(
                    ("nn.Upsample(scale_factor=2)", "nn.ZeroPad2d(1)", "nn.ReflectionPad2d(1)", "nn.Dropout2d(0.0)")
                )
            )
        else:
            to = r.choice((1, 2, 4))
            layers.append(f"nn.ConvTranspose2d({c}, {to}, {r.choice((1, 2, 3))}, stride={r.choice((1, 2))})")
            c = to
    pool = r.choice(("nn.AdaptiveAvgPool2d(1)", "nn.AdaptiveMaxPool2d(1)"))
    return [*layers, pool, "nn.Flatten()", f"nn.Linear({c}, 3)"], shape, values(shape, r)


def sequences(r: Random) -> tuple[list[str], Shape, str]:
    """Transformers, or convolutions in one dim."""
    b, t, d = r.choice((1, 2)), r.choice((1, 3, 5)), 4
    if r.random() < 0.5:
        k = r.choice((1, 2, 3))
        layers = [
            f"nn.Conv1d({t}, 4, {k}, padding=1)",
            r.choice(ACTIVATIONS),
            r.choice(("nn.MaxPool1d(2)", "nn.BatchNorm1d(4)")),
        ]
        return [*layers, "nn.AdaptiveAvgPool1d(2)", "nn.Flatten()", "nn.Linear(8, 3)"], (b, t, d), values((b, t, d), r)
    norm, act = r.choice((True, False)), r.choice(("'relu'", "'gelu'"))
    layer = f"nn.TransformerEncoderLayer({d}, 2, 6, 0.0, {act}, batch_first=True, norm_first={norm})"
    layers = [layer if r.random() < 0.7 else f"nn.TransformerEncoder({layer}, 2, enable_nested_tensor=False)"]
    return [*layers, f"nn.LayerNorm({d})"], (b, t, d), values((b, t, d), r)


def tokens(r: Random) -> tuple[list[str], Shape, str]:
    b, t, v = r.choice((1, 3)), r.choice((1, 4)), 7
    options = r.choice(("", ", padding_idx=0", ", max_norm=1.0"))
    given = f"(T.arange({b * t}) * 5 % {v}).reshape({(b, t)}).to(T.int64)"
    if r.random() < 0.3:
        return [f"nn.EmbeddingBag({v}, 4, mode={r.choice(('sum', 'mean', 'max'))!r})", "nn.Linear(4, 3)"], (b, t), given
    return (
        [f"nn.Embedding({v}, 4{options})", r.choice(ACTIVATIONS), "nn.Flatten()", f"nn.Linear({4 * t}, 3)"],
        (b, t),
        given,
    )


def recurrent(r: Random) -> tuple[list[str], Shape, str]:
    """One recurrent layer; its outputs are chosen by a module of its own, since Sequential passes the tuple on."""
    b, t, n = r.choice((1, 2)), r.choice((1, 3)), 3
    kind = r.choice(("RNN", "LSTM", "GRU"))
    options = (
        f"num_layers={r.choice((1, 2))}, bidirectional={r.choice((True, False))}, batch_first={r.choice((True, False))}"
    )
    layers = [f"nn.{kind}({n}, 4, {options})", "type('First', (nn.Module,), {'forward': lambda s, v: v[0]})()"]
    return layers, (b, t, n), values((b, t, n), r)
