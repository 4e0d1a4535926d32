"""The repository itself: its arrows, its documents, its names and versions."""
