"""What can be seen of attention."""
