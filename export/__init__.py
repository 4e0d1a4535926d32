"""Home of the offline ONNX exporter; it holds no code yet, and nothing in the service needs it."""
