"""Fewer vectors for late interaction: those of tokens that are alike become one (Clavié et al. 2024)."""
