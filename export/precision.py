"""The precisions of an exported graph: how an encoder becomes one, and how close to PyTorch it must be."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from export.errors import ExportError
from export.interventions import write_interventions
from export.parity import INTERVENTIONS, Quantity
from export.quantization.int8 import quantize
from export.writer import write_graph
from model.choices import Processors
from model.encoder.encoder import Encoder
from model.onnx.names import DTYPE_KEY
from model.onnx.vnni import NO_VNNI, has_exact_eight_bits

Dtype = Literal["float32", "float16", "int8"]
"""The dtype of the matrix products."""
RANDOM, REAL = "random tokens", "texts"
"""The names of inputs that are compared."""


@dataclass(frozen=True)
class Precision:
    """How a graph computes its products: in the dtype that it is `traced` in, or `quantized` to int8.

    `bounds` are the largest differences from PyTorch in float32 that an exported folder may have.
    """

    bounds: Mapping[str, Mapping[Quantity, float]]
    traced: torch.dtype = torch.float32
    quantized: bool = False

    def way_out(self, processors: Processors) -> str:
        """Say what to export if a graph differs by more than its bounds."""
        if self.quantized and processors == "any":
            return "export with --for vnni or arm64 (weights of eight bits instead of seven), or in float32"
        return "export in float32"

    def check(self, processors: Processors) -> None:
        """Raise ExportError if the graph could not be compared on this machine."""
        if self.quantized and processors != "any" and not has_exact_eight_bits():
            raise ExportError(
                f"The graph for {processors} cannot be compared here: {NO_VNNI}. Export it with --for any, "
                "or on a processor with VNNI."
            )

    def write(
        self, encoder: Encoder, folder: Path, described: Mapping[str, object], processors: Processors
    ) -> None:
        """Write the graphs of an encoder, with a description in their metadata; this changes the encoder."""
        if self.traced != torch.float32:
            encoder.reduce_precision(self.traced)
        about = {DTYPE_KEY: str(self.traced).removeprefix("torch."), **described}
        path = write_graph(encoder, folder, {key: str(value) for key, value in about.items()})
        if self.quantized:
            quantize(path, path, processors)
        write_interventions(path, encoder.config)


def _everywhere(bounds: Mapping[Quantity, float]) -> Mapping[str, Mapping[Quantity, float]]:
    return {RANDOM: bounds, REAL: bounds, INTERVENTIONS: bounds}


PRECISIONS: dict[Dtype, Precision] = {
    "float32": Precision(
        _everywhere(
            {
                "hidden states": 1e-4,
                "attention": 1e-4,
                "scores": 1e-4,
                "value norms": 1e-4,
                "summaries": 1e-4,
                "sentence vectors": 1e-4,
                "1 - sentence cosine": 1e-6,
                "logits": 1e-4,
            }
        )
    ),
    # The size of hidden states and vectors depends on the model, so no absolute bound fits all models.
    "float16": Precision(
        _everywhere(
            {
                "attention": 0.02,
                "scores": 0.01,
                "value norms": 0.02,
                "summaries": 0.01,
                "1 - sentence cosine": 1e-4,
            }
        ),
        traced=torch.float16,
    ),
    # Observed outputs are computed from float32 products, sentence vectors from int8 ones.
    "int8": Precision(
        _everywhere(
            {
                "attention": 0.02,
                "scores": 0.01,
                "value norms": 0.02,
                "summaries": 0.01,
                "1 - sentence cosine": 0.02,
            }
        ),
        quantized=True,
    ),
}
