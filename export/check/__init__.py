"""`headlight check`: whether a model can be served, how, and what is made of the settings in its files."""
