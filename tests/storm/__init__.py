"""Hostile requests by the thousand: what is sent, in kinds, and who sends it."""
