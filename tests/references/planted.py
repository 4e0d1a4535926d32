"""A tiny BERT in which one word and one head decide, by weights that are set by hand, and its numbers.

Each token has two components of its own, (1, −1), so that different words are orthogonal and layer norms only
scale. All attention is uniform. One head reads the component of one word and writes it to two components that
no token of a text has; all other heads read nothing, and feed-forward layers add nothing. So the state of
every token says which share of the text that word is, and nothing else of the text.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from tests.references.checkpoints import write_bert
from tests.references.classifiers import label_fields

LAYERS, HEADS = 2, 4
LAYER, HEAD = 1, 2
"""The head that decides."""
WORD = "hello"
"""The word that decides."""
LABELS = ("without", "with")
_CARRIER = "9"
"""A token whose components the head writes to; no text has it."""
_GAIN = 3.0
_EPSILON = 1e-12


def write_planted(folder: Path, *, classifies: bool) -> "Planted":
    """Save it as an encoder, or with a classifier that reads what the head has written to [CLS]."""
    kind = "BertForSequenceClassification" if classifies else "BertModel"
    labels = label_fields(LABELS) if classifies else {}
    size = 256
    model = write_bert(
        folder,
        architecture=kind,
        hidden_size=size,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        hidden_act="relu",
        layer_norm_eps=_EPSILON,
        **labels,
    )
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = tokenizer.get_vocab()
    word, carrier = 2 * ids[WORD], 2 * ids[_CARRIER]
    body = model.bert if classifies else model
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if name.endswith("LayerNorm.weight") else 0.0)
        tokens = body.embeddings.word_embeddings.weight
        for token in range(len(tokens)):
            tokens[token, 2 * token], tokens[token, 2 * token + 1] = 1, -1
        attention = body.encoder.layer[LAYER].attention
        place = HEAD * size // HEADS
        attention.self.value.weight[place, word] = 1
        attention.output.dense.weight[carrier, place] = _GAIN
        attention.output.dense.weight[carrier + 1, place] = -_GAIN
        if classifies:
            body.pooler.dense.weight.copy_(torch.eye(size))
            model.classifier.weight[:, carrier] = torch.tensor([-1.0, 1.0])
    model.save_pretrained(folder)
    return Planted(folder, tokenizer, size, word, carrier)


class Planted:
    """Its numbers, in float64."""

    def __init__(self, folder: Path, tokenizer: Any, size: int, word: int, carrier: int) -> None:
        self.folder, self._tokenizer, self._size = folder, tokenizer, size
        self._word, self._carrier = word, carrier

    def states(self, ids: Sequence[int], *, ablated: bool = False) -> NDArray[np.float64]:
        """The last states (N, C); without the head's output if it is `ablated`."""
        x = np.zeros((len(ids), self._size))
        for row, token in enumerate(ids):
            x[row, 2 * token : 2 * token + 2] = 1, -1
        x = x / x.std(1, keepdims=True)
        said = 0 if ablated else _GAIN * x[:, self._word].mean()
        x[:, self._carrier] += said
        x[:, self._carrier + 1] -= said
        return x / x.std(1, keepdims=True)

    def logit(self, ids: Sequence[int], *, ablated: bool = False) -> float:
        """The logit of the label "with"."""
        return float(np.tanh(self.states(ids, ablated=ablated)[0, self._carrier]))

    def without(self, ids: Sequence[int], tokens: Sequence[int]) -> list[int]:
        """The ids with the mask in place of some tokens."""
        mask = self._tokenizer.token_to_id("[MASK]")
        return [mask if place in tokens else token for place, token in enumerate(ids)]
