"""service/http/, in process and over HTTP."""
