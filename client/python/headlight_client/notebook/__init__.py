"""The explorer in notebooks, and as a file: a page that shows attention, with this client behind it."""

from headlight_client.notebook.explorer import Explorer

__all__ = ["Explorer"]
