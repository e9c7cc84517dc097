"""What TensorBoard shows, written by tensorboardX: `SummaryWriter`, with PyTorch's methods."""

from .writer import SummaryWriter

__all__ = ["SummaryWriter"]
