"""Rounds a plain ONNX export to eight bits for OpenVINO, calibrated on sentences as it advises.

    python -m benchmarks.peers.openvino_int8 GRAPH TOKENIZER DATA TARGET

`benchmarks.service.runtimes --openvino PYTHON --int8` starts it, with a Python that has openvino, nncf
and tokenizers.
"""

import sys
from pathlib import Path

import nncf
import numpy as np
import openvino
from tokenizers import Tokenizer

from model.onnx import names

_SENTENCES = 300


def main() -> None:
    """Write the calibrated graph."""
    graph, tokenizer_file, data, target = sys.argv[1:5]
    tokenizer = Tokenizer.from_file(tokenizer_file)
    tokenizer.no_padding()
    lines = Path(data).read_text(encoding="utf-8").splitlines()
    sentences = [max(line.split("\t"), key=len) for line in lines][:_SENTENCES]

    def feed(text: str) -> dict[str, np.ndarray]:
        ids = np.array([tokenizer.encode(text).ids])
        return {
            names.INPUT_IDS: ids,
            names.ATTENTION_MASK: np.ones_like(ids),
            names.TOKEN_TYPE_IDS: np.zeros_like(ids),
        }

    model = openvino.Core().read_model(graph)
    dataset = nncf.Dataset(sentences, feed)
    rounded = nncf.quantize(model, dataset, model_type=nncf.ModelType.TRANSFORMER, subset_size=len(sentences))
    openvino.save_model(rounded, target)


if __name__ == "__main__":
    main()
