"""Modules to compare with PyTorch's: how to make each, what to call it with, and what PyTorch gave.

What a case gives is put in few numbers: for every result and gradient its shape, its sum and its product with a fixed
wave. `python packages/norch-nn/tests/module_cases.py`, where PyTorch is installed, writes those of PyTorch into
module_expectations.json.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

EXPECTATIONS = Path(__file__).with_name("module_expectations.json")


class Case(NamedTuple):
    """A module's name, its arguments, and the shapes of its inputs; of integers where `below` says up to which."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    inputs: tuple[Any, ...] = ((2, 4),)
    below: int = 0
    mode: str = "train"
    call: dict[str, Any] = {}
    positive: bool = False

    @property
    def id(self) -> str:
        parts = [*map(repr, self.args), *(f"{k}={v!r}" for k, v in {**self.kwargs, **self.call}.items())]
        text = f"{self.name}({', '.join(parts)}) of {' '.join(map(str, self.inputs))}"
        return text if self.mode == "train" else f"{text} in {self.mode}"


def case(name: str, *args: Any, on: Any = (2, 4), **kwargs: Any) -> Case:
    inputs = on if on and isinstance(on[0], tuple) else (on,)
    return Case(name, args, kwargs, inputs)


IMAGE, SERIES, VOLUME = (2, 4, 5, 6), (2, 4, 7), (2, 4, 4, 5, 3)

SIMPLE = """ReLU ReLU6 LeakyReLU PReLU ELU SELU CELU GELU SiLU Mish Sigmoid Tanh Softplus Softsign Hardtanh Hardsigmoid
    Hardswish Hardshrink Softshrink Tanhshrink LogSigmoid""".split()
IN_PLACE = "ReLU ReLU6 LeakyReLU ELU SELU CELU SiLU Mish Hardtanh Hardsigmoid Hardswish".split()
ACTIVATIONS = [
    *[case(name, on=(3, 5)) for name in SIMPLE], *[case(name, inplace=True, on=(3, 5)) for name in IN_PLACE],
    case("LeakyReLU", 0.2), case("ELU", 0.5), case("CELU", 2.0), case("GELU", "tanh"), case("Softplus", 2, 1.5),
    case("PReLU", 4, 0.1, on=IMAGE), case("PReLU", 4, on=(3, 4)), case("Hardtanh", -0.5, 1.5),
    case("Hardshrink", 0.1), case("Softshrink", 1.0), case("Threshold", 0.1, 20), case("Threshold", 0.1, -2, True),
    case("RReLU")._replace(mode="eval"), case("Softmax", 1), case("Softmax", dim=-1, on=SERIES),
    case("LogSoftmax", 0), case("Softmin", dim=1), case("Softmax2d", on=IMAGE), case("GLU"), case("GLU", 1, on=IMAGE),
]  # fmt: skip

LINEAR = [
    case("Linear", 4, 3), case("Linear", 4, 3, bias=False, on=(2, 3, 4)), case("Identity", 54, unused=1),
    case("Bilinear", 4, 3, 5, on=((2, 4), (2, 3))), case("Bilinear", 4, 3, 5, bias=False, on=((2, 6, 4), (2, 6, 3))),
    case("Flatten", on=IMAGE), case("Flatten", 0, 1, on=IMAGE), case("Unflatten", 1, (2, 2), on=(3, 4)),
    case("Unflatten", -1, (-1, 2), on=(3, 4)), case("CosineSimilarity", on=((3, 4), (3, 4))),
    case("CosineSimilarity", 0, 1e-6, on=((3, 4), (3, 4))),
]  # fmt: skip

