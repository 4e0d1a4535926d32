"""Late interaction as PyLate and Stanford's ColBERT define it, on models of `transformers`.

Written from their definitions: `ColBERT.preprocess` and `ColBERT.encode` of PyLate; Khattab & Zaharia 2020.
"""

import json
import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from tests.references.checkpoints import Reference, write_bert

Array = NDArray[np.float64]
SIZE = 24
"""Of the vectors."""


@dataclass(frozen=True)
class Settings:
    """What PyLate keeps in its config; the words are its default."""

    query_length: int = 12
    document_length: int = 20
    expands: bool = True
    attends: bool = False
    skipped: Sequence[str] = tuple(string.punctuation)
    query_marker: str = "[Q] "
    document_marker: str = "[D] "


@dataclass(frozen=True)
class LateInteraction:
    """A checkpoint in a folder, the same in `transformers`, and the matrix that follows it."""

    folder: Path
    reference: Reference
    matrix: torch.Tensor
    settings: Settings

    def vectors(self, text: str, *, is_query: bool) -> tuple[list[int], list[int], Array]:
        """The tokens of a text in a role, those that have a vector, and their vectors of unit norm."""
        tokenizer, settings = self.reference.tokenizer, self.settings
        length = settings.query_length if is_query else settings.document_length
        found = tokenizer(text, truncation=True, max_length=length - 1)["input_ids"]
        marker = settings.query_marker if is_query else settings.document_marker
        ids = [found[0], tokenizer.convert_tokens_to_ids(marker), *found[1:]]
        attended = [1] * len(ids)
        if is_query and settings.expands:
            more = length - len(ids)
            ids += [tokenizer.mask_token_id] * more
            attended += [int(settings.attends)] * more
        hidden = self.hidden(ids, attended)
        skipped = [] if is_query else settings.skipped
        left_out = {tokenizer.convert_tokens_to_ids(word) for word in skipped} - {tokenizer.unk_token_id}
        rows = [i for i, token in enumerate(ids) if token not in left_out]
        vectors = hidden[rows] @ self.matrix.double().numpy().T
        return ids, rows, vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def hidden(self, ids: Sequence[int], attended: Sequence[int]) -> Array:
        """The last hidden state (N, C), where tokens that are not attended to are masked."""
        with torch.inference_mode():
            output = self.reference.model(
                input_ids=torch.tensor([list(ids)]), attention_mask=torch.tensor([list(attended)])
            )
        return output.last_hidden_state[0].double().numpy()


def write_pylate(folder: Path, settings: Settings | None = None, **options: Any) -> LateInteraction:
    """Save a small BERT of random weights in PyLate's form."""
    written = make_pylate(folder, write_bert(folder, **options), settings or Settings())
    return replace(written, reference=Reference.load(folder))


def make_pylate(folder: Path, model: Any, settings: Settings) -> LateInteraction:
    """Bring the folder of a model, with its tokenizer, into PyLate's form."""
    from transformers import AutoTokenizer

    add_tokens(folder, [settings.query_marker, settings.document_marker], model)
    torch.manual_seed(1)
    matrix = torch.randn(SIZE, model.config.hidden_size) * model.config.hidden_size**-0.5
    dense = {
        "in_features": model.config.hidden_size,
        "out_features": SIZE,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    (folder / "1_Dense").mkdir()
    write_json(folder / "1_Dense" / "config.json", dense)
    save_file({"linear.weight": matrix}, folder / "1_Dense" / "model.safetensors")
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
    ]
    write_json(folder / "modules.json", modules)
    config: dict[str, Any] = {
        "model_type": "ColBERT",
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "MaxSim",
        "query_prefix": settings.query_marker,
        "document_prefix": settings.document_marker,
        "query_length": settings.query_length,
        "document_length": settings.document_length,
        "attend_to_expansion_tokens": settings.attends,
        "skiplist_words": list(settings.skipped),
        "do_query_expansion": settings.expands,
    }
    write_json(folder / "config_sentence_transformers.json", config)
    reference = Reference(AutoTokenizer.from_pretrained(folder), model.eval())
    return LateInteraction(folder, reference, matrix, settings)


def write_stanford(folder: Path, settings: Settings, **options: Any) -> LateInteraction:
    """Save a small BERT of random weights in the form of Stanford's ColBERT, with its markers."""
    model = write_bert(folder, **options)
    add_tokens(folder, [settings.query_marker, settings.document_marker], model)
    reference = Reference.load(folder)
    torch.manual_seed(1)
    matrix = torch.randn(SIZE, model.config.hidden_size) * model.config.hidden_size**-0.5
    weights = {f"bert.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file({**weights, "linear.weight": matrix}, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", config | {"architectures": ["HF_ColBERT"]})
    metadata = {
        "dim": SIZE,
        "query_maxlen": settings.query_length,
        "doc_maxlen": settings.document_length,
        "query_token_id": settings.query_marker,
        "doc_token_id": settings.document_marker,
        "mask_punctuation": bool(settings.skipped),
        "attend_to_mask_tokens": settings.attends,
    }
    write_json(folder / "artifact.metadata", metadata)
    return LateInteraction(folder, reference, matrix, settings)


def add_tokens(folder: Path, tokens: Sequence[str], model: Any) -> None:
    """Add tokens to a folder's tokenizer and to its embeddings, as PyLate does."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(list(tokens))
    tokenizer.save_pretrained(folder)
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(folder)


def write_json(file: Path, content: Any) -> None:
    """Write a JSON file."""
    file.write_text(json.dumps(content), encoding="utf-8")
