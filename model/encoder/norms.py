"""Norms of hidden states."""

from torch import nn

from model.encoder.config import EncoderConfig


def layer_norm(config: EncoderConfig) -> nn.LayerNorm:
    """Make the layer norm of hidden states (…, C), Ba et al. 2016."""
    return nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
