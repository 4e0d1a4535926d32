"""Programs that measure passes of a model in process: forward passes, products, graphs, attention."""
