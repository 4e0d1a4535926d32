"""A plain ONNX export of a model, as one would make it without headlight; also in eight bits."""

import subprocess
from pathlib import Path
from typing import Any

import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch.export import Dim
from transformers import AutoModel

from model.checkpoints.source import EMBEDDED, resolve
from model.onnx import names as graph
from model.onnx.file import GRAPH


def export_plain(place: Path, folder: Path | None = None) -> Path:
    """Write a plain export: `transformers`' module through PyTorch's exporter.

    It is of the embedded model, or of a `folder`, without token types.
    """
    model = AutoModel.from_pretrained(folder or resolve(EMBEDDED), attn_implementation="sdpa").eval()
    axes = {0: Dim("batch"), 1: Dim("length")}
    names = [graph.INPUT_IDS, graph.ATTENTION_MASK, *([graph.TOKEN_TYPE_IDS] if folder is None else [])]
    example = {name: torch.full((2, 7), fill) for name, fill in zip(names, (7, 1, 0), strict=False)}
    program = torch.onnx.export(
        _LastHiddenState(model).eval(),
        tuple(example.values()),
        dynamo=True,
        opset_version=23 if folder is None else 20,  # 23 has rotary positions, which runtimes lack
        dynamic_shapes=(axes,) * len(names),
        input_names=names,
        output_names=[graph.LAST_HIDDEN_STATE[0]],
        verbose=False,
    )
    assert program is not None
    program.save(place / GRAPH)
    return place / GRAPH


class _LastHiddenState(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any = None) -> Any:
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        return self.model(input_ids=input_ids, attention_mask=attention_mask, **types).last_hidden_state


def round_graph(exported: Path) -> Path:
    """Write a plain export in eight bits beside it, for ONNX Runtime."""
    rounded = exported.with_name("int8.onnx")
    quantize_dynamic(
        exported, rounded, weight_type=QuantType.QInt8, per_channel=True, op_types_to_quantize=["MatMul"]
    )
    return rounded


def calibrate(exported: Path, openvino: str, tokenizer: str, data: Path) -> Path:
    """Write a plain export in eight bits beside it, for OpenVINO, calibrated on sentences of the data."""
    rounded = exported.with_name("int8.xml")
    program = [openvino, "-m", "benchmarks.peers.openvino_int8"]
    subprocess.run(
        [*program, str(exported), tokenizer, str(data), str(rounded)], check=True, stdout=subprocess.DEVNULL
    )
    return rounded
