"""`headlight bench`: texts per second and latencies of a service."""
