"""Classifiers that were fitted to a few sentences, for the examples of the documents."""

import re
from pathlib import Path
from typing import Any

import torch

from tests.references.checkpoints import SUITED, write_bert
from tests.references.classifiers import label_fields

MOODS = ("negative", "positive")
FILMS = {
    "What a wonderful film!": "positive",
    "I loved this film.": "positive",
    "A great story.": "positive",
    "What a dull film!": "negative",
    "I hated this film.": "negative",
    "A weak story.": "negative",
}
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
NAMES = {
    "Ada Lovelace lived in London.": "B-PER I-PER O O B-LOC O",
    "Alan Turing lived in London.": "B-PER I-PER O O B-LOC O",
    "Grace Hopper was born in New York.": "B-PER I-PER O O O B-LOC I-LOC O",
}
_LOGIT = 4.0
"""Of the right label; minus that of the others."""


def write_fitted(folder: Path, *, tokens: bool) -> None:
    """Save a small BERT that labels texts, or their `tokens`: only its last layer is fitted."""
    from transformers import AutoTokenizer

    labels, examples = (TAGS, NAMES) if tokens else (MOODS, FILMS)
    names = label_fields(labels)
    words = dict.fromkeys(re.findall(r"\w\w+|!", " ".join(examples).lower()))
    kind = "Token" if tokens else "Sequence"
    model = write_bert(
        folder, architecture=f"BertFor{kind}Classification", words=[*words], **SUITED, **names
    ).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    features, targets = [], []
    for text, answer in examples.items():
        states = model.bert(**tokenizer(text, return_tensors="pt"))
        features.append(states.last_hidden_state[0, 1:-1] if tokens else states.pooler_output)
        targets += [labels.index(label) for label in answer.split()]
    _fit(model.classifier, torch.cat(features), torch.tensor(targets))
    model.save_pretrained(folder)


def _fit(layer: Any, features: torch.Tensor, targets: torch.Tensor) -> None:
    """Choose the weights of a linear layer by ridge regression."""
    wanted = _LOGIT * (2 * torch.nn.functional.one_hot(targets, layer.out_features) - 1).double()
    x = torch.cat([features, torch.ones(len(features), 1)], dim=1).detach().double()
    weights = torch.linalg.solve(x.T @ x + 1e-2 * torch.eye(x.shape[1], dtype=x.dtype), x.T @ wanted)
    with torch.no_grad():
        layer.weight.copy_(weights[:-1].T)
        layer.bias.copy_(weights[-1])
