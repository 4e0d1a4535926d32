"""The HTTP contract of text-embeddings-inference 1.9, translated to the calls of the native routes."""
