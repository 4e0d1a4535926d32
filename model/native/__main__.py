"""Says which of our kernels run here: `python -m model.native`."""

import torch

from model.native.library import NoKernels, find_kernels


def main() -> None:
    """Print a line for each precision."""
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        try:
            print(f"{name}: kernels of our own ({find_kernels(dtype).instructions})")  # noqa: T201
        except NoKernels as error:
            print(f"{name}: PyTorch's kernels, since {error}.")  # noqa: T201


if __name__ == "__main__":
    main()
