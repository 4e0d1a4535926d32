"""Quantizes the matrix products of a graph to eight bits."""
