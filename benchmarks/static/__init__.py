"""Tables of token vectors, beside model2vec."""