CONVOLUTION = [
    case("Conv1d", 4, 6, 3, on=SERIES), case("Conv1d", 4, 6, 3, 2, 1, 2, 2, False, on=SERIES),
    case("Conv1d", 4, 2, 2, padding="same", on=(4, 7)),
    case("Conv1d", 4, 4, 3, padding=2, padding_mode="circular", on=SERIES),
    case("Conv1d", 4, 4, 4, padding="same", padding_mode="reflect", on=SERIES), case("Conv2d", 4, 6, 3, on=IMAGE),
    case("Conv2d", 4, 6, (3, 2), (2, 1), (1, 0), (1, 2), 2, False, on=IMAGE),
    case("Conv2d", 4, 2, (2, 3), padding="same", dilation=2, on=IMAGE),
    case("Conv2d", 4, 2, 3, padding="valid", on=(4, 5, 6)),
    *[case("Conv2d", 4, 2, (3, 2), padding=(1, 2), padding_mode=mode, on=IMAGE)
      for mode in ("reflect", "replicate", "circular")],
    case("Conv2d", 4, 4, (2, 4), padding="same", padding_mode="replicate", on=IMAGE),
    case("Conv2d", 4, 8, 3, groups=4, on=IMAGE), case("ConvTranspose1d", 4, 6, 3, on=SERIES),
    case("ConvTranspose1d", 4, 6, 3, 2, 1, 1, 2, False, 2, on=SERIES),
    case("ConvTranspose1d", 4, 2, 3, stride=2, on=SERIES)._replace(call={"output_size": [16]}),
    case("ConvTranspose2d", 4, 6, 3, on=IMAGE),
    case("ConvTranspose2d", 4, 6, (3, 2), (2, 3), (1, 0), (1, 2), 2, True, (1, 2), on=IMAGE),
    case("ConvTranspose2d", 4, 3, 3, stride=2, padding=1, on=IMAGE)._replace(call={"output_size": [10, 12]}),
    case("ConvTranspose2d", 4, 3, 3, stride=3, on=IMAGE)._replace(call={"output_size": [2, 3, 17, 18]}),
    case("Unfold", (2, 3), 1, 1, 2, on=IMAGE), case("Unfold", 2, dilation=2, on=IMAGE),
    case("Fold", (5, 6), (2, 2), on=(2, 12, 20)), case("Fold", (5, 6), 3, 1, 1, 2, on=(2, 18, 9)),
]  # fmt: skip

POOLING = [
    case("MaxPool1d", 2, on=SERIES), case("MaxPool1d", 3, 2, 1, 2, on=SERIES),
    case("MaxPool1d", 2, ceil_mode=True, on=(4, 7)), case("MaxPool2d", 2, on=IMAGE),
    case("MaxPool2d", 3, 1, 1, 2, on=IMAGE),
    case("MaxPool2d", (3, 2), (2, 1), (1, 0), (1, 2), on=IMAGE), case("MaxPool2d", 2, return_indices=True, on=IMAGE),
    case("MaxPool2d", 3, 2, 1, ceil_mode=True, return_indices=True, on=IMAGE), case("AvgPool1d", 2, on=SERIES),
    case("AvgPool1d", 3, 2, 1, True, False, on=SERIES), case("AvgPool2d", 2, on=IMAGE),
    case("AvgPool2d", (3, 2), (2, 1), 1, ceil_mode=True, on=IMAGE),
    case("AvgPool2d", 3, 2, 1, count_include_pad=False, on=IMAGE), case("AvgPool2d", 2, divisor_override=3, on=IMAGE),
    case("AdaptiveAvgPool1d", 3, on=SERIES), case("AdaptiveAvgPool2d", 1, on=IMAGE),
    case("AdaptiveAvgPool2d", (3, None), on=IMAGE), case("AdaptiveMaxPool1d", 3, on=SERIES),
    case("AdaptiveMaxPool2d", (5, 2), on=IMAGE), case("AdaptiveMaxPool2d", (3, 4), return_indices=True, on=IMAGE),
    case("AdaptiveMaxPool2d", 7, on=IMAGE), case("LPPool1d", 2, 3, on=SERIES)._replace(positive=True),
    case("LPPool2d", 1.5, 2, 1, on=IMAGE)._replace(positive=True),
]  # fmt: skip

