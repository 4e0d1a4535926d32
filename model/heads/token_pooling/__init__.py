"""Fewer vectors for late interaction: vectors of similar tokens become one (Clavié et al. 2024)."""
