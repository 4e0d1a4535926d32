"""Explanations of scores: what is explained, by which method, in which units."""
