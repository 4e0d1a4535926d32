"""Attention maps, their statistics and rollouts, in numpy or PyTorch."""
