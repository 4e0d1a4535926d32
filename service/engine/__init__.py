"""Runs models for many clients at once: the queue, batching and the worker threads; no HTTP."""
