"""Classifiers of texts in folders, and the scores that the pipeline of `transformers` gives with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.references.checkpoints import write_bert


def load_pipeline(task: str, folder: Path) -> Any:
    """Load a folder as a pipeline of `transformers`."""
    from transformers import AutoTokenizer, pipeline

    # The tokenizers of BERT return the types; this one is of no class in particular.
    names = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer = AutoTokenizer.from_pretrained(folder, model_input_names=names)
    options = {"attn_implementation": "eager"}
    return pipeline(task, model=str(folder), tokenizer=tokenizer, device="cpu", model_kwargs=options)


def label_fields(labels: Sequence[str]) -> dict[str, Any]:
    """The fields of config.json that name labels."""
    return {"id2label": dict(enumerate(labels)), "label2id": {name: i for i, name in enumerate(labels)}}


@dataclass(frozen=True)
class Classifier:
    """A classifier in a folder, as `transformers` loads it."""

    folder: Path
    pipeline: Any

    @classmethod
    def load(cls, folder: Path) -> "Classifier":
        """Load a folder with `transformers`."""
        return cls(folder, load_pipeline("text-classification", folder))

    def scores(self, text: str | tuple[str, str], function: str | None = None) -> list[dict[str, Any]]:
        """All labels of a text or a pair, the largest score first; `function` "none" gives logits."""
        given = text if isinstance(text, str) else {"text": text[0], "text_pair": text[1]}
        options = {} if function is None else {"function_to_apply": function}
        found = self.pipeline([given], top_k=None, truncation=True, **options)
        labels: list[dict[str, Any]] = found[0]
        return labels


def write_classifier(
    folder: Path, labels: Sequence[str], problem: str | None = None, **options: Any
) -> Classifier:
    """Save a small classifier of random weights with these labels."""
    given: dict[str, Any] = {**label_fields(labels), "problem_type": problem, **options}
    write_bert(folder, architecture="BertForSequenceClassification", **given)
    return Classifier.load(folder)
