"""Connections: accepted, parsed and kept open, with the event loop shared between their clients."""
