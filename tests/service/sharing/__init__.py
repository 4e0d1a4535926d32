"""service/sharing/, in process and over HTTP."""
