"""From hidden states to sentence vectors: pooling, dense layers, normalisation."""
