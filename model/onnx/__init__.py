"""The backend that runs ONNX graphs with ONNX Runtime, without PyTorch."""
