"""Attention maps, their statistics and rollouts, with any array library."""
