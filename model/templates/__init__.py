"""Chat templates in which rerankers read a query and a document, and the tokens of such pairs."""
