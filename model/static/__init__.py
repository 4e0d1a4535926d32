"""Models without layers: a vector for each token, of which a text has the mean. No PyTorch is needed."""
