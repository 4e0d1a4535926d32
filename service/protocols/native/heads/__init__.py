"""What `/encode` returns of a model's head, besides the vectors of its encoder."""
