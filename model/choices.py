"""How a model can be run and observed, as users choose it; each list of names is only here."""

from typing import Literal

Kind = Literal["auto", "torch", "onnx"]
"""The runtimes; "auto" runs a checkpoint with PyTorch if it is installed, else a graph."""
Dtype = Literal["auto", "float32", "bfloat16", "float16", "int8"]
"""What matrix products are computed in: int8 rounds their factors, and what is between them has more bits."""
Processors = Literal["any", "vnni", "arm64"]
"""What an int8 graph is for: any processor, with weights of seven bits; x86 with VNNI, or ARM, with eight."""
Statistic = Literal[
    "entropy",
    "confidence",
    "mean_distance",
    "self",
    "previous",
    "next",
    "special",
    "argmax_self",
    "argmax_previous",
    "argmax_next",
]
