"""The Python client, against the real service and against servers that misbehave."""
