"""Ops of neural networks: activations, convolution, pooling, normalization, attention, losses."""
