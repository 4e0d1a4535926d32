"""Norms of hidden states, and of queries and keys."""

from torch import Tensor, nn

from model.encoder.config import EncoderConfig


def make_norm(config: EncoderConfig, size: int | None = None) -> nn.LayerNorm | nn.RMSNorm:
    """Make the config's norm over the last axis: layer (Ba et al. 2016) or RMS (Zhang & Sennrich 2019).

    `size` is the length of that axis, C by default.
    """
    size = size or config.hidden_size
    if config.norm_kind == "rms":
        return nn.RMSNorm(size, eps=config.norm_eps)
    return nn.LayerNorm(size, eps=config.norm_eps, bias=config.norm_bias)


class JointNorm(nn.LayerNorm):
    """A layer norm over the queries, or the keys, of all heads together: over the last two axes (…, H, D)."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (…, H, D), keeping the shape."""
        return super().forward(x.flatten(-2)).view(x.shape)


def head_norm(config: EncoderConfig, heads: int) -> nn.Module:
    """Make the norm of the queries, or of the keys, of this many heads: (…, heads, D)."""
    match config.qk_norm:
        case None:
            return nn.Identity()
        case "rms":
            return nn.RMSNorm(config.head_size, eps=config.norm_eps)
        case "layer":
            return nn.LayerNorm(config.head_size, eps=config.norm_eps, bias=config.norm_bias)
        case "joint":
            return JointNorm(heads * config.head_size, eps=config.norm_eps, bias=config.norm_bias)
