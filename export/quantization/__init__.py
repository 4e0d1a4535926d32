"""Products of a graph in eight bits."""