VOLUMES = [
    case("Conv3d", 4, 6, 3, on=VOLUME), case("Conv3d", 4, 6, 1, on=VOLUME), case("Conv3d", 4, 6, (1, 3, 2), on=VOLUME),
    case("Conv3d", 4, 6, (3, 2, 1), (2, 1, 2), (1, 0, 1), (1, 2, 1), 2, False, on=VOLUME),
    case("Conv3d", 4, 2, (2, 3, 3), padding="same", on=(4, 4, 5, 3)),
    case("Conv3d", 4, 2, 2, padding="valid", on=VOLUME), case("Conv3d", 4, 8, 3, 2, 1, groups=4, on=VOLUME),
    *[case("Conv3d", 4, 2, 3, padding=(2, 1, 1), padding_mode=mode, on=VOLUME)
      for mode in ("reflect", "replicate", "circular")],
    case("ConvTranspose3d", 4, 6, 3, on=VOLUME), case("ConvTranspose3d", 4, 6, 1, on=VOLUME),
    case("ConvTranspose3d", 4, 6, (3, 2, 2), (2, 3, 1), (1, 0, 1), (1, 2, 0), 2, True, (1, 2, 1), on=VOLUME),
    case("ConvTranspose3d", 4, 3, 3, stride=2, on=(4, 4, 5, 3))._replace(call={"output_size": [10, 12, 8]}),
    case("MaxPool3d", 2, on=VOLUME), case("MaxPool3d", 2, return_indices=True, on=VOLUME),
    case("MaxPool3d", (3, 2, 1), (1, 2, 1), (1, 0, 0), (1, 2, 1), on=VOLUME),
    case("MaxPool3d", 3, 2, 1, ceil_mode=True, return_indices=True, on=(4, 4, 5, 3)), case("AvgPool3d", 2, on=VOLUME),
    case("AvgPool3d", (3, 2, 1), (2, 1, 1), (1, 1, 0), ceil_mode=True, on=VOLUME),
    case("AvgPool3d", 3, 2, 1, count_include_pad=False, on=VOLUME), case("AvgPool3d", 2, divisor_override=3, on=VOLUME),
    case("AdaptiveAvgPool3d", 2, on=VOLUME), case("AdaptiveAvgPool3d", (3, None, 1), on=VOLUME),
    case("AdaptiveMaxPool3d", (3, 2, 1), on=VOLUME), case("AdaptiveMaxPool3d", 2, return_indices=True, on=VOLUME),
    case("LPPool3d", 2, 2, on=VOLUME)._replace(positive=True), case("BatchNorm3d", 4, on=VOLUME),
    case("InstanceNorm3d", 4, affine=True, on=VOLUME), case("Upsample", scale_factor=1.7, mode="trilinear", on=VOLUME),
    case("Upsample", (3, 7, 4), mode="trilinear", align_corners=True, on=VOLUME),
    case("Upsample", scale_factor=2, on=VOLUME), case("Upsample", (7, 3, 5), on=VOLUME),
    *[case(f"{kind}Pad3d", (1, 2, 0, 1, 2, 1), on=VOLUME)
      for kind in ("Zero", "Reflection", "Replication", "Circular")],
    case("ConstantPad3d", 1, 0.5, on=VOLUME),
]  # fmt: skip

