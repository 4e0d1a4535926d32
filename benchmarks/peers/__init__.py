"""What headlight is compared with, and the bare model."""
