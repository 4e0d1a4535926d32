"""Who asks: keys, addresses, and how fast each reads."""
