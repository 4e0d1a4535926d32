"""Turns texts into tokens with offsets and words, long texts piece by piece."""
