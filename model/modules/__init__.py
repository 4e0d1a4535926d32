"""The modules that a folder of sentence-transformers lists, and which lists of them are served."""
