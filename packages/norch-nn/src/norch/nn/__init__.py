"""norch.nn: modules, losses and initialisation, under PyTorch's names and on the public API of norch.

Arguments that mean the same in every module:

    device, dtype: of its parameters and buffers; by default the default ones.
    bias: whether it has a bias, which is learned and begins as the weight does, unless said otherwise.
    inplace: whether the result is written into the memory of the input, which must then not be needed otherwise.
    affine, elementwise_affine: whether a normalisation has a weight, at first 1, and a bias, at first 0.
    eps: what is added to a variance or a norm, so that nothing is divided by 0.
    reduction: "mean" over the losses, their "sum", or "none": each. Raises ValueError for another.
    size_average, reduce: deprecated, as in PyTorch: False for either is "sum" or "none". They warn.
    num_features, num_channels: how many channels the input has, c.
    momentum, track_running_stats: how far running statistics move in training to the batch's; whether there are any.
    kernel_size, stride, padding, dilation: of windows, each an int or one for every dim: the size, the step from one to
        the next (1, or of pooling the size), what is added at each border, and the steps within a window.
    ceil_mode, return_indices: whether a last window may hang over the border; whether the places of what is chosen are
        given too, int64.
    distance_function, margin, swap: of triplets (N, D): a function of two tensors, (N, D) each, to (N); by how much the
        negative is to be farther; whether the positive takes the anchor's place where it is nearer to the negative.
    hook, prepend: a function that is called at that moment; whether before those that are there.
    batch_first: whether the batch is the first dim of sequences, the second being time, rather than the reverse.
"""

import norch

