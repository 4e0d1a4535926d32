"""The protocol of Cohere, and the ranking that Jina and Voyage have on the same path."""
