"""The families of jina, whose original checkpoints are run by code of their own."""
