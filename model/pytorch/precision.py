"""The ways to compute a model's numbers with PyTorch: a dtype, or products of eight-bit integers."""

from dataclasses import dataclass
from typing import get_args

import torch

from model.choices import Dtype
from model.devices import check_dtype
from model.encoder.config import EncoderConfig
from model.encoder.encoder import Encoder
from model.encoder.linear import StoredParts, read_matrices
from model.errors import Unsupported
from model.pytorch.kernels.eight_bits import rounds_all
from model.pytorch.kernels.library import (
    Kernels,
    NoKernels,
    find_int8_kernels,
    find_kernels,
    kernels_for,
)
from model.pytorch.kernels.stack import run_on_kernels

_AUTO, *_NAMED, _EIGHT_BITS = get_args(Dtype)
_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in _NAMED}
_WIDENED = "bfloat16"
EXACT = "float64"
"""A dtype that is not served: all but the results is computed in it, to tell how much float32 rounds off."""


@dataclass(frozen=True)
class Precision:
    """How a model is computed; `name` is as in the settings and in `/info`.

    `dtype` is that of all numbers between products, and of weights unless the kernels round these themselves:
    to eight bits, or to bfloat16 for products that widen them. `kernels` are by default those of the dtype;
    `native` is False where none are used.
    """

    name: str
    dtype: torch.dtype
    kernels: Kernels | None = None
    native: bool = True

    @staticmethod
    def choose(dtype: str, device: str, config: EncoderConfig, *, native: bool = True) -> "Precision":
        """Choose the precision of an encoder; raises Unsupported for one that does not run on the device.

        "auto" is bfloat16 on a CPU whose `native` kernels run it faster, else float32, and 16 bits on CUDA.
        """
        check_dtype(dtype, device)
        if dtype in (_AUTO, _WIDENED) and device == "cpu" and native and (widening := _find_widening(config)):
            return Precision(_WIDENED, torch.float32, widening)
        if dtype == _AUTO:
            dtype = _fastest(device, native=native)
        if dtype == _EIGHT_BITS:
            kernels, between = _find_eight_bits(config, native=native)
            return Precision(dtype, between, kernels)
        if dtype == EXACT:
            return Precision(dtype, torch.float64, native=False)
        if dtype not in _DTYPES:
            raise Unsupported(
                f"dtype is {dtype}; PyTorch runs models in {', '.join(_DTYPES)} or {_EIGHT_BITS}: choose one "
                "of them.",
                field="dtype",
            )
        return Precision(dtype, _DTYPES[dtype], native=native)

    @property
    def rounds_weights(self) -> bool:
        """Whether weights are rounded to eight bits.

        Attention is then observed in a pass of its own, because hidden states from rounded weights would
        change its weights by a tenth. So a sequence has the same vectors whether it is observed or not.
        """
        return self.name == _EIGHT_BITS

    def apply(self, encoder: Encoder, stored: StoredParts) -> tuple[Kernels | None, str | None]:
        """Convert an encoder, and run its blocks on native kernels if possible.

        Returns the kernels, or the reason why there are none. `stored` are the weights as a file holds them.
        Raises Unsupported if the model is to run in eight bits, for which it needs kernels, and none can.
        """
        if self.rounds_weights:
            read_matrices(encoder, stored)
            if not rounds_all(encoder.config):
                encoder.reduce_precision(self.dtype)
        if not self.native:
            self._convert(encoder, stored)
            return None, "the settings turn them off"
        try:
            return run_on_kernels(encoder, self.kernels, self.dtype, stored), None
        except NoKernels as error:
            if self.rounds_weights:
                raise Unsupported(
                    f"dtype {self.name} needs the native kernels, which cannot run this model: {error}; "
                    "choose float32, bfloat16 or auto.",
                    field="dtype",
                ) from error
            self._convert(encoder, stored)
            return None, str(error)

    def _convert(self, encoder: Encoder, stored: StoredParts) -> None:
        read_matrices(encoder, stored)
        if self.dtype == torch.float64:
            encoder.double()
        else:
            encoder.reduce_precision(self.dtype)


def _fastest(device: str, *, native: bool) -> str:
    if device != "cpu":
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
    if not native:
        return "float32"
    try:
        kernels = find_kernels(torch.bfloat16)
    except NoKernels:
        return "float32"
    return "bfloat16" if kernels.multiplies_pairs else "float32"


def _find_widening(config: EncoderConfig) -> Kernels | None:
    """Find kernels that widen weights of bfloat16, if they are the fastest and can run such an encoder.

    Elsewhere PyTorch would run bfloat16, without instructions that are made for it.
    """
    try:
        kernels = kernels_for(config, torch.bfloat16)
    except NoKernels:
        return None
    return kernels if kernels.products.widens else None


def _find_eight_bits(config: EncoderConfig, *, native: bool) -> tuple[Kernels, torch.dtype]:
    """Find kernels of eight bits; raises Unsupported where they cannot run."""
    reason = "it needs the native kernels, which are off"
    if native:
        try:
            return find_int8_kernels(head_size=config.head_size, tiled=config.disentangled is None)
        except NoKernels as error:
            reason = str(error)
    raise Unsupported(
        f"dtype {_EIGHT_BITS} cannot run here: {reason}; choose float32, bfloat16 or auto.", field="dtype"
    )
