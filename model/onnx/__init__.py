"""The backend that runs exported graphs with ONNX Runtime, without PyTorch."""
