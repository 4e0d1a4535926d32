"""service/workers/, in process and over HTTP."""
