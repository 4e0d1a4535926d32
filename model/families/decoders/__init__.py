"""Families of decoders, which were made to continue texts and were trained further to embed or rank them."""
