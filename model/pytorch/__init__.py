"""The backend that runs checkpoints with PyTorch, and its native kernels."""
