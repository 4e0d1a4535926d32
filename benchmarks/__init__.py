"""Benchmarks: each prints tables and the machine it ran on; a missed target is not an error."""
