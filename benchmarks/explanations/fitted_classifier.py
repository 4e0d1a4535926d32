"""Fits a classifier of genres to sentences of an STS file, on the vectors that a running service returns.

It is the embedded model's BERT with a logistic regression on the tanh of the last state of [CLS]: a folder as
`transformers` saves a BertForSequenceClassification, whose pooler is the identity.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from model.checkpoints.source import EMBEDDED, resolve

_PENALTY = 1e-3
_STEPS = 200
_BATCH = 64
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


@dataclass(frozen=True)
class Labelled:
    """Texts with their labels."""

    texts: Sequence[str]
    labels: Sequence[str]


def fit_classifier(client: httpx.Client, train: Labelled, folder: Path) -> None:
    """Fit to texts, and write the folder; the same texts give the same weights."""
    labels = sorted(set(train.labels))
    wanted = torch.tensor([labels.index(label) for label in train.labels])
    inputs = torch.from_numpy(np.tanh(_first_states(client, train.texts)))
    weight = torch.zeros(len(labels), inputs.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(len(labels), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=_STEPS, line_search_fn="strong_wolfe")

    def loss() -> float:
        optimizer.zero_grad()
        found = torch.nn.functional.cross_entropy(inputs @ weight.T + bias, wanted)
        found = found + _PENALTY * weight.square().sum()
        found.backward()  # type: ignore[no-untyped-call]
        return float(found.detach())

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    write_classifier(folder, labels, weight.detach().numpy(), bias.detach().numpy())


def accuracy(client: httpx.Client, held_out: Labelled, model: str) -> float:
    """Return the share of texts that a served classifier labels right."""
    right = 0
    for start in range(0, len(held_out.texts), _BATCH):
        body = {"inputs": held_out.texts[start : start + _BATCH], "model": model}
        found = client.post("/predict", json=body).raise_for_status().json()["data"]
        both = zip(found, held_out.labels[start : start + _BATCH], strict=True)
        right += sum(item["labels"][0]["label"] == label for item, label in both)
    return right / len(held_out.texts)


def _first_states(client: httpx.Client, texts: Sequence[str]) -> NDArray[np.float64]:
    """Return the last hidden state of [CLS] of each text, (texts, C)."""
    found: list[list[float]] = []
    for start in range(0, len(texts), _BATCH):
        body = {"inputs": texts[start : start + _BATCH], "pooling": "cls", "normalize": False}
        answer = client.post("/encode", json=body).raise_for_status()
        found += [item["embedding"] for item in answer.json()["data"]]
    return np.array(found)


def write_classifier(
    folder: Path, labels: Sequence[str], weight: NDArray[np.float64], bias: NDArray[np.float64]
) -> None:
    """Write the folder of a classifier with these labels and weights (labels, C), and biases."""
    source, size = resolve(EMBEDDED), weight.shape[1]
    folder.mkdir(parents=True)
    for name in _TOKENIZER:
        shutil.copy(source / name, folder)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config["architectures"] = ["BertForSequenceClassification"]
    config["id2label"] = {str(i): label for i, label in enumerate(labels)}
    config["label2id"] = {label: i for i, label in enumerate(labels)}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    weights = {f"bert.{name}": value for name, value in load_file(source / "model.safetensors").items()}
    weights["bert.pooler.dense.weight"] = np.eye(size, dtype=np.float32)
    weights["bert.pooler.dense.bias"] = np.zeros(size, np.float32)
    weights["classifier.weight"] = weight.astype(np.float32)
    weights["classifier.bias"] = bias.astype(np.float32)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
