"""Offline: writes models as ONNX graphs, rounds them, and holds them to PyTorch."""
