"""Tests of what runs the service elsewhere: images, clusters, monitoring."""
