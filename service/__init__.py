"""The HTTP service: routes, schemas, the batching engine, serialisation and settings."""
