"""Programs of one layer: any module of torch.nn, with random arguments and inputs, forwards and backwards."""

from __future__ import annotations

import re
from functools import cache
from random import Random
from typing import NamedTuple

import arguments
import ops
from arguments import Call
from ops import Word

LAYERS = """
Linear k n | bias=bool ; fx(b,k)
Bilinear m k n | bias=bool ; fx(b,m) fx(b,k)
LazyLinear n | bias=bool ; fx(b,k)
Conv1d 4 n int(1,4) | stride=int(1,3) padding=choice(0,1,'same') dilation=int(1,3) groups=choice(1,2,4) bias=bool
  padding_mode=mode ; fx(b,4,W)
Conv2d 4 n int(1,4) | stride=choice(1,2,(2,1)) padding=choice(0,1,(1,0),'same') dilation=int(1,3) groups=choice(1,2,4)
  bias=bool padding_mode=mode ; fx(b,4,H,W)
Conv3d 2 n int(1,3) | stride=choice(1,2,(2,1,1)) padding=choice(0,1) groups=choice(1,2) bias=bool padding_mode=mode
  ; fx(b,2,h,H,W)
ConvTranspose1d 4 n int(1,4) | stride=int(1,4) padding=int(0,2) output_padding=choice(0,1) dilation=int(1,3)
  groups=choice(1,2) bias=bool ; fx(b,4,W)
ConvTranspose2d 4 n int(1,4) | stride=int(1,4) padding=int(0,2) output_padding=choice(0,1,(1,0)) dilation=int(1,3)
  groups=choice(1,2) bias=bool ; fx(b,4,H,w)
ConvTranspose3d 2 n int(1,3) | stride=int(1,3) padding=int(0,2) output_padding=choice(0,1) bias=bool ; fx(b,2,h,h,w)
LazyConv1d LazyConvTranspose1d n int(1,4) | stride=int(1,3) padding=int(0,2) bias=bool ; fx(b,h,W)
LazyConv2d LazyConvTranspose2d n int(1,4) | stride=int(1,3) padding=int(0,2) bias=bool ; fx(b,h,H,w)
LazyConv3d LazyConvTranspose3d n int(1,3) | stride=int(1,3) bias=bool ; fx(b,h,h,H,w)
Embedding 9 n | padding_idx=choice(0,-1) max_norm=choice(0.5,1.0) norm_type=choice(1.0,2.0) ; classes(b,m)
EmbeddingBag 9 n | mode=choice('sum','mean','max') padding_idx=choice(0,-1) ; classes(b,m)

AdaptiveAvgPool1d AdaptiveMaxPool1d choice(1,2,3) ; fx(b,n,W)
AdaptiveAvgPool2d AdaptiveMaxPool2d choice(1,2,(2,3),(None,2)) ; fx(b,n,H,W)
AdaptiveAvgPool3d AdaptiveMaxPool3d choice(1,2,(2,1,3),(None,2,1)) ; fx(b,n,h,H,W)
AvgPool1d int(1,4) | stride=int(1,3) padding=int(0,2) ceil_mode=bool count_include_pad=bool ; fx(b,n,W)
AvgPool2d choice(1,2,3,(2,1)) | stride=int(1,3) padding=int(0,2) ceil_mode=bool count_include_pad=bool
  divisor_override=int(1,4) ; fx(b,n,H,W)
AvgPool3d int(1,4) | stride=int(1,3) padding=int(0,2) ceil_mode=bool divisor_override=int(1,4) ; fx(b,n,W,H,W)
MaxPool1d int(1,4) | stride=int(1,3) padding=int(0,2) dilation=int(1,3) ceil_mode=bool ; fx(b,n,W)
MaxPool2d choice(1,2,3,(2,1)) | stride=int(1,3) padding=int(0,2) dilation=int(1,3) ceil_mode=bool ; fx(b,n,H,W)
MaxPool3d int(1,4) | stride=int(1,3) padding=int(0,2) dilation=int(1,3) ceil_mode=bool ; fx(b,n,W,H,W)
LPPool1d choice(1,2,3) int(1,4) | stride=int(1,3) ceil_mode=bool ; fx(b,n,W)
LPPool2d choice(1,2,3) int(1,4) | stride=int(1,3) ceil_mode=bool ; fx(b,n,H,W)
LPPool3d choice(1,2,3) int(1,4) | stride=int(1,3) ceil_mode=bool ; fx(b,n,W,H,W)

BatchNorm1d SyncBatchNorm h | eps=eps momentum=choice(0.3,None) affine=bool track_running_stats=bool ; fx(b,h,m)
BatchNorm1d h | eps=eps momentum=choice(0.3,None) affine=bool track_running_stats=bool ; fx(b,h)
BatchNorm2d h | eps=eps momentum=choice(0.3,None) affine=bool track_running_stats=bool ; fx(b,h,H,w)
BatchNorm3d h | eps=eps momentum=choice(0.3,None) affine=bool track_running_stats=bool ; fx(b,h,h,H,w)
InstanceNorm1d h | eps=eps momentum=choice(0.3) affine=bool track_running_stats=bool ; fx(b,h,W)
InstanceNorm2d h | eps=eps momentum=choice(0.3) affine=bool track_running_stats=bool ; fx(b,h,H,w)
InstanceNorm3d h | eps=eps momentum=choice(0.3) affine=bool track_running_stats=bool ; fx(b,h,h,H,w)
LazyBatchNorm1d | eps=eps affine=bool ; fx(b,h,W)
LazyBatchNorm2d | eps=eps affine=bool ; fx(b,h,H,w)
LazyBatchNorm3d | eps=eps affine=bool ; fx(b,h,h,H,w)
GroupNorm choice(1,2,4) 4 | eps=eps affine=bool ; fx(b,4,m)
LayerNorm h | eps=eps elementwise_affine=bool bias=bool ; fx(b,m,h)
RMSNorm h | eps=eps elementwise_affine=bool ; fx(b,m,h)
LocalResponseNorm int(1,4) | alpha=choice(1e-4,0.1) beta=choice(0.75,0.5) k=choice(1.0,2.0) ; fx(b,n,m)

CELU ELU | alpha=choice(1.0,0.5,2.0) ; fx
GLU | dim=last ; fx(b,m,4)
GELU | approximate=choice('none','tanh') ; fx
Hardshrink Softshrink | lambd=choice(0.5,0.0,1.0) ; fx
Hardsigmoid Hardswish LogSigmoid Mish ReLU ReLU6 SELU SiLU Sigmoid Softsign Tanh Tanhshrink Identity ; fx
Hardtanh | min_val=choice(-1.0,-0.1) max_val=choice(1.0,0.3,2) ; fx
LeakyReLU | negative_slope=choice(0.01,-0.5,0.0) ; fx
PReLU | num_parameters=choice(1,4) ; fx(b,4,m)
Softplus | beta=choice(1.0,2.0,0.5) threshold=choice(20.0,1.0) ; fx
Threshold choice(0.5,0,-1) choice(20,0,3) ; fx
Softmax LogSoftmax Softmin | dim=choice(0,1,-1) ; fx(b,m,n)
Softmax2d ; fx(b,h,H,w)
Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout 0.0 ; fx(b,h,n)

ChannelShuffle choice(1,2,4) ; fx(b,4,H,w)
PixelShuffle choice(1,2) ; fx(b,4,H,w)
PixelUnshuffle choice(1,2) ; fx(b,h,4,6)
Fold choice((4,4),4) choice(2,(2,2)) ; fx(b,8,9)
Unfold choice(1,2,(2,3)) | dilation=int(1,3) padding=int(0,2) stride=int(1,3) ; fx(b,h,H,W)
Flatten | start_dim=choice(0,1,2) end_dim=choice(-1,2) ; fx(b,m,n)
Unflatten choice(1,-2) choice((2,2),(4,1),(-1,2)) ; fx(b,4,n)
ConstantPad1d choice(1,(1,0),(2,-1)) choice(0,1.5) ; fx(b,n,W)
ConstantPad2d choice(1,(1,0,2,1),(0,-1,1,0)) choice(0,1.5) ; fx(b,n,H,W)
ConstantPad3d choice(1,(1,0,2,1,0,1)) choice(0,1.5) ; fx(b,n,h,H,W)
CircularPad1d ReflectionPad1d ReplicationPad1d ZeroPad1d choice(1,(1,0),(2,1)) ; fx(b,n,W)
CircularPad2d ReflectionPad2d ReplicationPad2d ZeroPad2d choice(1,(1,0,2,1)) ; fx(b,n,H,W)
CircularPad3d ReflectionPad3d ReplicationPad3d ZeroPad3d choice(1,(1,0,2,1,0,1)) ; fx(b,n,H,H,W)
Upsample choice(3,(4,5)) | mode=choice('nearest','bilinear','bicubic') ; fx(b,n,H,w)
Upsample None choice(2,(2,3),1.5) choice('bilinear','bicubic') | align_corners=bool ; fx(b,n,H,w)
UpsamplingBilinear2d UpsamplingNearest2d choice(3,(4,5)) ; fx(b,n,H,w)

RNN k h | num_layers=int(1,3) nonlinearity=choice('tanh','relu') bias=bool batch_first=bool bidirectional=bool
  ; fx(w,b,k)
LSTM k h | num_layers=int(1,3) bias=bool batch_first=bool bidirectional=bool proj_size=choice(0,1) ; fx(w,b,k)
GRU k h | num_layers=int(1,3) bias=bool batch_first=bool bidirectional=bool ; fx(w,b,k)
RNN LSTM GRU k h ; fx(w,k)
RNNCell k h | bias=bool nonlinearity=choice('tanh','relu') ; fx(b,k)
RNNCell GRUCell k h | bias=bool ; fx(b,k) fx(b,h)
LSTMCell k h | bias=bool ; fx(b,k)
MultiheadAttention 4 choice(1,2,4) | bias=bool add_bias_kv=bool add_zero_attn=bool
  ; fx(m,b,4) fx(n,b,4) fx(n,b,4) | need_weights=bool average_attn_weights=bool
MultiheadAttention 4 2 | kdim=choice(3) vdim=choice(3) ; fx(m,b,4) fx(n,b,3) fx(n,b,3)
TransformerEncoderLayer 4 choice(1,2) 6 0.0 | activation=choice('relu','gelu') batch_first=bool norm_first=bool
  bias=bool ; fx(m,b,4)
TransformerDecoderLayer 4 choice(1,2) 6 0.0 | activation=choice('relu','gelu') batch_first=bool norm_first=bool
  bias=bool ; fx(m,b,4) fx(n,b,4)
Transformer 4 2 1 int(1,3) 6 0.0 | norm_first=bool bias=bool ; fx(m,b,4) fx(n,b,4)

CosineSimilarity | dim=choice(0,1) ; fx(m,n) fx(m,n)
PairwiseDistance | p=choice(1.0,2.0,3.0) keepdim=bool ; fx(m,n) fx(m,n)
MSELoss L1Loss SmoothL1Loss HuberLoss HingeEmbeddingLoss SoftMarginLoss | reduction=reduction ; fx fsame
KLDivLoss | reduction=choice('mean','sum','none','batchmean') log_target=bool ; fx(m,n) fx(m,n)
PoissonNLLLoss | log_input=bool full=bool reduction=reduction ; fx fsame
GaussianNLLLoss | full=bool reduction=reduction ; fx(m,n) fx(m,n) variance(m,n)
BCELoss | reduction=reduction ; probability probability_same
BCEWithLogitsLoss | reduction=reduction ; fx probability_same
CrossEntropyLoss | reduction=reduction ignore_index=choice(-100,1) label_smoothing=choice(0.0,0.1) ; fx(m,9) classes(m)
LinearCrossEntropyLoss h 9 | bias=bool reduction=reduction label_smoothing=choice(0.0,0.1) ; fx(m,h) classes(m)
NLLLoss | reduction=reduction ignore_index=choice(-100,1) ; fx(m,9) classes(m)
NLLLoss2d | reduction=reduction ; fx(b,9,m,n) classes(b,m,n)
MultiMarginLoss | p=choice(1,2) margin=choice(1.0,0.5) reduction=reduction ; fx(h,9) classes(h)
MultiLabelMarginLoss | reduction=reduction ; fx(h,4) labels(h,4)
MultiLabelSoftMarginLoss | reduction=reduction ; fx(m,n) probability(m,n)
MarginRankingLoss | margin=choice(0.0,0.5) reduction=reduction ; fx(m) fx(m) signs(m)
CosineEmbeddingLoss | margin=choice(0.0,0.5) reduction=reduction ; fx(m,n) fx(m,n) signs(m)
TripletMarginLoss | margin=choice(1.0,0.5) p=choice(1.0,2.0) swap=bool reduction=reduction ; fx(m,n) fx(m,n) fx(m,n)
TripletMarginWithDistanceLoss | margin=choice(1.0,0.5) swap=bool reduction=reduction ; fx(m,n) fx(m,n) fx(m,n)
"""
"""Classes, words for the arguments of their constructors as in signatures.py, `|` optional ones, `;` for the call."""

