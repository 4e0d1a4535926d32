"""Kernels of our own in C++, and the way to them."""
