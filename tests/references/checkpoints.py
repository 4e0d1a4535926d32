"""Checkpoints as `transformers` reads and runs them, eagerly; and small ones of random weights."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ids = Sequence[int]

MINILM = "all-MiniLM-L6-v2"


@dataclass(frozen=True)
class Reference:
    """A checkpoint folder as `transformers` reads and runs it, eagerly and in float32."""

    tokenizer: Any
    model: Any

    @classmethod
    def load(cls, folder: Path) -> "Reference":
        """Load a folder with `transformers`."""
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()  # type: ignore[no-untyped-call, unused-ignore]
        logging.set_verbosity_error()  # type: ignore[no-untyped-call, unused-ignore]
        model = AutoModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
        return cls(AutoTokenizer.from_pretrained(folder), model.eval())

    def tokenize(self, text: str | tuple[str, str], max_length: int, side: str = "right") -> dict[str, Any]:
        """Token ids, token types and offsets, cut to `max_length`, longest first."""
        self.tokenizer.truncation_side = side
        columns = self.tokenizer(
            [text],  # as a list: alone, a pair with an empty second text is taken for a single text
            truncation="longest_first",
            max_length=max_length,
            return_offsets_mapping=True,
            return_token_type_ids=True,
        )
        return {name: column[0] for name, column in columns.items()}

    def run(self, ids: Ids, types: Ids) -> tuple[Array, Array]:
        """Hidden states (L + 1, N, C) and attention weights (L, H, N, N) of one input, alone."""
        with torch.inference_mode():
            output = self.model(
                input_ids=torch.tensor([list(ids)]),
                token_type_ids=torch.tensor([list(types)]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                output_hidden_states=True,
                output_attentions=True,
            )
        assert output.attentions, "the reference computed no attention"
        assert all(map_ is not None and map_.numel() for map_ in output.attentions)
        return torch.cat(output.hidden_states).numpy(), torch.cat(output.attentions).numpy()


def write_tokenizer(folder: Path, *, model_max_length: int = 64, further: Sequence[str] = ()) -> int:
    """Write a small uncased WordPiece tokenizer in Hugging Face form; returns the size of its vocabulary.

    `further` are words that its vocabulary has besides its own.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    words = [
        "the",
        "man",
        "beats",
        "boy",
        "##ing",
        "hello",
        "world",
        "日",
        "本",
        "🙂",
        ".",
        ",",
        "[",
        "]",
        ":",
    ]
    vocabulary = [*specials, *letters, *(f"##{letter}" for letter in letters), *words, *further]
    tokenizer = Tokenizer(
        models.WordPiece({token: i for i, token in enumerate(vocabulary)}, unk_token="[UNK]")  # noqa: S106 - a vocabulary entry
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(specials)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": model_max_length, **roles}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return len(vocabulary)


SUITED: dict[str, Any] = {"hidden_size": 64}
"""Of `write_bert`: heads of 16, which our kernels take; by default they are of 8."""


def write_bert(
    folder: Path,
    *,
    architecture: str = "BertModel",
    seed: int = 0,
    words: Sequence[str] = (),
    **options: Any,
) -> Any:
    """Save a small BERT of random weights, in which every parameter counts, with its tokenizer.

    `options` go to `BertConfig`; `words` are further words of the vocabulary. Returns the model that was
    saved.
    """
    import transformers

    sizes = {
        "vocab_size": write_tokenizer(folder, further=words),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 64,
    }
    config = transformers.BertConfig(**{**sizes, **options})
    torch.manual_seed(seed)
    model = getattr(transformers, architecture)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            parameter.add_(noise * (0.3 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5))
    model.save_pretrained(folder)
    return model
