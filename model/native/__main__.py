"""Says which of our kernels run here: `python -m model.native`."""

import torch

from model.native.handles import find_functions
from model.native.library import NoKernels, find_kernels


def main() -> None:
    """Print a line for each precision."""
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        try:
            kernels = find_kernels(dtype)
            find_functions()
            print(f"{name}: kernels of our own ({kernels.instructions})")  # noqa: T201
        except NoKernels as error:
            print(f"{name}: PyTorch's kernels, since {error}.")  # noqa: T201


if __name__ == "__main__":
    main()
