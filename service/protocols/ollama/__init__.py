"""The protocol of Ollama, for its embeddings."""
