"""What can be asked: each protocol translates to the same calls of the engine."""