LEFT_OUT = {
    "containers": "ModuleDict ModuleList ParameterDict ParameterList Sequential Module DataParallel",
    "which several lines use": "MaxUnpool1d MaxUnpool2d MaxUnpool3d TransformerEncoder TransformerDecoder CTCLoss",
    "random in training": "RReLU FractionalMaxPool2d FractionalMaxPool3d",
    "with arguments that depend on the input": """
        AdaptiveLogSoftmaxWithLoss CrossMapLRN2d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d
    """,
    "bases of others": "RNNBase RNNCellBase",
}
"""What both libraries have and no line names, by the reason. Their tests are elsewhere."""

MODES = "'zeros','reflect','replicate','circular'"


class Layer(NamedTuple):
    name: str
    needed: tuple[Word, ...]
    options: tuple[Word, ...]
    inputs: tuple[Word, ...]
    input_options: tuple[Word, ...]


@cache
def layers() -> tuple[Layer, ...]:
    found = []
    for line in LAYERS.replace("\n  ", " ").strip().splitlines():
        made, _, called = line.partition(";")
        (head, _, options), (inputs, _, more) = made.partition("|"), called.partition("|")
        names = [w for w in head.split() if re.match(r"[A-Z]\w+$", w) and w != "None"]
        needed = ops.words(" ".join(w for w in ops.split_outside(head) if w not in names))
        found += [Layer(n, needed, ops.words(options), ops.words(inputs), ops.words(more)) for n in names]
    return tuple(found)


