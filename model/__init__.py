"""The encoder: its mathematics, its weights, its tokenizer and the ways to run it."""
