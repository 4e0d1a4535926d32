"""Chat templates that rerankers read a query and a document in, and the tokens of such pairs."""
