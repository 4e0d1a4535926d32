"""The mathematics alone."""
