"""The explorer in a browser, and models whose maps are known."""