def generate(r: Random) -> list[str]:
    """The lines that make a layer, call it and differentiate what it returns."""
    layer = r.choice(layers())
    c = Call(r, r.choice(("float32", "float32", "float64")), "plain")
    inputs = [ops.argument(c, w, i) for i, w in enumerate(layer.inputs)]
    given = [argument(c, w) for w in layer.needed]
    given += [f"{w.keyword}={argument(c, w)}" for w in layer.options if r.random() < 0.4]
    inputs += [f"{w.keyword}={argument(c, w)}" for w in layer.input_options if r.random() < 0.4]
    module, seed = f"nn.{layer.name}({', '.join(given)})", r.randrange(1000)
    graded = [line[0] for line in c.tensors if f"T.{c.dtype}" in line and r.random() < 0.6]
    lines = [f"{line}; {line[0]}.requires_grad_()" if line[0] in graded else line for line in c.tensors]
    call = f"m({', '.join(inputs)})"
    if layer.name.startswith("Lazy"):
        lines += [f"m = {module}.to(T.{c.dtype})", call, f"filled(m, {seed})"]
    else:
        lines.append(f"m = filled({module}.to(T.{c.dtype}), {seed})")
    if c.dtype == "float64":
        lines.append("m.double()")
    if r.random() < 0.25:
        lines.append("m.eval()")
    lines.append(f"z = {call}")
    lines += ops.gradients(r, graded, twice=False)
    return [*lines, "p = dict(m.named_parameters()); buffers = dict(m.named_buffers())"]


def argument(c: Call, word: Word) -> str:
    """The text of an argument of a constructor; a letter is a size of the inputs."""
    if len(word.name) == 1 and word.name.isalpha():
        return str(arguments.size(c, word.name))
    if word.name == "mode":
        return c.r.choice(MODES.split(","))
    if word.name == "eps":
        return c.r.choice(("1e-5", "0.1"))
    return word.name if re.match(r"[\d.]+$", word.name) else ops.argument(c, word, -1)
