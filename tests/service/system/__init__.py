"""service/system/, in process and over HTTP."""
