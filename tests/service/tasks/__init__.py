"""service/tasks/, in process and over HTTP."""
