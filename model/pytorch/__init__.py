"""The backend that runs checkpoints with PyTorch, and the kernels compiled for it."""
