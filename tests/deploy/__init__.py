"""What runs headlight elsewhere, really run as far as one machine allows."""
