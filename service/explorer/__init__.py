"""The explorer: a page that shows the attention of the served models. `explorer/` has its sources."""