NORMALIZATION = [
    case("BatchNorm1d", 4), case("BatchNorm1d", 4, on=SERIES), case("BatchNorm1d", 4, affine=False, on=SERIES),
    case("BatchNorm2d", 4, on=IMAGE), case("BatchNorm2d", 4, 1e-3, 0.3, bias=False, on=IMAGE),
    case("BatchNorm2d", 4, momentum=None, on=IMAGE), case("BatchNorm2d", 4, track_running_stats=False, on=IMAGE),
    case("BatchNorm2d", 4, on=IMAGE)._replace(mode="eval"),
    case("BatchNorm2d", 4, track_running_stats=False, on=IMAGE)._replace(mode="eval"),
    case("BatchNorm3d", 4, on=(2, 4, 2, 3, 2)), case("InstanceNorm1d", 4, on=SERIES),
    case("InstanceNorm2d", 4, affine=True, on=IMAGE), case("InstanceNorm2d", 4, track_running_stats=True, on=IMAGE),
    case("InstanceNorm2d", 4, on=(4, 5, 6)),
    case("InstanceNorm2d", 4, affine=True, track_running_stats=True, on=IMAGE)._replace(mode="eval"),
    case("LayerNorm", 4), case("LayerNorm", (5, 6), 1e-3, on=IMAGE), case("LayerNorm", [4], bias=False),
    case("LayerNorm", 4, elementwise_affine=False), case("RMSNorm", 4), case("RMSNorm", (5, 6), 1e-3, on=IMAGE),
    case("RMSNorm", 4, elementwise_affine=False), case("GroupNorm", 2, 4, on=IMAGE),
    case("GroupNorm", 4, 4, affine=False, on=SERIES), case("GroupNorm", 1, 4), case("LocalResponseNorm", 3, on=IMAGE),
    case("LocalResponseNorm", 2, 0.5, 0.5, 2.0, on=SERIES),
]  # fmt: skip

DROPOUT = [
    case(name, on=on)._replace(mode="eval") for name, on in (
        ("Dropout", (2, 4)), ("Dropout1d", SERIES), ("Dropout2d", IMAGE), ("Dropout3d", (1, 2, 2, 2, 2)),
        ("AlphaDropout", (2, 4)), ("FeatureAlphaDropout", IMAGE))
] + [case("Dropout", 0.0, True), case("Dropout2d", p=1.0, on=IMAGE), case("AlphaDropout", 0.0)]  # fmt: skip

EMBEDDING = [c._replace(below=9) for c in (
    case("Embedding", 9, 3, on=(2, 4)), case("Embedding", 9, 3, padding_idx=2, on=(20,)),
    case("Embedding", 9, 3, -1, on=(2, 2, 2)),
    case("Embedding", 9, 3, max_norm=1.0, on=(5,)), case("Embedding", 9, 3, max_norm=1.0, norm_type=1.0, on=(30,)),
    case("Embedding", 9, 3, scale_grad_by_freq=True, on=(30,)),
    *[case("EmbeddingBag", 9, 3, mode=mode, on=(4, 5)) for mode in ("sum", "mean", "max")],
    *[case("EmbeddingBag", 9, 3, mode=mode, padding_idx=2, on=(4, 5)) for mode in ("sum", "mean", "max")],
    case("EmbeddingBag", 9, 3, 0.5, on=(2, 3)),
)]  # fmt: skip

PIXELS = [
    case("Upsample", scale_factor=2, on=IMAGE), case("Upsample", size=(7, 3), on=IMAGE),
    case("Upsample", 9, on=SERIES), case("Upsample", scale_factor=(1.7, 0.6), mode="nearest-exact", on=IMAGE),
    case("Upsample", scale_factor=2.3, mode="linear", on=SERIES),
    case("Upsample", scale_factor=2, mode="bilinear", on=IMAGE),
    case("Upsample", (3, 11), mode="bilinear", align_corners=True, on=IMAGE),
    case("Upsample", scale_factor=1.3, mode="bilinear", recompute_scale_factor=True, on=IMAGE),
    case("Upsample", scale_factor=1.6, mode="bicubic", on=IMAGE),
    case("Upsample", (8, 4), mode="bicubic", align_corners=True, on=IMAGE),
    case("UpsamplingNearest2d", scale_factor=3, on=IMAGE), case("UpsamplingBilinear2d", (7, 8), on=IMAGE),
    case("PixelShuffle", 2, on=IMAGE), case("PixelUnshuffle", 2, on=(2, 1, 4, 6)),
    case("ChannelShuffle", 2, on=IMAGE),
    *[case(f"{kind}Pad1d", (1, 2), on=SERIES) for kind in ("Zero", "Reflection", "Replication", "Circular")],
    *[case(f"{kind}Pad2d", (1, 2, 0, 3), on=IMAGE) for kind in ("Zero", "Reflection", "Replication", "Circular")],
    *[case(f"{kind}Pad2d", 1, on=IMAGE) for kind in ("Zero", "Reflection", "Replication", "Circular")],
    case("ConstantPad1d", 2, 3.5, on=SERIES), case("ConstantPad2d", (1, -1, 0, 2), -1.0, on=IMAGE),
    case("ZeroPad3d", 1, on=(1, 2, 2, 2, 2)), case("ConstantPad3d", 1, 0.5, on=(1, 2, 2, 2, 2)),
]  # fmt: skip

