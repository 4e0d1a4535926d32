"""What follows the encoder."""
