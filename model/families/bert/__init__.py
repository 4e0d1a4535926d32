"""BERT, and the families that differ from it in a few steps and share most of its weight names."""
