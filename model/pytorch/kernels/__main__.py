"""Prints which native kernels run on this machine: `python -m model.pytorch.kernels`."""

import torch

from model.pytorch.kernels.library import NoKernels, find_int8_kernels, find_kernels


def main() -> None:
    """Print one line for each precision."""
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        try:
            print(f"{name}: native kernels ({find_kernels(dtype).instructions})")  # noqa: T201
        except NoKernels as error:
            print(f"{name}: PyTorch's kernels, because {error}.")  # noqa: T201
    try:
        print(f"int8: native kernels ({find_int8_kernels()[0].instructions})")  # noqa: T201
    except NoKernels as error:
        print(f"int8: none, because {error}.")  # noqa: T201


if __name__ == "__main__":
    main()
