"""Programs that measure the service over HTTP: throughput, latency, memory, quality."""
