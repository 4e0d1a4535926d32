"""The HTTP contract of bert-as-service 1.10, translated to the calls of the native routes."""
