"""The parts of service/, each by itself."""
