"""Small decoders that embed, in the folders that sentence-transformers 6 writes, and their vectors."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from tests.references.families import Written, change_config

Array = NDArray[np.float64]
END = "<|endoftext|>"
LENGTH = 48
"""The longest text, in tokens."""
PROMPTS = {"query": "Instruct: Find the boy\nQuery:", "document": ""}
_WORDS = ["the man beats the boy", "hello world", "Instruct: Find the boy\nQuery: a b"]
_MODULES = {
    "Transformer": "base.modules.transformer",
    "Pooling": "sentence_transformer.modules.pooling",
    "Dense": "base.modules.dense",
    "Normalize": "base.modules.normalize",
}


def write_byte_pairs(folder: Path, *, ends: Sequence[str] = (END,), length: int = LENGTH) -> int:
    """Write a tokenizer of Qwen's class, which ends texts as `ends` says; returns its vocabulary's size."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    pairs = Tokenizer(models.BPE())
    pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    pairs.train_from_iterator(_WORDS * 3, trainer)
    trained = json.loads(pairs.to_str())["model"]
    tokenizer = transformers.Qwen2Tokenizer(
        vocab=trained["vocab"], merges=[tuple(pair) for pair in trained["merges"]], model_max_length=length
    )
    around = processors.TemplateProcessing(
        single=["$A", *ends], pair=["$A", "$B", *ends], special_tokens=[(END, 0)]
    )
    tokenizer._tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), around]
    )
    tokenizer.save_pretrained(folder)
    return len(tokenizer)


def write_decoder(folder: Path, name: str, *, architecture: str = "Model", **options: Any) -> Written:
    """Save a small decoder of random weights, in which every parameter counts, with a tokenizer."""
    import transformers

    words = write_byte_pairs(folder)
    sizes = {
        "vocab_size": words,
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "intermediate_size": 40,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
    }
    config = getattr(transformers, f"{name}Config")(**{**sizes, **options})
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = getattr(transformers, name + architecture)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            parameter.add_(noise * (0.3 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5))
    model.save_pretrained(folder)
    return Written(folder, model, takes_segments=False)


@dataclass(frozen=True)
class Embedder:
    """A folder, and how `transformers` and the definitions of sentence-transformers make its vectors."""

    folder: Path
    model: Any
    tokenizer: Any
    pooling: Literal["lasttoken", "mean", "cls"]
    dense: tuple[Array, ...]
    finish: Callable[[Array], Array]

    def ids(self, text: str) -> list[int]:
        """The tokens of a text."""
        found: list[int] = self.tokenizer(text, truncation=True, max_length=LENGTH)["input_ids"]
        return found

    def encode(self, text: str, prompt: str = "") -> Array:
        """The vector of a text."""
        ids = torch.tensor([self.ids(PROMPTS[prompt] + text if prompt else text)])
        with torch.inference_mode():
            states = self.model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
        exact = states.double().numpy()
        pooled = {"lasttoken": exact[-1], "mean": exact.mean(0), "cls": exact[0]}
        vector: Array = pooled[self.pooling]
        for weight in self.dense:
            vector = weight @ vector
        return self.finish(vector)


def unit(vector: Array) -> Array:
    """Scale to unit length."""
    return vector / np.linalg.norm(vector)


def write_embedder(
    written: Written,
    pooling: Literal["lasttoken", "mean", "cls"] = "lasttoken",
    *,
    dense: Sequence[int] = (),
    truncate: int | None = None,
) -> Embedder:
    """Add to a folder what sentence-transformers 6 saves of an embedder.

    `dense` are the sizes that linear layers without a bias map to, and `truncate` the components kept last.
    """
    from transformers import AutoTokenizer

    folder, size = written.folder, written.model.config.hidden_size
    kinds = ["Transformer", "Pooling", *["Dense"] * len(dense), "Normalize"]
    paths = ["", *(f"{i}_{kind}" for i, kind in enumerate(kinds) if i)]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.{_MODULES[kind]}.{kind}"}
        for i, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    level = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
    configs: list[dict[str, Any]] = [
        {"embedding_dimension": size, "pooling_mode": pooling, "include_prompt": True}
    ]
    weights = []
    random = np.random.default_rng(5)
    for outputs in dense:
        weights.append(random.normal(size=(outputs, size)) / size**0.5)
        configs.append(
            {
                "in_features": size,
                "out_features": outputs,
                "bias": False,
                "activation_function": "torch.nn.modules.linear.Identity",
                "use_residual": False,
                **level,
            }
        )
        size = outputs
    general: dict[str, Any] = {
        "model_type": "SentenceTransformer",
        "prompts": PROMPTS,
        "default_prompt_name": None,
        "similarity_fn_name": "cosine",
        **({"truncate_dim": truncate} if truncate else {}),
    }
    sentence = {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        "module_output_name": "token_embeddings",
    }
    contents = {
        "modules.json": modules,
        "config_sentence_transformers.json": general,
        "sentence_bert_config.json": sentence,
        **{f"{path}/config.json": config for path, config in zip(paths[1:], [*configs, level], strict=True)},
    }
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    _save(folder, paths, weights)
    change_config(folder, use_cache=False)
    return Embedder(
        folder,
        written.model,
        AutoTokenizer.from_pretrained(folder),
        pooling,
        tuple(weight.astype(np.float32).astype(np.float64) for weight in weights),
        (lambda vector: unit(vector)[:truncate]) if truncate else unit,
    )


def _save(folder: Path, paths: Sequence[str], weights: Sequence[Array]) -> None:
    from safetensors.numpy import save_file

    for number, weight in enumerate(weights):
        tensors = {"linear.weight": weight.astype(np.float32)}
        save_file(tensors, folder / paths[2 + number] / "model.safetensors")
