"""The HTTP service: routes, schemas, the batching engine, serialization and settings."""
