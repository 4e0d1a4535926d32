"""Handlers, a file per group of routes."""
