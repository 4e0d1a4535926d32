"""export/, in process and from its command line."""
