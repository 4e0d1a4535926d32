"""What can be asked of a model: options in, plain results out. Knows no HTTP, no protocol and no format."""
