"""BM42 by its definition: `Bm42` of fastembed, of which Qdrant wrote "BM42: New Baseline for Hybrid Search".

A word's weight is the mean over the heads of the last layer of what [CLS] attends to its tokens, summed over
these; a stem has the largest weight of its words; and a vector has √log(1 + w) at the absolute value of the
signed MurmurHash3 of each stem. In a query each stem has the weight 1.
"""

import math
import string
from pathlib import Path
from typing import Any

import mmh3
import numpy as np
import torch
from py_rust_stemmers import SnowballStemmer

from tests.references.checkpoints import write_bert

STOPWORDS = ("the", "a")
WORDS = ("running", "run", "##s", "##ner", "##ning")


def write_bm42(folder: Path, **options: Any) -> Any:
    """Save a small BERT of random weights with stop words beside it; returns it."""
    model = write_bert(folder, words=WORDS, **options)
    (folder / "stopwords.txt").write_text("\n".join(STOPWORDS) + "\n", encoding="utf-8")
    model.set_attn_implementation("eager")
    return model.eval()


def stems_of(tokens: list[str]) -> list[tuple[str, list[int]]]:
    """The stem of each word that counts, and where its tokens are."""
    places = [i for i, token in enumerate(tokens) if token not in ("[CLS]", "[SEP]", "[UNK]", "[PAD]")]
    begins = [i for i in places if not tokens[i].startswith("##")]
    ends = [*begins[1:], len(tokens)]
    words = [[i for i in places if b <= i < end] for b, end in zip(begins, ends, strict=False)]
    joined = [("".join(tokens[i].removeprefix("##") for i in word), word) for word in words]
    stem = SnowballStemmer("english").stem_word
    ignored = {*STOPWORDS, *string.punctuation}
    return [(stem(text), word) for text, word in joined if text not in ignored]


def weights_of(model: Any, token_ids: list[int], tokens: list[str]) -> dict[int, float]:
    """The vector of a document."""
    with torch.inference_mode():
        maps = model(input_ids=torch.tensor([token_ids]), output_attentions=True).attentions
    row = maps[-1][0, :, 0].double().numpy().mean(0)
    found: dict[int, float] = {}
    for stem, places in stems_of(tokens):
        number = abs(mmh3.hash(stem))
        found[number] = max(found.get(number, 0.0), math.sqrt(math.log(1 + np.sum(row[places]))))
    return found
