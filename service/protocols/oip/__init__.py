"""The Open Inference Protocol, version 2, of KServe and Triton, with its binary tensors."""
