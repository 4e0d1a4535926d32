"""Model folders: where they come from, their layout, their weights, and how to convert them."""
