"""Offline export: writes models as ONNX graphs, quantizes them, and compares them with PyTorch."""
