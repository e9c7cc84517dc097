"""What PyTorch has under `torch.fx.experimental`."""
