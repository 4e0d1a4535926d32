"""The explorer: what serves it, and what it is built of."""
