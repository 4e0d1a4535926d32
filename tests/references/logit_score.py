"""Rerankers that say yes or no, in the folders that sentence-transformers 6 writes, and their scores."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tests.references.decoders import END, LENGTH, write_byte_pairs, write_decoder

Array = NDArray[np.float64]
INSTRUCTION = "Find it"
TAIL = f"{END}the hello:\n"
"""What follows the document; Jinja removes a newline at the end of a template."""
_PLACE = "(messages | selectattr('role', 'eq', '{}') | map(attribute='content') | list{}) | first"
TEMPLATE = (
    f"I: {{{{ {_PLACE.format('system', f' + [{INSTRUCTION!r}]')} }}}}\n"
    f"Q: {{{{ {_PLACE.format('query', '')} }}}}\n"
    f"D: {{{{ {_PLACE.format('document', '')} }}}}{TAIL}\n"
)
FIXED = f"{{{{ messages[0].content | trim }}}}\n{{{{ messages[1].content | trim }}}}{TAIL}\n"
"""A template without an instruction, which removes whitespace around the texts."""
_ENTRY = {"method": "forward", "method_output_name": "logits"}
_KINDS = ("base.modules.transformer.Transformer", "cross_encoder.modules.logit_score.LogitScore")


@dataclass(frozen=True)
class Reranker:
    """A folder, and the logits that `transformers` computes of pairs, each alone."""

    folder: Path
    model: Any
    tokenizer: Any
    yes: int
    no: int | None

    def ids(self, query: str, text: str, instruction: str | None = None) -> list[int]:
        """The tokens of a pair, as the library truncates them."""
        messages = [{"role": "query", "content": query}, {"role": "document", "content": text}]
        if instruction is not None:
            messages.insert(0, {"role": "system", "content": instruction})
        if self.tokenizer.chat_template is None:
            found: list[int] = self.tokenizer(query, text, truncation=True, max_length=LENGTH)["input_ids"]
            return found
        rendered = self.tokenizer.apply_chat_template(messages, tokenize=False)
        ids: list[int] = self.tokenizer(rendered, add_special_tokens=False)["input_ids"]
        if len(ids) <= LENGTH:
            return ids
        tail = self.tokenizer(TAIL, add_special_tokens=False)["input_ids"]
        return [*ids[: LENGTH - len(tail)], *tail]

    def logit(self, query: str, text: str, instruction: str | None = None) -> float:
        """The logit of one token after the pair, less that of the other one."""
        ids = torch.tensor([self.ids(query, text, instruction)])
        with torch.inference_mode():
            logits = self.model(input_ids=ids).logits[0, -1].double()
        return float(logits[self.yes] - (0 if self.no is None else logits[self.no]))

    def predict(self, query: str, texts: Sequence[str], instruction: str | None = None) -> Array:
        """The scores of pairs."""
        logits = np.array([self.logit(query, text, instruction) for text in texts])
        return 1 / (1 + np.exp(-logits))


def write_reranker(
    folder: Path,
    name: str = "Qwen3",
    *,
    template: str | None = TEMPLATE,
    tokens: tuple[int, int | None] = (40, 41),
    ends: Sequence[str] = (END,),
    **options: Any,
) -> Reranker:
    """Save a small decoder of random weights as `CrossEncoder` saves one whose last module is `LogitScore`.

    Texts without a template end as `ends` says.
    """
    from transformers import AutoTokenizer

    written = write_decoder(folder, name, architecture="ForCausalLM", **options)
    write_byte_pairs(folder, ends=ends)
    modalities: dict[str, Any] = {"text": _ENTRY}
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
        modalities["message"] = {**_ENTRY, "format": "flat"}
    contents = {
        "modules.json": [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.{kind}"}
            for i, (path, kind) in enumerate(zip(("", "1_LogitScore"), _KINDS, strict=True))
        ],
        "config_sentence_transformers.json": {
            "model_type": "CrossEncoder",
            "activation_fn": "torch.nn.modules.activation.Sigmoid",
            "prompts": {},
            "default_prompt_name": None,
        },
        "sentence_bert_config.json": {
            "transformer_task": "text-generation",
            "modality_config": modalities,
            "module_output_name": "causal_logits",
        },
        "1_LogitScore/config.json": {
            "true_token_id": tokens[0],
            "false_token_id": tokens[1],
            "module_input_name": "causal_logits",
        },
    }
    (folder / "1_LogitScore").mkdir()
    for file, content in contents.items():
        (folder / file).write_text(json.dumps(content), encoding="utf-8")
    return Reranker(folder, written.model, AutoTokenizer.from_pretrained(folder), *tokens)
