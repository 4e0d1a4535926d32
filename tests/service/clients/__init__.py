"""service/clients/, in process and over HTTP."""
