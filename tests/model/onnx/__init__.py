"""model/, in process."""
