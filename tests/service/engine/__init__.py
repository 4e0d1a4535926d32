"""service/engine/, in process and over HTTP."""