CASES = [*ACTIVATIONS, *LINEAR, *CONVOLUTION, *POOLING, *VOLUMES, *NORMALIZATION, *DROPOUT, *EMBEDDING, *PIXELS]


# --- Running one ----------------------------------------------------------------------------------------------------


def wave(count: int, phase: float) -> np.ndarray:
    """Fixed values between -1.5 and 1.5 without a pattern that a mistake might share."""
    return 1.5 * np.sin(np.arange(count) * 1.61803 + phase + 0.1 * np.sin(np.arange(count)))


def numbers(tensor: Any) -> dict[str, Any]:
    """A tensor in few numbers."""
    values = tensor.detach().cpu().numpy().astype(np.float64)
    flat = values.reshape(-1)
    return {"shape": list(values.shape), "sum": float(flat.sum()), "wave": float(flat @ wave(flat.size, 0.3))}


def run(lib: Any, case: Case, device: Any = None) -> dict[str, Any]:
    """What a case gives in `lib`, which is norch or torch: its repr, state, results and gradients."""

    def tensor(values: np.ndarray) -> Any:
        return lib.tensor(values, device=device)

    module = getattr(lib.nn, case.name)(*case.args, **case.kwargs)
    before = {name: list(value.shape) for name, value in module.state_dict().items()}
    parameters = list(module.parameters())
    with lib.no_grad():
        for i, parameter in enumerate(parameters):
            values = wave(parameter.numel(), 1.0 + i).reshape(tuple(parameter.shape)).astype(np.float32)
            parameter.copy_(lib.tensor(values))
    module.to(device, lib.float64)
    module.train(case.mode == "train")
    inputs = []
    for i, shape in enumerate(case.inputs):
        values = wave(math.prod(shape), 5.0 + i).reshape(shape)
        if case.below:
            inputs.append(tensor((np.abs(values) * 100).astype(np.int64) % case.below))
        else:
            values = np.abs(values) + 0.1 if case.positive else values
            inputs.append(tensor(values).requires_grad_())
    # An in-place activation may not change a leaf.
    result = module(*[x if case.below else x * 1.0 for x in inputs], **case.call)
    results = list(result) if isinstance(result, tuple) else [result]
    loss = (results[0] * tensor(wave(results[0].numel(), 2.0).reshape(tuple(results[0].shape)))).sum()
    if loss.requires_grad:
        loss.backward()
    return {
        "repr": repr(module),
        "state": before,
        "results": [numbers(r) for r in results],
        "after": {name: numbers(value) for name, value in module.state_dict().items()},
        "grads": [None if x.grad is None else numbers(x.grad) for x in (*inputs, *parameters)],
    }


def main() -> None:
    import torch

    found = {c.id: run(torch, c) for c in CASES}
    assert len(found) == len(CASES), "two cases are the same"
    lines = [f"{json.dumps(name)}: {json.dumps(_rounded(value))}" for name, value in found.items()]
    EXPECTATIONS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    return [_rounded(v) for v in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
