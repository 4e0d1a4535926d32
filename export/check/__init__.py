"""`headlight check`: whether and how a model can be served, and what becomes of the settings in its files."""
