"""Real client libraries, each pinned in an environment of its own, against a running service."""
