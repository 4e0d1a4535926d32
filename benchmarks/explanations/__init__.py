"""Measures explanations: how faithful they are, and what they cost."""
