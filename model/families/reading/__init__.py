"""Reads options that several families have in common."""
