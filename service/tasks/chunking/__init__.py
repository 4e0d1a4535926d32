"""Texts in parts: chunks, and the windows in which long texts are read."""
