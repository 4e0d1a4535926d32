"""service/replies/, in process and over HTTP."""
