"""Model folders, read and saved."""
