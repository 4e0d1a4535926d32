"""Runs models for many clients at once: queue, batches, and the threads that compute them; no HTTP."""
