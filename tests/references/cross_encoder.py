"""Cross-encoders as sentence-transformers' `CrossEncoder` runs them, and the folders that it writes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from tests.references.families import change_config, write_model

Array = NDArray[np.float64]
Form = Literal["before 4.0", "since 4.0", "with modules"]

SIGMOID, IDENTITY = "torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"
SOFTMAX = "torch.nn.modules.activation.Softmax"
TRANSFORMER = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.Transformer"}


@dataclass(frozen=True)
class CrossEncoder:
    """A folder as `transformers` reads it; pairs run alone, with the (first) prompt before the query."""

    folder: Path
    model: Any
    tokenizer: Any
    activation: torch.nn.Module
    prompt: str
    takes_segments: bool

    def run(self, query: str, text: str) -> tuple[float, Array]:
        """The logit of a pair and its attention weights (L, H, N, N)."""
        encoded = self.tokenizer(
            [self.prompt + query],
            [text],
            truncation="longest_first",
            max_length=self.tokenizer.model_max_length,
            return_tensors="pt",
            return_token_type_ids=self.takes_segments,
        )
        with torch.inference_mode():
            output = self.model(**encoded, output_attentions=True)
        return float(output.logits[0, 0]), torch.cat(output.attentions).numpy()

    def predict(self, query: str, texts: Sequence[str], *, raw: bool = False) -> Array:
        """The scores of pairs: the activation of their logits, or the logits."""
        logits = torch.tensor([self.run(query, text)[0] for text in texts])
        return (logits if raw else self.activation(logits)).double().numpy()


def write_cross_encoder(
    folder: Path,
    name: str,
    form: Form | None = None,
    function: str | None = None,
    prompt: str = "",
    **options: Any,
) -> CrossEncoder:
    """Save a small cross-encoder of random weights, of a family whose classes begin with `name`.

    The folder says in one of three forms which `function` makes scores of logits; in none of them if it is
    None. A folder with modules may have a prompt.
    """
    from transformers import AutoTokenizer

    options = {"num_labels": 1, **options}
    written = write_model(folder, name, architecture=f"{name}ForSequenceClassification", **options)
    match form:
        case "before 4.0":
            change_config(folder, sbert_ce_default_activation_function=function)
        case "since 4.0":
            change_config(folder, sentence_transformers={"activation_fn": function, "version": "4.1.0"})
        case "with modules":
            prompts = {"prompts": {"rank": prompt}, "default_prompt_name": "rank"} if prompt else {}
            general = {"model_type": "CrossEncoder", "activation_fn": function, **prompts}
            for file, content in (("modules", [TRANSFORMER]), ("config_sentence_transformers", general)):
                (folder / f"{file}.json").write_text(json.dumps(content), encoding="utf-8")
    activation = torch.nn.Identity() if function == IDENTITY else torch.nn.Sigmoid()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return CrossEncoder(folder, written.model, tokenizer, activation, prompt, written.takes_segments)
