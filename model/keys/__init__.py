"""Every key of a model folder's files, and what is made of it."""
