"""What stands on top of hidden states: pooling, dense layers, normalisation."""
