"""The mathematics of the encoder alone: positions, attention, feed-forward, blocks, packing."""