from . import functional as functional
from . import grad as grad
from . import init as init
from . import quantized as quantized
from . import utils as utils
from .activation import CELU as CELU
from .activation import ELU as ELU
from .activation import GELU as GELU
from .activation import GLU as GLU
from .activation import SELU as SELU
from .activation import Hardshrink as Hardshrink
from .activation import Hardsigmoid as Hardsigmoid
from .activation import Hardswish as Hardswish
from .activation import Hardtanh as Hardtanh
from .activation import LeakyReLU as LeakyReLU
from .activation import LogSigmoid as LogSigmoid
from .activation import LogSoftmax as LogSoftmax
from .activation import Mish as Mish
from .activation import PReLU as PReLU
from .activation import ReLU as ReLU
from .activation import ReLU6 as ReLU6
from .activation import RReLU as RReLU
from .activation import Sigmoid as Sigmoid
from .activation import SiLU as SiLU
from .activation import Softmax as Softmax
from .activation import Softmax2d as Softmax2d
from .activation import Softmin as Softmin
from .activation import Softplus as Softplus
from .activation import Softshrink as Softshrink
from .activation import Softsign as Softsign
from .activation import Tanh as Tanh
from .activation import Tanhshrink as Tanhshrink
from .activation import Threshold as Threshold
from .adaptive import AdaptiveLogSoftmaxWithLoss as AdaptiveLogSoftmaxWithLoss
from .container import ModuleDict as ModuleDict
from .container import ModuleList as ModuleList
from .container import Sequential as Sequential
from .convolution import Conv1d as Conv1d
from .convolution import Conv2d as Conv2d
from .convolution import Conv3d as Conv3d
from .convolution import ConvTranspose1d as ConvTranspose1d
from .convolution import ConvTranspose2d as ConvTranspose2d
from .convolution import ConvTranspose3d as ConvTranspose3d
from .distance import CosineSimilarity as CosineSimilarity
from .distance import PairwiseDistance as PairwiseDistance
from .dropout import AlphaDropout as AlphaDropout
from .dropout import Dropout as Dropout
from .dropout import Dropout1d as Dropout1d
from .dropout import Dropout2d as Dropout2d
from .dropout import Dropout3d as Dropout3d
from .dropout import FeatureAlphaDropout as FeatureAlphaDropout
from .embedding import Embedding as Embedding
from .embedding import EmbeddingBag as EmbeddingBag
from .lazy import LazyBatchNorm1d as LazyBatchNorm1d
from .lazy import LazyBatchNorm2d as LazyBatchNorm2d
from .lazy import LazyBatchNorm3d as LazyBatchNorm3d
from .lazy import LazyConv1d as LazyConv1d
from .lazy import LazyConv2d as LazyConv2d
from .lazy import LazyConv3d as LazyConv3d
from .lazy import LazyConvTranspose1d as LazyConvTranspose1d
from .lazy import LazyConvTranspose2d as LazyConvTranspose2d
from .lazy import LazyConvTranspose3d as LazyConvTranspose3d
from .lazy import LazyInstanceNorm1d as LazyInstanceNorm1d
from .lazy import LazyInstanceNorm2d as LazyInstanceNorm2d
from .lazy import LazyInstanceNorm3d as LazyInstanceNorm3d
from .lazy import LazyLinear as LazyLinear
from .linear import Bilinear as Bilinear
from .linear import Flatten as Flatten
from .linear import Identity as Identity
from .linear import Linear as Linear
from .linear import Unflatten as Unflatten
from .loss import BCELoss as BCELoss
from .loss import BCEWithLogitsLoss as BCEWithLogitsLoss
from .loss import CrossEntropyLoss as CrossEntropyLoss
from .loss import CTCLoss as CTCLoss
from .loss import GaussianNLLLoss as GaussianNLLLoss
from .loss import HuberLoss as HuberLoss
from .loss import KLDivLoss as KLDivLoss
from .loss import L1Loss as L1Loss
from .loss import LinearCrossEntropyLoss as LinearCrossEntropyLoss
from .loss import MSELoss as MSELoss
from .loss import NLLLoss as NLLLoss
from .loss import NLLLoss2d as NLLLoss2d
from .loss import PoissonNLLLoss as PoissonNLLLoss
from .loss import SmoothL1Loss as SmoothL1Loss
from .margin_loss import CosineEmbeddingLoss as CosineEmbeddingLoss
from .margin_loss import HingeEmbeddingLoss as HingeEmbeddingLoss
from .margin_loss import MarginRankingLoss as MarginRankingLoss
from .margin_loss import MultiLabelMarginLoss as MultiLabelMarginLoss
from .margin_loss import MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss
from .margin_loss import MultiMarginLoss as MultiMarginLoss
from .margin_loss import SoftMarginLoss as SoftMarginLoss
from .margin_loss import TripletMarginLoss as TripletMarginLoss
from .margin_loss import TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss
from .module import Module as Module
from .multihead_attention import MultiheadAttention as MultiheadAttention
from .normalization import BatchNorm1d as BatchNorm1d
from .normalization import BatchNorm2d as BatchNorm2d
from .normalization import BatchNorm3d as BatchNorm3d
from .normalization import CrossMapLRN2d as CrossMapLRN2d
from .normalization import GroupNorm as GroupNorm
from .normalization import InstanceNorm1d as InstanceNorm1d
from .normalization import InstanceNorm2d as InstanceNorm2d
from .normalization import InstanceNorm3d as InstanceNorm3d
from .normalization import LayerNorm as LayerNorm
from .normalization import LocalResponseNorm as LocalResponseNorm
from .normalization import RMSNorm as RMSNorm
from .padding import CircularPad1d as CircularPad1d
from .padding import CircularPad2d as CircularPad2d
from .padding import CircularPad3d as CircularPad3d
from .padding import ConstantPad1d as ConstantPad1d
from .padding import ConstantPad2d as ConstantPad2d
from .padding import ConstantPad3d as ConstantPad3d
from .padding import ReflectionPad1d as ReflectionPad1d
from .padding import ReflectionPad2d as ReflectionPad2d
from .padding import ReflectionPad3d as ReflectionPad3d
from .padding import ReplicationPad1d as ReplicationPad1d
from .padding import ReplicationPad2d as ReplicationPad2d
from .padding import ReplicationPad3d as ReplicationPad3d
from .padding import ZeroPad1d as ZeroPad1d
from .padding import ZeroPad2d as ZeroPad2d
from .padding import ZeroPad3d as ZeroPad3d
from .parallel.data_parallel import DataParallel as DataParallel
from .parameter import Buffer as Buffer
from .parameter import Parameter as Parameter
from .parameter import UninitializedBuffer as UninitializedBuffer
from .parameter import UninitializedParameter as UninitializedParameter
from .parameter_container import ParameterDict as ParameterDict
from .parameter_container import ParameterList as ParameterList
from .pixels import ChannelShuffle as ChannelShuffle
from .pixels import Fold as Fold
from .pixels import PixelShuffle as PixelShuffle
from .pixels import PixelUnshuffle as PixelUnshuffle
from .pixels import Unfold as Unfold
from .pixels import Upsample as Upsample
from .pixels import UpsamplingBilinear2d as UpsamplingBilinear2d
from .pixels import UpsamplingNearest2d as UpsamplingNearest2d
from .pooling import AdaptiveAvgPool1d as AdaptiveAvgPool1d
from .pooling import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from .pooling import AdaptiveAvgPool3d as AdaptiveAvgPool3d
from .pooling import AdaptiveMaxPool1d as AdaptiveMaxPool1d
from .pooling import AdaptiveMaxPool2d as AdaptiveMaxPool2d
from .pooling import AdaptiveMaxPool3d as AdaptiveMaxPool3d
from .pooling import AvgPool1d as AvgPool1d
from .pooling import AvgPool2d as AvgPool2d
from .pooling import AvgPool3d as AvgPool3d
from .pooling import FractionalMaxPool2d as FractionalMaxPool2d
from .pooling import FractionalMaxPool3d as FractionalMaxPool3d
from .pooling import LPPool1d as LPPool1d
from .pooling import LPPool2d as LPPool2d
from .pooling import LPPool3d as LPPool3d
from .pooling import MaxPool1d as MaxPool1d
from .pooling import MaxPool2d as MaxPool2d
from .pooling import MaxPool3d as MaxPool3d
from .pooling import MaxUnpool1d as MaxUnpool1d
from .pooling import MaxUnpool2d as MaxUnpool2d
from .pooling import MaxUnpool3d as MaxUnpool3d
from .recurrent import GRU as GRU
from .recurrent import LSTM as LSTM
from .recurrent import RNN as RNN
from .recurrent import RNNBase as RNNBase
from .recurrent_cells import GRUCell as GRUCell
from .recurrent_cells import LSTMCell as LSTMCell
from .recurrent_cells import RNNCell as RNNCell
from .recurrent_cells import RNNCellBase as RNNCellBase
from .state import StateDictError as StateDictError
from .sync_batchnorm import SyncBatchNorm as SyncBatchNorm
from .transformer import Transformer as Transformer
from .transformer import TransformerDecoder as TransformerDecoder
from .transformer import TransformerDecoderLayer as TransformerDecoderLayer
from .transformer import TransformerEncoder as TransformerEncoder
from .transformer import TransformerEncoderLayer as TransformerEncoderLayer

__getattr__ = norch.late_submodules(__name__)
