"""The protocol of Cohere, and ranking, which Jina and Voyage do on the same path."""
