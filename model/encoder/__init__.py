"""The mathematics of the encoder: positions, attention, feed-forward, blocks, packing."""
