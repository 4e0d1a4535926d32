"""Clients: their API keys, their addresses, and how fast they read."""
