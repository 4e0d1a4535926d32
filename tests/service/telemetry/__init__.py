"""service/telemetry/, in process and over HTTP."""
